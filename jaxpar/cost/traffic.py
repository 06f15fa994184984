"""What each device sends in a step of training: every collective of every strategy, as formulas.

Collectives are those of Megatron-LM, DeepSpeed and FSDP. Scalars (the loss, the norm of gradients)
are not counted, and neither is the list of which expert each token goes to.

Sources: Rajbhandari et al. 2020, ZeRO, section 7; Shoeybi et al. 2019, Megatron-LM, section 3;
Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM, sections 3.2 and 4.1; Korthikanti et al. 2022, Reducing Activation Recomputation in
Large Transformer Models, section 4.2.2; Liu et al. 2023, Ring Attention, section 3; Jacobs et al.
2023, DeepSpeed Ulysses, section 3.2. In Megatron-LM megatron/core/tensor_parallel/layers.py and
transformer/moe/token_dispatcher.py, in Transformer Engine the ring of its context parallelism.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Kind, wire_bytes
from jaxpar.cost.shards import layer_parameters, layers_on_stage, on_device, outer_parameters
from jaxpar.cost.terms import Term, make_term
from jaxpar.cost.zero import ADAM_MIXED, States
from jaxpar.layout import Layout

Hides = Literal["forward", "backward", "layer", None]
Stage = Literal["all", "first", "last", "ends"]


@dataclass(frozen=True)
class Message:
    """A collective of a step, which a device takes part in again and again.

    Attributes:
        name: what is sent.
        kind: the kind of the collective.
        axes: the mesh axes whose devices take part together.
        operand: the bytes of a device's operand, each time.
        count: how often the collective runs in a step.
        hides: what it can run beside: "forward" or "backward", what other layers or microbatches
            compute in that pass; "layer", what its own layer computes meanwhile; None, nothing.
        stage: the stages of a pipeline that take part: "ends" are the first and the last.
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
        """The bytes of a device's operand, each time."""
        return self.operand.value

    @property
    def times(self) -> Any:
        """How often the collective runs in a step."""
        return self.count.value

    def group(self, layout: Layout) -> Any:
        """How many devices take part together."""
        return math.prod(layout.sizes[axis] for axis in self.axes)

    def sent_bytes(self, layout: Layout) -> Any:
        """Bytes that a device sends in a step, by a ring."""
        return self.times * wire_bytes(self.kind, self.operand_bytes, self.group(layout))


def step_traffic(
    architecture: Architecture,
    layout: Layout,
    *,
    batch: int,
    sequence: int,
    each: States = ADAM_MIXED,
    element_bytes: int = 2,
    scatter_gather: bool = True,
    all_reduce: bool = False,
) -> list[Message]:
    """Every collective of a step, for a device of the fullest stage.

    Collectives of a single device are left out. All experts get the same number of tokens. Where
    whole layers are computed again, all that their forward pass sends is sent twice; where only
    some of their products are, what these gather. Stage 3 of
    ZeRO gathers all parameters in both passes; FSDP can keep what is outside of the layers.

    Args:
        architecture: the model.
        layout: how it is spread; its sizes may be arrays, and then so are all numbers.
        batch: examples in a step, over all devices.
        sequence: positions of an example.
        each: bytes of a parameter and of its gradient, as they are sent; Megatron-LM adds up
            and sends gradients in 4 bytes if it trains in bf16.
        element_bytes: of an activation.
        scatter_gather: without sequence parallelism, what one stage sends to the next goes in tp
            parts, which are gathered there.
        all_reduce: with stage 1 of ZeRO every device gets the sums of all gradients, and not only
            of those for its own states, as in Aleph-Alpha/scaling.
    """
    step = StepTraffic(
        architecture, layout, batch, sequence, each, element_bytes, all_reduce=all_reduce
    )
    messages = *step.states(), *step.activations(scatter_gather=scatter_gather), *step.context()
    return sent(messages)


def sent(messages: Iterable[Message]) -> list[Message]:
    """The messages that go to other devices, and go at all."""
    return [one for one in messages if one.axes and np.any(one.times > 0)]


# Bytes of a microbatch's activations, and of the keys and values of its positions, on one device.
X = "microbatch*sequence/cp*hidden*element_bytes"
KEYS = "microbatch*sequence/cp*key_width*element_bytes"
_CROSSINGS = "where(pp > 1, microbatches*chunks, 0)"


class Difference(NamedTuple):
    """Where a program sends a message in another way than the standard.

    Attributes:
        count: the formula of how often it sends the message in a step.
        operand: the formula of the bytes of a device's operand; None: as the standard.
    """

    count: str
    operand: str | None = None


@dataclass(frozen=True)
class StepTraffic:
    """The messages of a step, kind by kind; the arguments of `step_traffic` say what they are.

    Attributes:
        differences: what a program sends in another way than the standard, by name of the message.
        more: the values of names in these formulas that the standard does not have.
        all_reduce: whether stage 1 of ZeRO sums all gradients on every device.
    """

    architecture: Architecture
    layout: Layout
    batch: int
    sequence: int
    each: States
    element_bytes: int
    differences: Mapping[str, Difference] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    all_reduce: bool = False

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The values of the names in formulas; parameters and layers are those of one device."""
        a, layout = self.architecture, self.layout
        experts, dense = layers_on_stage(a, layout)
        layers, held = experts + dense, on_device(a, layout)
        # The blocks that gather activations: attention, and an MLP or a shared expert.
        mixed = a.experts and layout.sequence_parallel and not a.experts.shared
        mlps = 0 if a.norms == 1 else dense if mixed else layers
        whole = ("none",)
        return {
            **layout.sizes,
            **_widths(a, layout),
            **self.more,
            "microbatch": layout.microbatch,
            "microbatches": layout.microbatches(self.batch),
            "chunks": layout.chunks,
            "sequence": self.sequence,
            "element_bytes": self.element_bytes,
            "parameter_bytes": self.each.params,
            "gradient_bytes": self.each.gradients,
            "layers": layers,
            "expert_layers": experts,
            "blocks": layers + mlps,
            "runs": 2 if layout.recomputes_layers else 1,
            "input_runs": 2 if layout.recomputes_products else 1,
            "layer_parameters": held.layers,
            "expert_parameters": held.experts,
            "outer_parameters": held.outer,
            "whole_parameters": layer_parameters(a, layout, whole)
            + outer_parameters(a, layout, whole),
            "key_parameters": layer_parameters(a, layout, ("kv",)),
            "table_parameters": a.vocab * a.hidden / layout.tp,
            "shards": layout.state_shards,
            "expert_shards": layout.expert_shards,
        }

    def send(
        self,
        name: str,
        kind: Kind,
        axes: str | tuple[str, ...],
        operand: str,
        count: str,
        hides: Hides = None,
        stage: Stage = "all",
    ) -> Message:
        """A message whose terms have the numbers that their formulas name."""
        axes = (axes,) if isinstance(axes, str) else axes
        other = self.differences.get(name, Difference(count))
        operand, count = other.operand or operand, other.count
        present = tuple(axis for axis in axes if np.any(self.numbers[axis] > 1))
        size, often = (make_term(name, formula, self.numbers) for formula in (operand, count))
        return Message(name, kind, present, size, often, hides, stage)

    def states(self) -> Iterator[Message]:
        """Gradients, and with ZeRO also parameters."""
        dense, spread = ("dp", "fsdp", "ep", "cp"), ("dp", "fsdp", "cp")
        yield from self._states("", "layer_parameters", "layers", dense, "shards")
        if self.architecture.experts:
            names = ("expert_parameters", "expert_layers")
            yield from self._states("expert ", *names, spread, "expert_shards")
        yield from self._states("outer ", "outer_parameters", "1", dense, "shards")

    def _states(
        self, of: str, parameters: str, pieces: str, axes: tuple[str, ...], shards: str
    ) -> Iterator[Message]:
        gradients, zero = f"{parameters}*gradient_bytes", self.layout.zero
        if zero == 0:
            yield self.send(f"{of}gradients", "all_reduce", axes, gradients, "1", "backward")
            return
        copied = np.any(np.asarray(self.layout.fsdp) > 1)
        axes = tuple(axis for axis in axes if not (copied and axis == "dp"))
        times, shard = "microbatches" if zero > 1 else "1", f"{parameters}*parameter_bytes/{shards}"
        if zero == 3:
            times = f"microbatches*{pieces}"
            gradients, shard = f"{gradients}/{pieces}", f"{shard}/{pieces}"
            yield self.send(f"{of}parameters", "all_gather", axes, shard, times, "forward")
            yield self.send(f"{of}parameters again", "all_gather", axes, shard, times, "backward")
        else:
            yield self.send(f"new {of}parameters", "all_gather", axes, shard, "1", "forward")
        sums = "all_reduce" if zero == 1 and self.all_reduce else "reduce_scatter"
        yield self.send(f"{of}gradients", sums, axes, gradients, times, "backward")
        if copied:
            mine = f"{parameters}*gradient_bytes/{shards}"
            yield self.send(f"{of}gradients of shards", "all_reduce", "dp", mine, "1", "backward")

    def activations(self, *, scatter_gather: bool) -> Iterator[Message]:
        """What is computed with the parameters, and what its gradients need."""
        yield from self._layers()
        yield from self._vocabulary()
        yield from self._experts()
        yield from self._pipeline(scatter_gather)

    def _layers(self) -> Iterator[Message]:
        """Tensor parallelism: before products that are split by columns, after those by rows."""
        again, once = "microbatches*blocks*runs", "microbatches*blocks"
        if self.layout.sequence_parallel:
            inputs = "microbatches*blocks*input_runs"
            yield self.send("layer inputs", "all_gather", "tp", f"{X}/tp", inputs)
            yield self.send("layer outputs", "reduce_scatter", "tp", X, again)
            yield self.send("gradients of layer outputs", "all_gather", "tp", f"{X}/tp", once)
            yield self.send("layer inputs again", "all_gather", "tp", f"{X}/tp", once, "layer")
            yield self.send("gradients of layer inputs", "reduce_scatter", "tp", X, once, "layer")
            whole = "whole_parameters*gradient_bytes"
            yield self.send("gradients of whole parameters", "all_reduce", "tp", whole, "1")
        else:
            yield self.send("layer outputs", "all_reduce", "tp", X, again)
            yield self.send("gradients of layer inputs", "all_reduce", "tp", X, once, "layer")
        keys, shared = "key_parameters*gradient_bytes", "where(tp > key_heads, 1, 0)"
        yield self.send("gradients of shared heads", "all_reduce", "tp", keys, shared)

    def _vocabulary(self) -> Iterator[Message]:
        """The embedding and the head, whose tables are split by tokens, and the loss."""
        m = "microbatches"
        if self.layout.sequence_parallel:
            shard = f"{X}/tp"
            yield self.send("embedding", "reduce_scatter", "tp", X, m, None, "first")
            yield self.send("gradient of embedding", "all_gather", "tp", shard, m, None, "first")
            yield self.send("head input", "all_gather", "tp", shard, m, None, "last")
            yield self.send("head input again", "all_gather", "tp", shard, m, "layer", "last")
            kind = "reduce_scatter"
        else:
            yield self.send("embedding", "all_reduce", "tp", X, m, None, "first")
            kind = "all_reduce"
        yield self.send("gradient of head input", kind, "tp", X, m, "layer", "last")
        # In float32: of each position's logits the maximum, the sum of exp, and the target's.
        of_each = "microbatch*sequence/cp*4"
        yield self.send("loss", "all_reduce", "tp", of_each, "3*microbatches", None, "last")

    def _experts(self) -> Iterator[Message]:
        """Expert parallelism: every token goes to its experts and back; all experts get as many."""
        if not self.architecture.experts:
            return
        again, once = "microbatches*expert_layers*runs", "microbatches*expert_layers"
        tokens = f"{X}*per_token"
        if self.layout.sequence_parallel:
            # A device sends its own positions' tokens; those of an expert come together over tp.
            yield self.send("expert inputs", "all_gather", "tp", f"{tokens}/tp", again)
            yield self.send("expert outputs", "reduce_scatter", "tp", tokens, again)
            yield self.send("gradients of expert outputs", "all_gather", "tp", f"{tokens}/tp", once)
            yield self.send("gradients of expert inputs", "reduce_scatter", "tp", tokens, once)
            tokens = f"{tokens}/tp"
        yield self.send("tokens to experts and back", "all_to_all", "ep", tokens, f"2*{again}")
        yield self.send("their gradients", "all_to_all", "ep", tokens, f"2*{once}")

    def context(self) -> Iterator[Message]:
        """Context parallelism: attention between positions on different devices."""
        again, once = "microbatches*layers*runs", "microbatches*layers"
        both = "keys, values and gradients"
        match self.layout.context:
            case "zigzag" | "ring":
                hops = "(cp - 1)*"
                yield self.send("keys and values", "permute", "cp", KEYS, hops + again, "layer")
                yield self.send(both, "permute", "cp", f"2*{KEYS}", hops + once, "layer")
            case "gather":
                # Nothing that is gathered for the forward pass is kept for the backward pass.
                yield self.send("keys and values", "all_gather", "cp", KEYS, f"2*{once}")
                gradients = "gradients of keys and values"
                yield self.send(gradients, "reduce_scatter", "cp", f"{KEYS}*cp", once)
            case "ulysses":
                enter = KEYS.replace("key_width", "(query_width + copies*key_width)")
                leave = KEYS.replace("key_width", "value_width")
                times = f"{once}*(runs + 1)"
                yield self.send("queries, keys and values", "all_to_all", "cp", enter, times)
                yield self.send("attended values", "all_to_all", "cp", leave, times)

    def _pipeline(self, scatter_gather: bool) -> Iterator[Message]:
        """What an inner stage sends: activations to the next stage, gradients to the one before."""
        parts = self.layout.sequence_parallel or scatter_gather
        x = f"{X}/tp" if parts else X
        yield self.send("stage outputs", "permute", "pp", x, _CROSSINGS, "forward")
        yield self.send("gradients of stage inputs", "permute", "pp", x, _CROSSINGS, "backward")
        if scatter_gather and not self.layout.sequence_parallel:
            yield self.send("what stages get", "all_gather", "tp", x, f"2*{_CROSSINGS}")
        if self.architecture.tied:
            # The first and the last stage exchange their gradients of the table.
            table, once = "table_parameters*gradient_bytes", "where(pp > 1, 1, 0)"
            yield self.send("gradient of tied table", "permute", "pp", table, once, None, "ends")


def _widths(a: Architecture, layout: Layout) -> dict[str, Any]:
    """Elements of a position: of the stream, and on a device of its queries, keys and values.

    With fewer heads of keys than devices of cp, Ulysses sends each to several of them as "copies".
    """
    heads = a.heads / layout.tp
    key_heads = heads if a.latent else np.maximum(a.key_heads / layout.tp, 1)
    return {
        "hidden": a.hidden,
        "query_width": heads * a.d_key,
        "key_width": key_heads * (a.d_key + a.d_value),
        "value_width": heads * a.d_value,
        "copies": np.maximum(layout.cp / key_heads, 1),
        "per_token": a.experts.per_token if a.experts else 0,
        "key_heads": a.key_heads,
    }
