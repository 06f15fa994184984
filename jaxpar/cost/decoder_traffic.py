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

from jaxpar.cost.architecture import Architecture, Experts
from jaxpar.cost.communication import Kind
from jaxpar.cost.compress import Compressed
from jaxpar.cost.experts import DROPPED, LOAD_BIAS, expert_capacity
from jaxpar.cost.leaf import Leaf
from jaxpar.cost.terms import Term, make_term
from jaxpar.cost.traffic import KEYS, Difference, Message, StepTraffic, X, sent
from jaxpar.cost.zero import States
from jaxpar.layout import AXES, Layout
from jaxpar.schedules import Table
from jaxpar.schedules.ticks import lower

# The numbers `again`, `nested`, `attention_again`, `pipelined` and `joint` are 0 or 1: whether the
# backward pass computes whole layers again, segments of layers before that, or attention; whether
# there is a pipeline; and whether tp splits the positions.
DIFFERENCES = {
    # Segments run forward once more, for the input of each of their layers.
    "layer inputs": Difference("microbatches*2*layers*(1 + products_again + nested)"),
    "gradients of layer inputs": Difference("microbatches*2*layers"),
    "gradients of layer outputs": Difference("microbatches*2*layers"),
    # Of two sums in a layer the last is not computed again, as no gradient needs it.
    "layer outputs": Difference("microbatches*2*layers*(1 + again/2 + nested)"),
    # What the recomputation gathers is kept until the gradient is computed.
    # That is so for experts, whatever is recomputed.
    "layer inputs again": Difference(
        "microbatches*(2*layers - expert_layers)*(1 - products_again)"
    ),
    "head input again": Difference("microbatches*(1 - products_again)"),
    # The segments of a pipeline are its stages, and the first computes its own input, too.
    "embedding": Difference("microbatches*(1 + nested*pipelined)"),
    # Each device has these matrices in full. JAX sums their gradients where it computes them, or,
    # where tp splits the positions, together with all others.
    "gradients of shared heads": Difference(
        "2*microbatches*layers*where(tp > key_heads, 1 - joint, 0)",
        "key_parameters*key_heads*gradient_bytes/(2*layers)",
    ),
    # These are summed at the end of the step, with the gradients of all other leaves.
    "gradients of whole parameters": Difference("0"),
    "gradient of tied table": Difference("0"),
    # Experts send what `_mixture` says.
    "expert inputs": Difference("0"),
    "expert outputs": Difference("0"),
    "gradients of expert inputs": Difference("0"),
    "gradients of expert outputs": Difference("0"),
    "tokens to experts and back": Difference("0"),
    "their gradients": Difference("0"),
    # All devices are in step: in every tick an array goes each way, whether it is needed or not.
    "stage outputs": Difference("ticks"),
    "gradients of stage inputs": Difference("ticks"),
}

# What a teacher sends, who has a forward pass and no gradients. `hops` are those of the keys and
# values of a layer over cp.
OF_TEACHER = {
    "embedding": Difference("microbatches"),
    "layer inputs": Difference("microbatches*2*layers"),
    "layer outputs": Difference("microbatches*2*layers"),
    "keys and values": Difference("microbatches*2*layers*hops"),
    "queries": Difference("microbatches*layers"),
    "attended values": Difference("microbatches*layers"),
    "tokens of all devices": Difference("microbatches*expert_layers"),
    "their routes": Difference("microbatches*expert_layers"),
    "what their experts give": Difference("microbatches*expert_layers"),
    "rows of experts, and results": Difference("microbatches*2*expert_layers"),
    "head input": Difference("microbatches"),
    # The largest logit and the sum of exp, of the teacher and of the student, and the divergence.
    "loss": Difference("5*microbatches"),
}

# What is sent for gradients of the tables and matrices that stay as they are beside adapters.
OF_BASE = ("gradients of shared heads", "gradient of embedding", "head input again")

# Biases that are read again for the gradient only where what they are added to is computed again.
# After the last of them in a layer, nothing is; "selective" keeps the inputs of all products.
LAST_BIAS, OUTPUT_BIAS = "down_bias", "output_bias"
BIASES_OF_KEPT = (
    *("query_bias", "key_bias", "value_bias", "up_bias", "gate_bias"),
    *("attention_norm bias", "mlp_norm bias"),
)


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
    capacity_factor: float | None = None,
    balance: str = "none",
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
        compressed: what is compressed over dp, if anything is: gradients, or what local steps
            have changed.
        sync_every: after how many local steps the devices of dp average; None: there are none.
        capacity_factor: rows of each expert, over its even part of tokens; None: nothing is
            dropped, and all tokens are gathered.
        balance: what balances the experts: "loss", "bias" or "none".
    """
    remat, nested = layout.remat, layout.remat == "segments"
    numbers = {
        "again": int(layout.recomputes_layers),
        "products_again": int(layout.recomputes_products),
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
    activations = [*step.activations(scatter_gather=False), *_context(step)]
    if architecture.experts:
        activations += _mixture(step, architecture.experts, capacity_factor, balance == "loss")
    if not all(leaf.trained for leaf in leaves):
        activations = [one for one in activations if one.name not in OF_BASE]
    apart = frozenset({"dp"} if compressed or sync_every else ())
    unread = () if balance == "bias" else (LOAD_BIAS,)
    parameters = _Leaves(layout, leaves, step.numbers, gathers_layers, apart, unread)
    of_steps = [*activations, *parameters.arrays(), parameters.loss()]
    messages = [*_again(of_steps, sync_every or 1), *parameters.norms(scaled=scaled)]
    if sync_every and not compressed:
        messages += parameters.averages()
    for one in compressed:
        messages += parameters.codes(one)
    if apart:
        messages.append(parameters.number("loss of all", apart))
    return sent(messages)


def teacher_traffic(
    architecture: Architecture,
    layout: Layout,
    leaves: Sequence[Leaf],
    *,
    batch: int,
    sequence: int,
    element_bytes: int,
    gathers_layers: bool = False,
    capacity_factor: float | None = None,
) -> list[Message]:
    """Every collective that a decoder adds to a step in which it teaches another one.

    The arguments are those of `decoder_traffic`, of the teacher.
    """
    ring = layout.context in ("zigzag", "ring")
    numbers = {
        **dict.fromkeys(("again", "products_again", "nested", "attention_again"), 0),
        "hops": layout.cp - 1 if ring else 1,
    }
    each = States(element_bytes, 0, 0)
    step = StepTraffic(
        architecture, layout, batch, sequence, each, element_bytes, OF_TEACHER, numbers
    )
    activations = [*step.activations(scatter_gather=False), *_context(step)]
    if architecture.experts:
        activations += _mixture(step, architecture.experts, capacity_factor, balance_loss=False)
    parameters = _Leaves(layout, leaves, step.numbers, gathers_layers, frozenset(), ())
    of_teacher = [one for one in activations if one.name in OF_TEACHER]
    return sent([*of_teacher, *parameters.forward()])


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


def _context(step: StepTraffic) -> Iterator[Message]:
    """What attention sends over cp: queries, keys and values go apart.

    A ring's result is kept, unless whole layers are computed again. What is gathered, and what
    Ulysses exchanges, is kept only where everything is.
    """
    keys, once = f"{KEYS}/2", "microbatches*layers"
    again = f"{once}*(1 + attention_again + nested)"
    match step.layout.context:
        case "zigzag" | "ring":
            hops = f"2*(cp - 1)*{once}"
            whole_again = f"{hops}*(1 + again + nested)"
            yield step.send("keys and values", "permute", "cp", keys, whole_again)
            yield step.send("keys and values again", "permute", "cp", keys, hops)
            # They are summed on their way, in float32.
            sums = f"{keys}*4/element_bytes"
            yield step.send("gradients of keys and values", "permute", "cp", sums, hops)
        case "gather":
            scatter = f"{keys}*cp"
            yield step.send("keys and values", "all_gather", "cp", keys, f"2*{again}")
            gradients = "gradients of keys and values"
            yield step.send(gradients, "reduce_scatter", "cp", scatter, f"2*{once}")
        case "ulysses":
            queries = KEYS.replace("key_width", "query_width")
            values = KEYS.replace("key_width", "value_width")
            both = f"({again} + {once})"
            yield step.send("queries", "all_to_all", "cp", queries, both)
            yield step.send("keys and values", "all_to_all", "cp", f"copies*{keys}", f"2*{both}")
            yield step.send("attended values", "all_to_all", "cp", values, both)


def _mixture(
    step: StepTraffic, experts: Experts, capacity_factor: float | None, balance_loss: bool
) -> Iterator[Message]:
    """What experts send; unless everything is kept, all of it is computed again."""
    layout = step.layout
    tokens = layout.microbatch * step.sequence // layout.cp
    choices = f"{tokens}*per_token*4"  # weights are float32, and numbers of experts int32
    once = "microbatches*expert_layers"
    again = f"{once}*(1 + attention_again + nested)"
    if capacity_factor is None:
        yield step.send("tokens of all devices", "all_gather", "ep", X, again)
        yield step.send("their routes", "all_gather", "ep", f"2*{choices}", again)
        sums = f"{once}*(1 + nested)"
        yield step.send("what their experts give", "reduce_scatter", "ep", f"ep*{X}", sums)
        yield step.send("its gradient", "all_gather", "ep", X, once)
        yield step.send("gradients of tokens", "reduce_scatter", "ep", f"ep*{X}", once)
        yield step.send("gradients of routes", "reduce_scatter", "ep", f"ep*{choices}", once)
    else:
        rows = experts.count * expert_capacity(
            tokens,
            experts=experts.count,
            top_k=experts.per_token,
            capacity_factor=capacity_factor,
        )
        both = f"2*({again} + {once})"
        row = f"{rows}*hidden*element_bytes"
        yield step.send("rows of experts, and results", "all_to_all", "ep", row, both)
    if not layout.sequence_parallel:
        yield step.send("gradients of weights", "all_reduce", "tp", choices, once)
    if balance_loss:
        axes = ("dp", "fsdp", "ep", "cp", *["tp"] * layout.sequence_parallel)
        load = f"2*{experts.count}*4"
        # The losses themselves are not told, so only what their gradients need is sent.
        yield step.send("loads and scores", "all_reduce", axes, load, once)


def _again(messages: Iterable[Message], steps: int) -> Iterator[Message]:
    """The messages of so many steps."""
    for one in messages:
        count = make_term(one.name, "steps*times", {"steps": steps, "times": one.times})
        yield replace(one, count=count)


@dataclass(frozen=True)
class _Leaves:
    """What is sent of the parameters and of their gradients; attributes as `decoder_traffic`'s.

    Over the axes `apart`, no gradients are summed: each device has its own. Layers read nothing of
    the leaves whose names end in one of `unread`, so JAX leaves out the gather in a layer.
    """

    layout: Layout
    leaves: Sequence[Leaf]
    numbers: dict[str, Any]
    gathers_layers: bool
    apart: frozenset[str]
    unread: tuple[str, ...]

    def arrays(self) -> Iterator[Message]:
        """ZeRO's gathers and scatters, and the sums that are left when these have run."""
        adapters = not all(leaf.trained for leaf in self.leaves)
        for leaf in self.leaves:
            whole = "elements/split*parameter_bytes"
            times = self._times(leaf)
            piece = f"{whole}/layers" if "layers" in times.scattered else whole
            if leaf.trained or self.layout.zero == 3:
                gathered = f"{piece}/shards"
                yield self._send(leaf, "all_gather", leaf.shared, gathered, times.gathered)
            if not leaf.trained:
                continue
            yield self._send(leaf, "reduce_scatter", leaf.shared, piece, times.scattered)
            joint = {"tp"} if self.layout.sequence_parallel else set()
            varies = {"pp", *self.layout.token_axes, *joint}
            missing = varies - {*leaf.split, *leaf.shared} - self.apart
            yield self._send(leaf, "all_reduce", missing, f"{whole}/shards", "1")
            if adapters and "tp" not in {*leaf.split, *missing}:
                # Each device finds a part of the gradient, and JAX sums the parts in each layer.
                times = "microbatches*layers"
                yield self._send(leaf, "all_reduce", {"tp"}, f"{whole}/layers", times)

    def forward(self) -> Iterator[Message]:
        """The gathers of ZeRO's third stage for a forward pass, and for nothing else."""
        for leaf in self.leaves if self.layout.zero == 3 else ():
            in_layers = self.gathers_layers and leaf.layers > 0
            piece = "elements/split*parameter_bytes/shards" + "/layers" * in_layers
            times = "microbatches" if self.gathers_layers else "1"
            times += "*layers" * in_layers
            yield self._send(leaf, "all_gather", leaf.shared, piece, times)

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
        owned = {
            leaf.name: frozenset({*leaf.split, *leaf.shared})
            for leaf in self.leaves
            if leaf.trained
        }
        told = {name for name in owned if name.endswith((DROPPED, LOAD_BIAS))}
        for axes in dict.fromkeys(owned[name] for name in owned if name not in told):
            yield self.number("norm of gradients", axes)
        for name in told:
            dropped = name.endswith(DROPPED)
            yield self.number("dropped choices" if dropped else "largest load", owned[name])
        if scaled:
            yield self.number("overflow", set().union(*owned.values()))

    def _times(self, leaf: Leaf) -> _Times:
        """How often a leaf is gathered, and its gradient scattered."""
        if self.layout.zero == 2:
            return _Times("1", "microbatches")
        if not self.gathers_layers:
            return _Times("1", "1")
        if leaf.layers:
            return _Times(f"microbatches*layers*{self._reads(leaf)}", "microbatches*layers")
        # A pipeline keeps what is outside of the layers until the end of the step.
        times = "where(pipelined, 1, microbatches)"
        return _Times(times, times)

    def _reads(self, leaf: Leaf) -> str:
        """How often a layer reads a leaf in a microbatch: forward, and for its gradient."""
        if leaf.name.endswith(self.unread):
            return "0"
        kept = self.layout.remat == "selective" and leaf.name.endswith(BIASES_OF_KEPT)
        if kept or leaf.name.endswith(LAST_BIAS):
            return "(1 + nested)"
        return "(1 + nested + again)" if leaf.name.endswith(OUTPUT_BIAS) else "(2 + nested)"

    def _send(
        self, leaf: Leaf, kind: Kind, axes: Collection[str], operand: str, count: str
    ) -> Message:
        """A message about a leaf."""
        numbers = self.numbers | {
            "elements": leaf.elements,
            "parameter_bytes": leaf.element_bytes or self.numbers["parameter_bytes"],
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
