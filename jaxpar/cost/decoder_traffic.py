"""What each device sends in a step of `jaxpar train`, to the byte.

Activations are those of `jaxpar.cost.traffic`, and `DIFFERENCES` says which of them our program
sends in another way. Parameters and gradients follow from the layouts of each leaf: ZeRO gathers
and scatters it over the axes that share it, and then its gradient is summed over those axes by
which it varies and which neither split nor share it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Kind
from jaxpar.cost.compress import Compressed
from jaxpar.cost.leaf import Leaf
from jaxpar.cost.terms import Term, make_term
from jaxpar.cost.traffic import KEYS, Difference, Message, StepTraffic, sent
from jaxpar.cost.zero import States
from jaxpar.layout import AXES, Layout
from jaxpar.schedules import Table
from jaxpar.schedules.ticks import lower

# The numbers `again`, `nested`, `attention_again`, `pipelined` and `joint` are 0 or 1: whether the
# backward pass computes whole layers again, segments of layers before that, or attention; whether
# there is a pipeline; and whether tp splits the positions.
DIFFERENCES = {
    # Segments run forward once more, for the input of each of their layers.
    "layer inputs": Difference("microbatches*blocks*(1 + again + nested)"),
    # Of two sums in a layer the last is not computed again, as no gradient needs it.
    "layer outputs": Difference("microbatches*blocks*(1 + again/2 + nested)"),
    # What the recomputation gathers is kept until the gradient is computed.
    "layer inputs again": Difference("microbatches*blocks*(1 - again)"),
    "head input again": Difference("microbatches*(1 - again)"),
    # The segments of a pipeline are its stages, and the first computes its own input, too.
    "embedding": Difference("microbatches*(1 + nested*pipelined)"),
    # Keys and values go apart, and what is gathered is kept where everything is.
    "keys and values": Difference(
        "2*microbatches*layers*(1 + attention_again + nested)", f"{KEYS}/2"
    ),
    "gradients of keys and values": Difference("2*microbatches*layers", f"{KEYS}*cp/2"),
    # Each device has these matrices in full. JAX sums their gradients where it computes them, or,
    # where tp splits the positions, together with all others.
    "gradients of shared heads": Difference(
        "2*microbatches*layers*where(tp > key_heads, 1 - joint, 0)",
        "key_parameters*key_heads*gradient_bytes/(2*layers)",
    ),
    # These are summed at the end of the step, with the gradients of all other leaves.
    "gradients of whole parameters": Difference("0"),
    "gradient of tied table": Difference("0"),
    # All devices are in step: in every tick an array goes each way, whether it is needed or not.
    "stage outputs": Difference("ticks"),
    "gradients of stage inputs": Difference("ticks"),
}


class _Times(NamedTuple):
    """The formulas of how often a leaf is gathered, and its gradient scattered."""

    gathered: str
    scattered: str


def decoder_traffic(
    architecture: Architecture,
    layout: Layout,
    leaves: Sequence[Leaf],
    *,
    batch: int,
    sequence: int,
    element_bytes: int,
    table: Table | None = None,
    gathers_layers: bool = False,
    scaled: bool = False,
    compressed: Sequence[Compressed] = (),
    sync_every: int | None = None,
) -> list[Message]:
    """Every collective of a step of our decoder; `stage` says which devices of pp take part.

    Of local steps it is every collective of a round.

    Args:
        architecture: the decoder.
        layout: how it is spread.
        leaves: its parameters; every stage of a pipeline has those outside of the layers.
        batch: examples in a step, over all devices.
        sequence: positions of an example.
        element_bytes: of a parameter, a gradient and an activation.
        table: the schedule of the pipeline; None: there is none.
        gathers_layers: at stage 3, whether every layer is gathered where it is used; otherwise
            everything is gathered once a step.
        scaled: whether a step looks for gradients that overflow, as in fp16.
        compressed: the gradients that are compressed over dp, if they are.
        sync_every: after how many local steps the devices of dp average; None: there are none.
    """
    remat, nested = layout.remat, layout.remat == "segments"
    numbers = {
        "again": int(layout.recomputes_layers),
        "nested": int(nested),
        "attention_again": int(remat != "none"),
        "pipelined": int(table is not None),
        "joint": int(layout.sequence_parallel),
        "ticks": len(lower(table, keep_inputs=nested).ticks.kind) if table else 0,
    }
    each = States(element_bytes, element_bytes, 0)
    step = StepTraffic(
        architecture, layout, batch, sequence, each, element_bytes, DIFFERENCES, numbers
    )
    activations = step.activations("gather", scatter_gather=False)
    apart = frozenset({"dp"} if compressed or sync_every else ())
    parameters = _Leaves(layout, leaves, step.numbers, gathers_layers, apart)
    of_steps = [*activations, *parameters.arrays(), parameters.loss()]
    messages = [*_again(of_steps, sync_every or 1), *parameters.norms(scaled=scaled)]
    if sync_every:
        messages += parameters.averages()
    for one in compressed:
        messages += parameters.codes(one)
    if apart:
        messages.append(parameters.number("loss of all", apart))
    return sent(messages)


def bytes_over_axes(
    messages: Iterable[Message], layout: Layout, table: Table | None = None
) -> dict[tuple[str, ...], float]:
    """The bytes that the busiest device sends in a step over each group of axes."""
    by_axes: dict[tuple[str, ...], np.ndarray] = {}
    for one in messages:
        size = takes_part(one, layout, table) * float(one.sent_bytes(layout))
        by_axes[one.axes] = by_axes.get(one.axes, 0) + size
    return {axes: float(of_devices.max()) for axes, of_devices in by_axes.items()}


def takes_part(message: Message, layout: Layout, table: Table | None) -> np.ndarray:
    """A mask of the devices of pp: those that have a stage which sends the message."""
    first, last = (table.device_of(stage) for stage in (0, table.stages - 1)) if table else (0, 0)
    stages = {"first": (first,), "last": (last,), "ends": (first, last)}
    everybody = range(layout.pp)
    return np.isin(everybody, stages.get(message.stage, everybody))


def _again(messages: Iterable[Message], steps: int) -> Iterator[Message]:
    """The messages of so many steps."""
    for one in messages:
        count = make_term(one.name, "steps*times", {"steps": steps, "times": one.times})
        yield replace(one, count=count)


@dataclass(frozen=True)
class _Leaves:
    """What is sent of the parameters and of their gradients; attributes as `decoder_traffic`'s.

    Over the axes `apart`, no gradients are summed: each device has its own.
    """

    layout: Layout
    leaves: Sequence[Leaf]
    numbers: dict[str, Any]
    gathers_layers: bool
    apart: frozenset[str]

    def arrays(self) -> Iterator[Message]:
        """ZeRO's gathers and scatters, and the sums that are left when these have run."""
        for leaf in self.leaves:
            whole = "elements/split*parameter_bytes"
            times = self._times(leaf)
            piece = f"{whole}/layers" if "layers" in times.scattered else whole
            yield self._send(leaf, "all_gather", leaf.shared, f"{piece}/shards", times.gathered)
            yield self._send(leaf, "reduce_scatter", leaf.shared, piece, times.scattered)
            joint = {"tp"} if self.layout.sequence_parallel else set()
            varies = {"pp", *self.layout.token_axes, *joint}
            missing = varies - {*leaf.split, *leaf.shared} - self.apart
            yield self._send(leaf, "all_reduce", missing, f"{whole}/shards", "1")

    def averages(self) -> Iterator[Message]:
        """The averages of the parameters after local steps."""
        for leaf in self.leaves:
            shard = "elements/split*parameter_bytes/shards"
            yield self._send(leaf, "all_reduce", self.apart, shard, "1")

    def codes(self, gradients: Compressed) -> Iterator[Message]:
        """Gradients that are averaged in few bits."""
        for kind, operand in gradients.operands.items():
            yield self._message("codes of gradients", kind, self.apart, operand)

    def loss(self) -> Message:
        """The loss of a step, over the devices that sum their gradients."""
        return self.number("loss of the step", {"pp", *self.layout.token_axes} - self.apart)

    def norms(self, *, scaled: bool) -> Iterator[Message]:
        """The norm for each set of axes that split gradients, and the overflow."""
        owned = [frozenset({*leaf.split, *leaf.shared}) for leaf in self.leaves]
        for axes in dict.fromkeys(owned):
            yield self.number("norm of gradients", axes)
        if scaled:
            yield self.number("overflow", set().union(*owned))

    def _times(self, leaf: Leaf) -> _Times:
        """How often a leaf is gathered, and its gradient scattered."""
        if self.layout.zero == 2:
            return _Times("1", "microbatches")
        if not self.gathers_layers:
            return _Times("1", "1")
        if leaf.layers:
            return _Times("microbatches*layers*(2 + nested)", "microbatches*layers")
        # A pipeline keeps what is outside of the layers until the end of the step.
        times = "where(pipelined, 1, microbatches)"
        return _Times(times, times)

    def _send(
        self, leaf: Leaf, kind: Kind, axes: Collection[str], operand: str, count: str
    ) -> Message:
        """A message about a leaf."""
        numbers = self.numbers | {
            "elements": leaf.elements,
            "split": leaf.parts(self.layout),
            "shards": leaf.shards(self.layout),
        }
        size, often = (make_term(leaf.name, formula, numbers) for formula in (operand, count))
        return Message(leaf.name, kind, self._present(axes), size, often)

    def number(self, name: str, axes: Collection[str]) -> Message:
        """A sum of one number."""
        return self._message(name, "all_reduce", axes, make_term(name, "4", {}))

    def _message(self, name: str, kind: Kind, axes: Collection[str], operand: Term) -> Message:
        """A message that is sent once."""
        return Message(name, kind, self._present(axes), operand, make_term(name, "1", {}))

    def _present(self, axes: Collection[str]) -> tuple[str, ...]:
        """Those of the axes that have several devices, in mesh order."""
        return tuple(axis for axis in AXES if axis in axes and self.layout.sizes[axis] > 1)
