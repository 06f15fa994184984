"""Accelerators and clusters: what they compute, hold and send in a second."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxpar.cost.communication import Link


@dataclass(frozen=True)
class Accelerator:
    """One device.

    Attributes:
        name: what people call it.
        peak_flops: by dtype ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"), in a second, dense.
        memory_bytes: its memory.
        memory_bytes_per_second: how fast it is read.
        sources: by the name of a figure, where that is from.
    """

    name: str
    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bytes_per_second: float
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Efficiency:
    """What programs reach of a kind of hardware, fitted once for all published runs on it."""


@dataclass(frozen=True)
class Cluster:
    """Nodes of devices.

    Attributes:
        name: what people call it.
        device: each device.
        devices_per_node: devices joined by the fast link.
        inside: a device's link to others of its node, one direction.
        between: a device's share of its node's link to other nodes, one direction.
        host: a device's link to the memory of its host, one direction.
        host_bytes: a device's share of the memory of its host.
        efficiency: what programs reach.
    """

    name: str
    device: Accelerator
    devices_per_node: int
    inside: Link
    between: Link
    host: Link
    host_bytes: float
    efficiency: Efficiency
