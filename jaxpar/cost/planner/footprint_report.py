"""The answer to what a model takes: as lines for people, and as data for JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.hardware import Cluster
from jaxpar.cost.inference import rule_of_thumb
from jaxpar.cost.planner.footprint import (
    MOST_DEVICES,
    Footprint,
    Inference,
    Training,
    nearest_that_fits,
    whole_bytes,
)
from jaxpar.cost.planner.plan import RESERVE, show_gb
from jaxpar.cost.planner.report import term_lines
from jaxpar.cost.terms import Term, show_number
from jaxpar.layout import describe

GIB = 2**30
OPTIMIZERS = {"adamw": "Adam", "adam8bit": "Adam in 8 bits", "sgd": "SGD"}


@dataclass(frozen=True)
class Answer:
    """What a footprint comes to, by our own formulas or by another tool's.

    Attributes:
        footprint: what was asked about.
        terms: what a device of the fullest stage holds.
        host: what such a device keeps in the memory of its host; by another tool, what all devices
            of a node keep there.
        cluster: where it should fit, or None.
        tool: the other tool, if it is the answer of one.
        counted: what that tool counts, in words.
    """

    footprint: Footprint
    terms: list[Term]
    host: list[Term]
    cluster: Cluster | None = None
    tool: str = ""
    counted: str = ""

    @property
    def memory_bytes(self) -> int:
        """Bytes on a device of the fullest stage."""
        return sum(whole_bytes(self.terms).values())

    @property
    def host_bytes(self) -> int:
        """Bytes in the memory of the host."""
        return sum(whole_bytes(self.host).values())

    @property
    def fits(self) -> bool:
        """Whether it fits the device, and its part of the host's memory."""
        if not self.cluster:
            return True
        hosted_devices = self.cluster.devices_per_node if self.tool else 1
        return (
            self.memory_bytes <= self.cluster.device.memory_bytes
            and self.host_bytes <= hosted_devices * self.cluster.host_bytes
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON: bytes are whole numbers, of one device."""
        layout, model = self.footprint.layout, self.footprint.model
        terms = whole_bytes(self.terms)
        if isinstance(self.footprint, Training) and not self.tool:
            # What waits in the host, or is not known, is there with 0.
            states = ("parameters", "gradients", "optimizer", "activations")
            terms = dict.fromkeys(states, 0) | terms
        data = {
            "memory_bytes": self.memory_bytes,
            "terms": terms,
            "parameters": round(_count(model)),
            "devices": layout.devices,
            "mesh": {axis: n for axis, n in layout.sizes.items() if n > 1},
        }
        if self.host:
            data |= {"host_bytes": self.host_bytes, "host_terms": whole_bytes(self.host)}
        if self.tool:
            data["estimator"] = self.tool
        if self.cluster:
            data |= {"hardware": self.cluster.name, "fits": self.fits}
            data["device_bytes"] = round(self.cluster.device.memory_bytes)
            if not self.fits and not self.tool:
                data["nearest"] = " ".join(self._advice()) or None
        return data

    def head(self) -> list[str]:
        """The question: the model, and how it is spread."""
        footprint, layout = self.footprint, self.footprint.layout
        model, trained = footprint.model, isinstance(footprint, Training)
        purpose = ", for inference"
        if isinstance(footprint, Training):
            purpose = f", trained with {OPTIMIZERS[footprint.optimizer]}"
            if footprint.adapter_rank:
                bits = f" of {footprint.base_bits} bits" if footprint.base_bits else ""
                purpose = f"{bits}, with LoRA of rank {footprint.adapter_rank}{purpose}"
        what = f"{show_number(_count(model))} parameters"
        spread = f"mesh {layout.mesh}, ZeRO {layout.zero}" if trained else f"mesh {layout.mesh}"
        if isinstance(model, Architecture):
            what = f"{model.name}, {what}"
            spread = describe(layout) if trained else spread
            spread += f"; {footprint.sequence:,} tokens in an example"
            spread += "" if trained else f", {footprint.batch:,} at once"
        what += purpose
        if isinstance(footprint, Training) and not self.tool:
            what += f" in mixed precision, gradients in {footprint.gradient_bytes} bytes"
        lines = [what, f"{layout.devices:,} device{'s' * (layout.devices > 1)}: {spread}"]
        return [*lines, f"As {self.tool} counts {self.counted}"] if self.tool else lines

    def lines(self) -> Iterator[str]:
        """The whole answer: every term with its formula and its numbers."""
        yield from self.head()
        held = self.memory_bytes
        yield ""
        yield f"Memory of a device: {show_gb(held)} (a GB is 1e9 bytes), {held / GIB:,.2f} GiB"
        yield from term_lines(self.terms, show_gb)
        yield ""
        yield from self.notes()

    def notes(self) -> Iterator[str]:
        """Sentences under the table: the host, a rule of thumb, and whether it fits."""
        footprint = self.footprint
        if self.host:
            whose = "the host of a node" if self.tool else "its host, for each device"
            yield f"In the memory of {whose}: {show_gb(self.host_bytes)}"
        model = footprint.model
        if isinstance(footprint, Inference) and isinstance(model, Architecture) and not self.tool:
            thumb = rule_of_thumb(model.parameters, weight_bits=footprint.weight_bits)
            everything = show_gb(sum(whole_bytes(thumb).values()))
            yield f"Rule of thumb: 1.2 times the weights, {everything}, over all devices of a copy"
        if self.cluster:
            yield from self._verdict(self.cluster)

    def _verdict(self, cluster: Cluster) -> Iterator[str]:
        capacity = cluster.device.memory_bytes
        left = capacity - self.memory_bytes
        where = f"{cluster.name} has {show_gb(capacity)} on a device"
        if self.fits:
            yield f"{where}: it fits, {show_gb(left)} are left"
            if left < RESERVE * capacity:
                yield (
                    f"Tight: the runtime, buffers and fragmentation take about {RESERVE:.0%} of a "
                    "device, too"
                )
            return
        if left < 0:
            yield f"{where}: it does not fit, {show_gb(-left)} are missing"
        else:
            yield f"{where}: it fits there, but its host has too little memory"
        if not self.tool:
            yield f"Nearest that fits: {' '.join(self._advice()) or _none_found(self.footprint)}"

    def _advice(self) -> list[str]:
        """Options of the nearest that fits, where they differ."""
        assert self.cluster, "nothing to fit on"
        near = nearest_that_fits(self.footprint, self.cluster)
        if near is None:
            return []
        before, after = _options(self.footprint), _options(near)
        changed = [after[name] for name in after if after[name] != before[name]]
        return [option for option in changed if option]


def _options(footprint: Footprint) -> dict[str, str]:
    """A footprint as options of the command line."""
    layout = footprint.layout
    options = {"devices": f"--devices {layout.devices}", "mesh": f"--mesh {layout.mesh}"}
    if isinstance(footprint, Training):
        options |= {
            name: f"--{name} {getattr(layout, name)}"
            for name in ("microbatch", "zero", "remat", "offload")
        }
        options["sequence_parallel"] = "--sequence-parallel" if layout.sequence_parallel else ""
    else:
        options["weight_bits"] = f"--weight-bits {footprint.weight_bits}"
        options["cache_bits"] = f"--cache-bits {footprint.cache_bits}"
    return options | {"batch": f"--batch {footprint.batch}"}


def _none_found(footprint: Footprint) -> str:
    """What is left to try where no variant fits."""
    trained, known = isinstance(footprint, Training), isinstance(footprint.model, Architecture)
    if not (trained or known):
        return "none on one device; give a model, which can be spread"
    more = f"; try a shorter --sequence{', or cp' if trained else ''}" if known else ""
    return f"not found up to {MOST_DEVICES:,} devices{more}"


def _count(model: Architecture | float) -> float:
    return model.parameters if isinstance(model, Architecture) else model
