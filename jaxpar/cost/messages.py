"""A collective of a step, in numbers."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from jaxpar.cost.communication import Kind, wire_bytes
from jaxpar.cost.layout import Layout
from jaxpar.cost.terms import Term

Hides = Literal["forward", "backward", "layer", None]
Stage = Literal["all", "first", "last", "ends"]


@dataclass(frozen=True)
class Message:
    """A collective that a device takes part in again and again.

    Attributes:
        name: what is sent.
        kind: how.
        axes: the mesh axes whose devices take part together.
        operand: bytes that a device gives in, each time.
        count: how often in a step.
        hides: beside what it can run: "forward" or "backward", what other layers or microbatches
            compute in that pass; "layer", what its own layer computes meanwhile; None: all wait.
        stage: which stages of a pipeline do it: "ends" are the first and the last.
    """

    name: str
    kind: Kind
    axes: tuple[str, ...]
    operand: Term
    count: Term
    hides: Hides = None
    stage: Stage = "all"

    @property
    def operand_bytes(self) -> Any:
        """Bytes that a device gives in, each time."""
        return self.operand.value

    @property
    def times(self) -> Any:
        """How often in a step."""
        return self.count.value

    def group(self, layout: Layout) -> Any:
        """How many devices take part together."""
        return math.prod(layout.sizes[axis] for axis in self.axes)

    def sent_bytes(self, layout: Layout) -> Any:
        """Bytes that a device sends in a step, by a ring."""
        return self.times * wire_bytes(self.kind, self.operand_bytes, self.group(layout))
