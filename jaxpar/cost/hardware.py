"""Accelerators and clusters: what they compute, hold and send in a second.

The figures are in hardware.toml, each with its source. A file of your own has the form of a cluster
there. It may name accelerators, links and efficiencies of hardware.toml, or give their figures.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any

from jaxpar.cost.communication import Link

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")


@dataclass(frozen=True)
class Accelerator:
    """One device.

    Attributes:
        name: what people call it.
        peak_flops: by dtype ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"), in a second, dense.
        memory_bytes: its memory.
        memory_bytes_per_second: how fast it is read.
    """

    name: str
    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bytes_per_second: float


@dataclass(frozen=True)
class Efficiency:
    """The fractions of its peaks that programs reach on a kind of hardware.

    Attributes:
        kind: the kind of hardware, such as "ampere".
        products: the fraction of the peak that matrix products reach; the presets' is fitted to
            published runs.
        memory: the fraction of the memory's bandwidth that all else reaches.
        links: the fraction of the bandwidth inside a node that collectives reach.
        network: the same between nodes.
        overlap: the fraction of communication beside computation that takes no time of its own.
        attention: the fraction of the peak that fused attention reaches, where a causal kernel
            counts as if it computed every score; None means that of products.
        eager_layer_seconds: how long a host takes to launch the kernels of one layer's forward and
            backward pass, one by one from Python.
    """

    kind: str
    products: float
    memory: float
    links: float
    network: float
    overlap: float
    attention: float | None = None
    eager_layer_seconds: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Nodes of devices.

    Attributes:
        name: the common name of the cluster.
        device: the kind of accelerator that all devices are.
        devices_per_node: how many devices the fast link joins.
        inside: a device's link to others of its node, one direction.
        between: a device's part of its node's link to other nodes, one direction.
        host: a device's link to the memory of its host, one direction.
        host_bytes: a device's part of the memory of its host.
        efficiency: the fractions of these figures that programs reach.
        torus: devices on each ring of a node of TPUs, where `inside` is the link to one of two
            neighbours on one ring; empty where a switch joins any two devices.
        eager: whether Python launches each kernel; else the step is one compiled program.
    """

    name: str
    device: Accelerator
    devices_per_node: int
    inside: Link
    between: Link
    host: Link
    host_bytes: float
    efficiency: Efficiency
    torus: tuple[int, ...] = ()
    eager: bool = False


def find_cluster(name_or_path: str) -> Cluster:
    """The cluster of this name ("h100", "A100"), or of a TOML file ("lab.toml").

    The name of an accelerator stands for the node and the network that it usually comes with.

    Raises:
        ValueError: there is no such cluster (says which names are near), or the file has a key
            missing, unknown or wrong.
    """
    word = _letters(name_or_path)
    for key, table in _presets()["clusters"].items():
        if word in map(_letters, (key, *table.get("aliases", ()))):
            return _cluster(_Table(f"hardware.toml, [clusters.{key}]", table), key)
    path = Path(name_or_path)
    if path.suffix != ".toml" and not os.path.isfile(path):
        near = _near(name_or_path.lower(), _presets()["clusters"])
        raise ValueError(
            f"hardware {name_or_path!r} is unknown; {near}or a TOML file with figures of your own"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    return _cluster(_Table(str(path), table), path.stem)


def find_device(kind: str) -> Accelerator | None:
    """The accelerator that JAX gives this `device_kind`; None: there are no figures of it."""
    for key, table in _presets()["accelerators"].items():
        if kind in table["device_kinds"]:
            return _accelerator(_Table(f"hardware.toml, [accelerators.{key}]", table))
    return None


class _Table:
    """A table of a TOML file, in which keys that are missing, wrong or never read are errors."""

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise ValueError(f"{where}: {values!r} is no table; write key = value lines")
        self.where, self.values, self.read = where, values, set[str]()

    def get(self, key: str, kinds: type | tuple[type, ...], what: str, default: Any = None) -> Any:
        self.read.add(key)
        value = self.values.get(key, default)
        if value is None:
            raise ValueError(f"{self.where}: {key} is missing; give {what}")
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise self.wrong(key, what)
        return value

    def number(self, key: str, what: str, least: float, most: float = 1e24) -> float:
        value = self.get(key, (int, float), what)
        if not least <= value <= most:
            raise self.wrong(key, what)
        return float(value)

    def count(self, key: str, what: str) -> int:
        value = self.get(key, int, what)
        if value < 1:
            raise self.wrong(key, what)
        return value

    def wrong(self, key: str, what: str) -> ValueError:
        return ValueError(f"{self.where}: {key} = {self.values[key]!r}; it must be {what}")

    def named(self, key: str, section: str) -> "_Table":
        """The preset of `section` that the key names, or the table that it holds."""
        what = f"the name of one of the {section}, or a table"
        value = self.get(key, (str, dict), what)
        if isinstance(value, dict):
            return _Table(f"{self.where}, {key}", value)
        presets = _presets()[section]
        if value not in presets:
            raise ValueError(
                f"{self.where}: {key} = {value!r} is unknown; {_near(value, presets)}or a table"
            )
        return _Table(f"hardware.toml, [{section}.{value}]", presets[value])

    def done(self) -> None:
        """Raises ValueError if there are keys that nothing has read."""
        for key in self.values.keys() - self.read:
            raise ValueError(f"{self.where}: there is no key {key!r}; {_near(key, self.read)}")


def _cluster(table: _Table, name: str) -> Cluster:
    device = table.named("device", "accelerators")
    per_node = table.count("devices_per_node", "a whole number of 1 or more")
    torus = tuple(table.get("torus", list, "a list of sizes", default=[]))
    if torus and not (all(type(n) is int and n > 1 for n in torus) and prod(torus) == per_node):
        raise table.wrong("torus", f"sizes above 1 whose product is devices_per_node = {per_node}")
    links = [table.named(key, "links") for key in ("inside", "between", "host")]
    inside, between, host = map(_link, links)
    links_each = table.count("links_per_node", "how many links `between` a node has") / per_node
    table.get("aliases", list, "a list of names", default=[])
    cluster = Cluster(
        name=name,
        device=_accelerator(device),
        devices_per_node=per_node,
        inside=inside,
        between=Link(between.latency_seconds, links_each * between.bytes_per_second),
        host=host,
        host_bytes=table.number("host_bytes", "bytes, as 64e9", 0),
        efficiency=_efficiency(table if "efficiency" in table.values else device),
        torus=torus,
    )
    table.get("source", str, "a text", default="")
    table.done()
    return cluster


def _accelerator(table: _Table) -> Accelerator:
    peaks = _Table(f"{table.where}, peak_flops", table.get("peak_flops", dict, "a table by dtype"))
    rate = "operations in a second, dense, as 312e12"
    accelerator = Accelerator(
        name=table.get("label", str, "a name"),
        peak_flops={key: peaks.number(key, rate, 1e9) for key in DTYPES if key in peaks.values},
        memory_bytes=table.number("memory_bytes", "bytes, as 24e9", 1e6),
        memory_bytes_per_second=table.number("memory_bytes_per_second", "as 1008e9", 1e6),
    )
    table.get("sources", dict, "a table of texts", default={})
    table.get("device_kinds", list, "a list of names", default=[])
    peaks.read.update(DTYPES)
    peaks.done()
    if not {"bf16", "fp16"} & peaks.values.keys():
        raise ValueError(f"{peaks.where}: bf16 or fp16 is missing; give one, {rate}")
    _efficiency(table)
    table.done()
    return accelerator


def _link(table: _Table) -> Link:
    link = Link(
        latency_seconds=table.number("latency_seconds", "seconds, as 5e-6", 0, 1),
        bytes_per_second=table.number("bytes_per_second", "of one direction, as 31.5e9", 1e3),
    )
    for key in ("label", "source"):
        table.get(key, str, "a text", default="")
    table.done()
    return link


def _efficiency(device: _Table) -> Efficiency:
    table = device.named("efficiency", "efficiency")
    name = device.values["efficiency"]
    fractions = ["products", "memory", "links", "network", "overlap"]
    fractions += ["attention"] * ("attention" in table.values)
    reached = {key: table.number(key, "a fraction, as 0.7", 0.01, 1) for key in fractions}
    if "eager_layer_seconds" in table.values:
        key = "eager_layer_seconds"
        reached[key] = table.number(key, "seconds, as 4.5e-3", 0, 1)
    table.done()
    return Efficiency(kind=name if isinstance(name, str) else "its own", **reached)


@cache
def _presets() -> Mapping[str, Mapping[str, Any]]:
    text = files("jaxpar.cost").joinpath("hardware.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _letters(name: str) -> str:
    """Letters and digits of a name: equal for "RTX 4090", "rtx-4090" and "rtx4090"."""
    return "".join(filter(str.isalnum, name.lower()))


def _near(word: str, allowed: Iterable[str]) -> str:
    """The beginning of a hint: the allowed words that are nearest to `word`, and all of them."""
    allowed = sorted(allowed)
    close = get_close_matches(word, allowed, n=3, cutoff=0.5)
    nearest = f"nearest: {', '.join(close)}; " if close else ""
    return f"{nearest}use one of {', '.join(allowed)}, "
