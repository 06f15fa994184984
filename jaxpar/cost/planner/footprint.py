"""What a model takes on each device, for training or inference, and what would make it fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from jaxpar.cost.adapters import adapter_states
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.hardware import Cluster
from jaxpar.cost.inference import inference_memory, rule_of_thumb
from jaxpar.cost.layout import KNOWN_REMATS, check_layout, remats
from jaxpar.cost.memory import host_memory, training_memory
from jaxpar.cost.terms import Term, make_term
from jaxpar.cost.zero import MIXED, States
from jaxpar.layout import OFFLOAD_KINDS, ZERO_STAGES, Layout

MOST_DEVICES = 1 << 14


@dataclass(frozen=True)
class Training:
    """A model that is trained in mixed precision.

    Attributes:
        model: its sizes; or its number of parameters, of which the states alone are known.
        layout: how it is spread.
        sequence: positions of an example.
        batch: examples in a step, over all devices; None: enough to fill the pipeline.
        optimizer: one of `jaxpar.cost.zero.MIXED`.
        gradient_bytes: of a gradient, where gradients are added up and sent.
        adapter_rank: of adapters, which alone are trained; 0: there are none.
        base_bits: of the matrices beside adapters; None: 16.
    """

    model: Architecture | float
    layout: Layout
    sequence: int
    batch: int | None = None
    optimizer: str = "adamw"
    gradient_bytes: int = 2
    adapter_rank: int = 0
    base_bits: int | None = None

    def check(self, where: str) -> None:
        """Raises ValueError if the model cannot be spread so."""
        layout, model = self.layout, self.model
        if isinstance(model, Architecture):
            check_layout(where, model, layout, self.sequence)
            _check_positions(where, model, self.sequence)
        elif layout.ep * layout.cp * layout.chunks > 1:
            raise ValueError(
                f"{where}: {layout.mesh}, chunks {layout.chunks}, of a number of parameters; their "
                "states are spread over pp, dp, fsdp and tp; give a model"
            )
        if layout.fsdp > 1 and layout.zero != 3:
            raise ValueError(
                f"{where}: mesh {layout.mesh} with --zero {layout.zero}; over fsdp everything is "
                "sharded; use --zero 3, or dp in place of fsdp"
            )
        if layout.sequence_parallel and self.sequence % (layout.cp * layout.tp):
            raise ValueError(
                f"{where}: --sequence-parallel, of {self.sequence:,} positions over cp * tp = "
                f"{layout.cp * layout.tp}; it must divide them; leave it out"
            )
        parts = layout.batch_parts * layout.microbatch
        if self.batch is not None and self.batch % parts:
            near = max(round(self.batch / parts), 1) * parts
            raise ValueError(
                f"{where}: batch {self.batch:,}; microbatch * dp * fsdp * ep, {parts:,} here, must "
                f"divide it; use a batch of {near:,}"
            )

    def terms(self) -> list[Term]:
        """What a device of the fullest stage holds."""
        if isinstance(self.model, Architecture):
            sizes = {"sequence": self.sequence, "batch": self.batch}
            return training_memory(self.model, self.layout, **sizes, each=self._each)
        return [
            term for term in self._states() if term.name not in OFFLOAD_KINDS[self.layout.offload]
        ]

    def host_terms(self) -> list[Term]:
        """What such a device has in the memory of its host."""
        if isinstance(self.model, Architecture):
            return host_memory(self.model, self.layout, each=self._each)
        on_host = OFFLOAD_KINDS[self.layout.offload]
        return [term for term in self._states() if term.name in on_host]

    @property
    def _each(self) -> States:
        each = replace(MIXED[self.optimizer], gradients=self.gradient_bytes)
        if not self.adapter_rank or not isinstance(self.model, Architecture):
            return each
        return adapter_states(self.model, each, rank=self.adapter_rank, base_bits=self.base_bits)

    def _states(self) -> Iterator[Term]:
        """The states of training of a number of parameters, which tp and pp split evenly."""
        layout, each = self.layout, self._each
        numbers = {"parameters": self.model, "tp": layout.tp, "pp": layout.pp}
        numbers["shards"] = layout.state_shards
        split = " / (tp * pp)" if layout.tp * layout.pp > 1 else ""
        for name, size, stage in (
            ("parameters", each.params, 3),
            ("gradients", each.gradients, 2),
            ("optimizer", each.optimizer, 1),
        ):
            shards = " / shards" if layout.zero >= stage else ""
            yield make_term(name, f"{size} * parameters{split}{shards}", numbers)

    def lighter(self) -> Iterator["Training"]:
        """Variants on as many devices that may take less memory, those with fewest changes first.

        The first one is this footprint itself. Offloading more to the host comes last.
        """
        layout = self.layout
        parts = layout.dp * layout.fsdp * layout.ep * layout.cp
        choices: dict[str, Sequence[Any]] = {
            "zero": ZERO_STAGES[layout.zero :] if parts > 1 else (layout.zero,)
        }
        if isinstance(self.model, Architecture):
            choices["sequence_parallel"] = (layout.sequence_parallel, layout.tp > 1)
            later = KNOWN_REMATS[KNOWN_REMATS.index(layout.remat) + 1 :]
            choices["remat"] = (layout.remat, *(it for it in remats(self.model) if it in later))
            halves = range(layout.microbatch.bit_length())
            smaller = (layout.microbatch >> half for half in halves)
            choices["microbatch"] = [n for n in smaller if layout.microbatch % n == 0]
        offloads = tuple(OFFLOAD_KINDS)
        choices["offload"] = offloads[offloads.index(layout.offload) :]
        steps = [list(dict.fromkeys(values)) for values in choices.values()]
        ways = sorted(
            product(*(range(len(values)) for values in steps)),
            key=lambda way: (way[-1], sum(map(bool, way)), sum(way)),
        )
        for way in ways:
            chosen = (values[index] for values, index in zip(steps, way, strict=True))
            yield replace(self, layout=replace(layout, **dict(zip(choices, chosen, strict=True))))

    def larger(self) -> Iterator["Training"]:
        """Variants on more and more devices, which split the batch rather than layers."""
        axis = "fsdp" if self.layout.fsdp > 1 else "dp"
        if isinstance(self.model, Architecture) and self.model.experts:
            axis = "ep"
        for layout in _larger(self.layout, (axis, "tp", "pp")):
            copies = layout.batch_parts // self.layout.batch_parts
            yield replace(self, layout=layout, batch=self.batch and self.batch * copies)


@dataclass(frozen=True)
class Inference:
    """A model that is not trained.

    Attributes:
        model: its sizes; or its number of parameters, where a rule of thumb must do.
        layout: how it is spread: over tp, pp and dp, which holds copies.
        sequence: positions of an example, prompt and answer.
        batch: examples that each copy holds.
        weight_bits: of a parameter.
        cache_bits: of an element of the cache of keys and values.
        group: how many parameters have a scale; None: there are no scales.
    """

    model: Architecture | float
    layout: Layout
    sequence: int
    batch: int = 1
    weight_bits: int = 16
    cache_bits: int = 16
    group: int | None = None

    def check(self, where: str) -> None:
        """Raises ValueError if the model cannot be spread so."""
        layout = self.layout
        if layout.ep * layout.cp * layout.fsdp > 1:
            raise ValueError(
                f"{where}: mesh {layout.mesh} for inference; it is spread over pp, dp (copies) and "
                f"tp; use tp={layout.devices // (layout.pp * layout.dp)} in place of the others"
            )
        if isinstance(self.model, Architecture):
            check_layout(where, self.model, layout, self.sequence)
            _check_positions(where, self.model, self.sequence)
        elif layout.pp * layout.tp > 1:
            raise ValueError(
                f"{where}: mesh {layout.mesh} for a number of parameters; the rule of thumb is for "
                "all devices together; give a model"
            )

    def terms(self) -> list[Term]:
        """What a device of the fullest stage holds."""
        if not isinstance(self.model, Architecture):
            return rule_of_thumb(self.model, weight_bits=self.weight_bits)
        return inference_memory(
            self.model,
            batch=self.batch,
            sequence=self.sequence,
            tp=self.layout.tp,
            pp=self.layout.pp,
            weight_bits=self.weight_bits,
            cache_bits=self.cache_bits,
            group=self.group,
        )

    def host_terms(self) -> list[Term]:
        """What such a device has in the memory of its host."""
        return []

    def lighter(self) -> Iterator["Inference"]:
        """Variants on as many devices that may take less memory; this one itself is the first."""
        yield self
        for bits in (n for n in (8, 4) if n < self.weight_bits):
            yield replace(self, weight_bits=bits)
        for bits in (n for n in (8, 4) if n < self.cache_bits):
            yield replace(self, cache_bits=bits)
        batch = self.batch
        while batch > 1:
            batch //= 2
            yield replace(self, batch=batch)
        for bits in (n for n in (8, 4) if n < self.weight_bits):
            yield replace(self, weight_bits=bits, cache_bits=min(bits, self.cache_bits), batch=1)

    def larger(self) -> Iterator["Inference"]:
        """Variants on more and more devices."""
        if isinstance(self.model, Architecture):
            for layout in _larger(self.layout, ("tp", "pp")):
                yield replace(self, layout=layout)


Footprint = Training | Inference


def whole_bytes(terms: list[Term]) -> dict[str, int]:
    """Bytes of each term, to the next whole one."""
    return {term.name: round(float(term.value)) for term in terms}


def fits(footprint: Footprint, cluster: Cluster) -> bool:
    """Whether it fits the device, and the part of the host's memory that each device may use."""
    held, hosted = (
        sum(whole_bytes(terms).values()) for terms in (footprint.terms(), footprint.host_terms())
    )
    return held <= cluster.device.memory_bytes and hosted <= cluster.host_bytes


def nearest_that_fits(footprint: Footprint, cluster: Cluster) -> Footprint | None:
    """The variant that fits with fewest changes, on as many devices or else on few more; or None.

    More devices are tried without more offload first, and then with it. Tensor parallelism stays
    inside a node.
    """
    offload = footprint.layout.offload
    most = max(cluster.devices_per_node, footprint.layout.tp)
    larger = [one for one in footprint.larger() if one.layout.tp <= most and _works(one)]
    ways = [(footprint, True), *((one, False) for one in larger), *((one, True) for one in larger)]
    for wider, may_offload in ways:
        every = [one for one in wider.lighter() if may_offload or one.layout.offload == offload]
        leanest = {one.layout.offload: one for one in every}  # the last of each
        if any(fits(one, cluster) for one in leanest.values()):
            for one in every:
                if fits(one, cluster) and _works(one):
                    return one
    return None


def _larger(layout: Layout, axes: tuple[str, ...]) -> Iterator[Layout]:
    """Layouts on twice, four times as many devices and so on, growing the first axes first."""
    doublings = (MOST_DEVICES // layout.devices).bit_length()
    ways = product(range(doublings), repeat=len(axes))
    for way in sorted(ways, key=lambda way: (sum(way), way[::-1])):
        if 0 < sum(way) < doublings:
            sizes = {axis: getattr(layout, axis) << n for axis, n in zip(axes, way, strict=True)}
            yield replace(layout, **sizes)


def _works(footprint: Footprint) -> bool:
    try:
        footprint.check("")
    except ValueError:
        return False
    return True


def _check_positions(where: str, model: Architecture, sequence: int) -> None:
    if model.positions and sequence > model.positions:
        raise ValueError(
            f"{where}: --sequence {sequence:,}; {model.name} has a table of {model.positions:,} "
            f"positions; use {model.positions:,} at most"
        )
