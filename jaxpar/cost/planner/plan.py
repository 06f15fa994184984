"""One way to train a model on a cluster, and what it costs."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jaxpar.cost.flops import mfu, step_flops
from jaxpar.cost.goodput import Failures
from jaxpar.cost.memory import host_memory, training_memory
from jaxpar.cost.planner.candidates import Job
from jaxpar.cost.step import peak_flops, step_terms
from jaxpar.cost.terms import Term, total
from jaxpar.cost.traffic import Message, step_traffic
from jaxpar.layout import AXES, Layout

# The part of a device's memory that is kept for the runtime, for buffers of collectives and for
# fragmentation: 27 measured rows of BLOOM's trials took 7 to 15 GB of 80 more than the terms of
# `training_memory` (bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md).
RESERVE = 0.1
GB = 1e9
SIZES = (*AXES, "chunks", "microbatch")


@dataclass(frozen=True)
class Plan:
    """A layout, and what it costs.

    Attributes:
        job: what is trained, and where.
        layout: how it is spread.
        failures: what failures and checkpoints cost.
        overlap: whether what can run beside computation is counted as hidden.
        advice: what would fit, if this does not.
    """

    job: Job
    layout: Layout
    failures: Failures
    overlap: bool = False
    advice: str = ""

    @cached_property
    def memory(self) -> list[Term]:
        """Bytes on the fullest device."""
        return memory_terms(self.job, self.layout)

    @cached_property
    def host(self) -> list[Term]:
        """Bytes in the memory of the host, for each device."""
        return host_memory(self.job.architecture, self.layout, each=self.job.each)

    @cached_property
    def time(self) -> list[Term]:
        """Seconds of a step."""
        return time_terms(self.job, self.layout, self.overlap)

    @property
    def microbatches(self) -> int:
        """How many microbatches each pipeline takes in a step."""
        return self.layout.microbatches(self.job.batch)

    @property
    def step_seconds(self) -> float:
        """The seconds that a step takes."""
        return float(total(self.time))

    @property
    def memory_bytes(self) -> float:
        """Bytes on the fullest device, in all."""
        return float(total(self.memory))

    @cached_property
    def messages(self) -> list[Message]:
        """The collectives of a step."""
        job, batch, sequence = self.job, self.job.batch, self.job.sequence
        return step_traffic(
            job.architecture, self.layout, batch=batch, sequence=sequence, each=job.each
        )

    @property
    def sent_bytes(self) -> float:
        """Bytes that a device sends in a step."""
        return float(sum(message.sent_bytes(self.layout) for message in self.messages))

    @property
    def tight(self) -> bool:
        """Whether it needs memory that is kept in reserve."""
        return self.memory_bytes > (1 - RESERVE) * self.job.cluster.device.memory_bytes

    @property
    def fits(self) -> bool:
        """Whether it needs no more than a device and its host have."""
        capacity = self.job.cluster.device.memory_bytes
        return self.memory_bytes <= capacity and bool(fits_host(self.job, self.layout))

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: the model's own arithmetic over the peak of all devices."""
        job, frozen = self.job, self.job.each.trained != 1
        flops = step_flops(job.architecture, job.batch, job.sequence, frozen=frozen)
        return float(mfu(flops, self.step_seconds, job.devices, peak_flops(job.cluster.device)))


def memory_terms(job: Job, layout: Layout) -> list[Term]:
    """Bytes on the fullest device; of many layouts at once, if the sizes are arrays."""
    sizes = {"batch": job.batch, "sequence": job.sequence}
    return training_memory(job.architecture, layout, **sizes, each=job.each)


def time_terms(job: Job, layout: Layout, overlap: bool) -> list[Term]:
    """Seconds of a step; of many layouts at once, if the sizes are arrays."""
    return step_terms(
        job.architecture,
        layout,
        job.cluster,
        batch=job.batch,
        sequence=job.sequence,
        overlap=overlap,
        each=job.each,
    )


def fits_host(job: Job, layout: Layout) -> Any:
    """Whether what is offloaded fits the memory of the hosts."""
    if layout.offload == "none":
        return True
    return total(host_memory(job.architecture, layout, each=job.each)) <= job.cluster.host_bytes


def pick(layout: Layout, rows: Any) -> Layout:
    """Picks these rows of an array of layouts; a single row is one plain layout."""
    sizes = {name: getattr(layout, name)[rows] for name in SIZES}
    if isinstance(rows, int):
        sizes = {name: size.item() for name, size in sizes.items()}
    return replace(layout, **sizes)


def show_gb(number: float) -> str:
    """Bytes as text: in GB (1e9), or in MB (1e6) if it is less than 1 GB."""
    return f"{number / GB:,.1f} GB" if number >= GB else f"{number / 1e6:,.1f} MB"
