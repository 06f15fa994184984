"""What training holds on a device: each term with its formula and its numbers.

Arrays that are freed before the next product is computed are not counted, and neither is the memory
that allocators, kernels and communication libraries need for themselves.

Sources: Rajbhandari et al. 2020, ZeRO, section 3; Korthikanti et al. 2022, Reducing Activation
Recomputation in Large Transformer Models, sections 4 and 5; Narayanan et al. 2021, Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, section 2.2.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from jaxpar.cost.architecture import Architecture, Part
from jaxpar.cost.kept import layer_arrays, outer_arrays
from jaxpar.cost.layout import check_formulas
from jaxpar.cost.shards import FIRST, part_on_device
from jaxpar.cost.terms import Term, make_term, total
from jaxpar.cost.zero import ADAM_MIXED, States
from jaxpar.layout import OFFLOAD_KINDS, Layout


def training_memory(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    batch: Any = None,
    each: States = ADAM_MIXED,
) -> list[Term]:
    """Bytes on a device of the fullest stage; terms that are 0 are left out.

    "parameters", "gradients" and "optimizer" are the device's shards of the states of training,
    except for those that wait on the host. "gathered" are the layers that are temporarily held in
    full, and "decoded" is the one that is held as numbers where parameters have fewer bits.
    "activations" is what the layers keep of all microbatches in flight, "recomputed" what the
    one layer keeps that is being recomputed, "context" the keys and values of all positions in one
    layer with their gradients, where they are gathered over cp, "outside" what is kept before and
    after the layers, and "logits" are those of one microbatch with their gradient, in float32.

    `batch` is the number of examples in a step, over all devices; None means enough to fill the
    pipeline. `each` gives the bytes for each parameter; an element of an activation has as many
    bytes as a parameter in a product.

    Raises:
        ValueError: the formulas do not know this kind of remat or of offload.
    """
    check_formulas("training_memory", architecture, layout)

    def held(stage: _Stage) -> list[Term]:
        on_host = OFFLOAD_KINDS[layout.offload]
        states = [term for term in stage.states(each) if term.name not in on_host]
        in_flight = microbatches_in_flight(layout, stage.index, batch)
        kept = stage.activations(sequence, in_flight, each.element_bytes)
        whole = stage.gathered(each), stage.decoded(each)
        return [term for term in (*states, *whole, *kept) if np.any(term.value)]

    return _fullest(held, architecture, layout)


def host_memory(
    architecture: Architecture, layout: Layout, *, each: States = ADAM_MIXED
) -> list[Term]:
    """Bytes that a device of the fullest stage keeps in the memory of its host."""
    on_host = OFFLOAD_KINDS[layout.offload]

    def held(stage: _Stage) -> list[Term]:
        return [term for term in stage.states(each) if term.name in on_host]

    return _fullest(held, architecture, layout)


def microbatches_in_flight(layout: Layout, stage: Any, batch: Any = None) -> Any:
    """How many microbatches a stage holds activations of at its fullest.

    The schedule is 1F1B; with several chunks it is the interleaved one, where a microbatch in one
    chunk counts as 1/chunks. Stages count from 0.

    Math: min(m, p - stage); interleaved min(m*v, 2(p - stage - 1) + (v - 1)p + 1)/v
    Source: Narayanan et al. 2021, sections 2.2.1 and 2.2.2; Megatron-LM,
        megatron/core/pipeline_parallel/schedules.py
    """
    p, v = layout.pp, layout.chunks
    m = np.inf if batch is None else batch / (layout.batch_parts * layout.microbatch)
    chunks = np.minimum(m * v, 2 * (p - stage - 1) + (v - 1) * p + 1)
    return np.where(v > 1, chunks / v, np.minimum(m, p - stage))[()]


def _fullest(
    held: Callable[["_Stage"], list[Term]], architecture: Architecture, layout: Layout
) -> list[Term]:
    """The terms of the stage that holds most; of many layouts, each layout's own."""
    last = layout.pp - 1
    # Stages in between have fewer microbatches in flight than the first, and no tables; but where
    # the first layers have no experts, the first stages may be the lighter ones.
    before = architecture.experts.dense_layers if architecture.experts else 0
    before = min(before, int(np.max(last)))
    stages = [*(np.minimum(index, last) for index in range(before + 1)), last]
    sums = np.broadcast_arrays(
        *(total(held(_Stage(architecture, layout, index))) for index in stages)
    )
    stages = [np.broadcast_to(index, sums[0].shape) for index in stages]
    most = np.argmax(sums, axis=0)[None]
    fullest = np.take_along_axis(np.stack(stages), most, axis=0)[0]
    return held(_Stage(architecture, layout, fullest[()]))


class _Kind(NamedTuple):
    """Layers of one kind on a device of a stage.

    Attributes:
        name: the prefix of names in formulas: "", or in a model with experts "dense_" or "expert_".
        count: the number of layers.
        parameters: the parameters of one layer, without experts.
        mixed: whether the layers have a mixture of experts.
        experts: the parameters of one layer's experts.
    """

    name: str
    count: Any
    parameters: Any
    mixed: bool = False
    experts: Any = 0


@dataclass(frozen=True)
class _Stage:
    """A stage of a pipeline, of which a device holds a part; the first has index 0."""

    architecture: Architecture
    layout: Layout
    index: Any

    def states(self, each: States) -> list[Term]:
        """The states of training."""
        zero = self.layout.zero
        return [
            self._state("parameters", each.params, sharded=zero >= 3),
            self._state("gradients", each.gradients, sharded=zero >= 2),
            self._state("optimizer", each.optimizer, sharded=zero >= 1),
        ]

    def gathered(self, each: States) -> Term:
        """Parameters and gradients that are sharded or on the host, but temporarily held in full.

        These are the parameters of a layer and of the next one, which is fetched meanwhile, and the
        gradients of a layer. Everything outside of the layers counts as one layer.
        """
        on_host = self.layout.offload == "all"
        elsewhere = on_host | np.greater(self.layout.state_shards, 1)
        experts_elsewhere = on_host | np.greater(self.layout.expert_shards, 1)
        layer = _largest(
            kind.parameters * elsewhere + kind.experts * experts_elsewhere for kind in self._kinds
        )
        whole = "0"
        if on_host or self.layout.zero >= 2:
            whole = "gradient_bytes * max(layer, outside)"
        if on_host or self.layout.zero >= 3:
            whole = f"parameter_bytes * (layer + max(layer, outside)) + {whole}"
        numbers = {"parameter_bytes": each.params, "gradient_bytes": each.gradients}
        numbers |= {"layer": layer, "outside": self._outside * elsewhere}
        return make_term("gathered", whole, numbers)

    def decoded(self, each: States) -> Term:
        """The parameters of a layer as the products use them, if they are stored in fewer bytes."""
        layer = _largest(kind.parameters + kind.experts for kind in self._kinds)
        fewer = each.computed is not None and each.params < each.computed
        numbers = {"layer": layer * fewer, "element_bytes": each.element_bytes}
        return make_term("decoded", "layer * element_bytes", numbers)

    def activations(self, sequence: int, in_flight: Any, element_bytes: int) -> Iterator[Term]:
        """What is kept for the gradient, and the logits."""
        layout, model = self.layout, self.architecture
        sizes = {"sequence": sequence, "element_bytes": element_bytes}

        def keeps(layout: Layout) -> list[Any]:
            """Bytes that a layer of each kind keeps of a microbatch."""
            arrays = partial(layer_arrays, model, layout, **sizes)
            return [total(arrays(experts=kind.mixed)) for kind in self._kinds]

        layers, numbers = [], {"in_flight": in_flight}
        for kind, bytes_each in zip(self._kinds, keeps(layout), strict=True):
            layers.append(f"{kind.name}layers * {kind.name}layer_bytes")
            numbers |= {f"{kind.name}layers": kind.count, f"{kind.name}layer_bytes": bytes_each}
        yield make_term("activations", f"in_flight * {_sum(layers)}", numbers)

        if layout.recomputes_products:
            numbers = {
                "layer_bytes": _largest(keeps(replace(layout, remat="selective"))),
                "input_bytes": _largest(keeps(layout)),
            }
            yield make_term("recomputed", "layer_bytes - input_bytes", numbers)

        if layout.context == "gather":
            yield self._gathered_keys(sequence, element_bytes)

        first, last = map(total, outer_arrays(model, layout, **sizes))
        numbers = {"in_flight": in_flight, "first_bytes": first * self._is_first}
        numbers["last_bytes"] = last * self._is_last
        yield make_term("outside", "in_flight * first_bytes + last_bytes", numbers)

        numbers = {"tokens": layout.microbatch * sequence / layout.cp, "tp": layout.tp}
        numbers["vocab"] = model.vocab * self._is_last
        yield make_term("logits", "(4 + 4) * tokens * vocab / tp", numbers)

    def _gathered_keys(self, sequence: int, element_bytes: int) -> Term:
        """The keys and values of all positions, and their gradients."""
        layout, model = self.layout, self.architecture
        key_heads = model.heads if model.latent else model.key_heads
        numbers = {
            "split": np.where(np.greater(layout.cp, 1), 1, 0)[()],
            "tokens": layout.microbatch * sequence,
            "key_heads": np.maximum(key_heads / layout.tp, 1),
            "both": model.d_key + model.d_value,
            "element_bytes": element_bytes,
        }
        formula = "split * 2 * tokens * key_heads * both * element_bytes"
        return make_term("context", formula, numbers)

    def _state(self, name: str, each_bytes: Any, *, sharded: bool) -> Term:
        layout, numbers = self.layout, {"each_bytes": each_bytes, "outside": self._outside}
        held, mixed = [], []
        for kind in self._kinds:
            held.append(f"{kind.name}layers * {kind.name}layer")
            numbers |= {f"{kind.name}layers": kind.count, f"{kind.name}layer": kind.parameters}
            if kind.mixed:
                mixed = ["expert_layers * experts"]
                numbers["experts"] = kind.experts
        held.append("outside")
        if sharded:
            numbers |= {"shards": layout.state_shards, "expert_shards": layout.expert_shards}
            held = [f"{_sum(held)} / shards"]
            mixed = [f"{experts} / expert_shards" for experts in mixed]
        return make_term(name, f"each_bytes * {_sum(held + mixed)}", numbers)

    @cached_property
    def _kinds(self) -> list[_Kind]:
        """The layers of this stage, by kind."""
        model = self.architecture
        dense = self._held(model.dense_layers)
        if not model.experts:
            return [_Kind("", dense, self._layer(experts=False))]
        mixed = self._held(model.layers) - dense
        experts = self._parameters(
            part for part in model.layer_parts(experts=True) if part.split == "ep"
        )
        kinds = [_Kind("expert_", mixed, self._layer(experts=True), True, experts)]
        if model.dense_layers:
            kinds.insert(0, _Kind("dense_", dense, self._layer(experts=False)))
        return kinds

    def _held(self, layers: int) -> Any:
        """How many of the model's first `layers` layers this stage has."""
        stages, chunks = self.layout.pp, self.layout.chunks
        in_chunk = np.ceil(self.architecture.layers / (stages * chunks))
        rounds, rest = np.divmod(layers, stages * in_chunk)
        return rounds * in_chunk + np.clip(rest - self.index * in_chunk, 0, in_chunk)

    def _layer(self, *, experts: bool) -> Any:
        """Parameters of a layer on this device, without those of experts."""
        parts = self.architecture.layer_parts(experts=experts)
        return self._parameters(part for part in parts if part.split != "ep")

    @cached_property
    def _outside(self) -> Any:
        """Parameters outside of the layers on this device; both end stages hold a tied table."""
        parts = self.architecture.outer_parts
        first = self._parameters(part for part in parts if part.name in FIRST)
        last = self._parameters(part for part in parts if part.name not in FIRST)
        if self.architecture.tied:
            table = self._parameters(part for part in parts if part.name == "embedding")
            last = last + table * ~self._is_first
        return first * self._is_first + last * self._is_last

    def _parameters(self, parts: Iterable[Part]) -> Any:
        return sum(part_on_device(part, self.architecture, self.layout) for part in parts)

    @property
    def _is_first(self) -> Any:
        return np.equal(self.index, 0)

    @property
    def _is_last(self) -> Any:
        return np.equal(self.index, self.layout.pp - 1)


def _largest(values: Iterable[Any]) -> Any:
    return reduce(np.maximum, values)


def _sum(formulas: list[str]) -> str:
    """The sum of formulas, in brackets if there are several."""
    return f"({' + '.join(formulas)})" if len(formulas) > 1 else formulas[0]
