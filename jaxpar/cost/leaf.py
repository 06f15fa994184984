"""A leaf of the parameters as the formulas know it: how many numbers, and which axes spread it."""

import math
from dataclasses import dataclass

from jaxpar.layout import Layout


@dataclass(frozen=True)
class Leaf:
    """A leaf of the parameters, and how it is spread.

    Attributes:
        name: what it is called.
        elements: how many numbers it has, over all devices.
        split: the axes that split it while it is used.
        shared: the axes over which ZeRO shards it; none if it does not.
        layers: of how many layers it has the numbers; 0 if it is outside of the layers.
        trained: whether it has a gradient.
        element_bytes: the bytes of a number; None: those of every other parameter.
        block: how many of its numbers are a block, where an optimizer's state is in 8 bits.
    """

    name: str
    elements: int
    split: tuple[str, ...]
    shared: tuple[str, ...]
    layers: int
    trained: bool = True
    element_bytes: int | None = None
    block: int = 1

    def parts(self, layout: Layout) -> int:
        """Into how many parts it is split while it is used."""
        return math.prod(layout.sizes[axis] for axis in self.split)

    def shards(self, layout: Layout) -> int:
        """Over how many devices ZeRO shards each of these parts."""
        return math.prod(layout.sizes[axis] for axis in self.shared)
