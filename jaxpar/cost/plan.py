"""One way to train a model on a cluster, and what it costs."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jaxpar.cost.fits import RESERVE
from jaxpar.cost.flops import mfu, step_flops
from jaxpar.cost.goodput import Failures
from jaxpar.cost.layout import AXES, Layout
from jaxpar.cost.memory import host_memory, training_memory
from jaxpar.cost.messages import Message
from jaxpar.cost.search import Job
from jaxpar.cost.step import peak_flops, step_terms
from jaxpar.cost.terms import Term, total
from jaxpar.cost.traffic import step_traffic

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
        """Bytes in the memory of the host, of each device."""
        return host_memory(self.job.architecture, self.layout)

    @cached_property
    def time(self) -> list[Term]:
        """Seconds of a step."""
        return time_terms(self.job, self.layout, self.overlap)

    @property
    def microbatches(self) -> int:
        """How many of them each pipeline takes in a step."""
        return self.job.batch // (self.layout.batch_parts * self.layout.microbatch)

    @property
    def step_seconds(self) -> float:
        """The time of a step."""
        return float(total(self.time))

    @property
    def memory_bytes(self) -> float:
        """On the fullest device."""
        return float(total(self.memory))

    @cached_property
    def messages(self) -> list[Message]:
        """The collectives of a step."""
        job = self.job
        return step_traffic(job.architecture, self.layout, batch=job.batch, sequence=job.sequence)

    @property
    def sent_bytes(self) -> float:
        """What a device sends in a step."""
        return float(sum(message.sent_bytes(self.layout) for message in self.messages))

    @property
    def tight(self) -> bool:
        """Whether it needs what is kept in reserve."""
        return self.memory_bytes > (1 - RESERVE) * self.job.cluster.device.memory_bytes

    @property
    def fits(self) -> bool:
        """Whether it needs no more than a device and its host have."""
        capacity = self.job.cluster.device.memory_bytes
        return self.memory_bytes <= capacity and bool(fits_host(self.job, self.layout))

    @property
    def mfu(self) -> float:
        """The share of all devices' peak that the model's own arithmetic takes."""
        flops = step_flops(self.job.architecture, self.job.batch, self.job.sequence)
        peak = peak_flops(self.job.cluster.device)
        return float(mfu(flops, self.step_seconds, self.job.devices, peak))


def memory_terms(job: Job, layout: Layout) -> list[Term]:
    """Bytes on the fullest device; of many layouts at once, if its sizes are arrays."""
    return training_memory(job.architecture, layout, sequence=job.sequence, batch=job.batch)


def time_terms(job: Job, layout: Layout, overlap: bool) -> list[Term]:
    """Seconds of a step; of many layouts at once, if its sizes are arrays."""
    sizes = {"batch": job.batch, "sequence": job.sequence}
    return step_terms(job.architecture, layout, job.cluster, **sizes, overlap=overlap)


def fits_host(job: Job, layout: Layout) -> Any:
    """Whether what is offloaded fits the memory of the hosts."""
    if layout.offload == "none":
        return True
    return total(host_memory(job.architecture, layout)) <= job.cluster.host_bytes


def pick(layout: Layout, rows: Any) -> Layout:
    """Some of many layouts, or one."""
    sizes = {name: getattr(layout, name)[rows] for name in SIZES}
    if isinstance(rows, int):
        sizes = {name: size.item() for name, size in sizes.items()}
    return replace(layout, **sizes)


def show_gb(number: float) -> str:
    """Bytes in GB, 1e9; less than one in MB, 1e6."""
    return f"{number / GB:,.1f} GB" if number >= GB else f"{number / 1e6:,.1f} MB"
