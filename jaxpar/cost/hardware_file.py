"""A cluster as the text of a TOML file, which `find_cluster` reads."""

import json
from collections.abc import Mapping

from jaxpar.cost.communication import Link
from jaxpar.cost.hardware import Cluster


def hardware_text(cluster: Cluster, comments: Mapping[str, str]) -> str:
    """The file of a cluster, with a comment above each of the tables that `comments` names.

    The comment of "" stands above all. Each device has a link between nodes of its own.
    """
    device, reached = cluster.device, cluster.efficiency
    tables: dict[str, dict[str, str | float]] = {
        "": {
            "devices_per_node": cluster.devices_per_node,
            "links_per_node": cluster.devices_per_node,
            "host_bytes": cluster.host_bytes,
        },
        "device": {
            "label": device.name,
            "memory_bytes": device.memory_bytes,
            "memory_bytes_per_second": device.memory_bytes_per_second,
        },
        "device.peak_flops": dict(device.peak_flops),
        "device.efficiency": {
            name: value
            for name, value in vars(reached).items()
            if name != "kind" and value is not None
        },
        "inside": _link(cluster.inside),
        "between": _link(cluster.between),
        "host": _link(cluster.host),
    }
    return "\n".join(
        _table(name, values, comments.get(name, "")) for name, values in tables.items()
    )


def _table(name: str, values: Mapping[str, str | float], comment: str) -> str:
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"[{name}]"] if name else []
    # Strings and numbers of JSON are those of TOML.
    lines += [f"{key} = {json.dumps(_rounded(value))}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _rounded(value: str | float) -> str | float:
    """A number as precise as measurements are: with four digits."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _link(link: Link) -> dict[str, str | float]:
    return {
        "latency_seconds": float(link.latency_seconds),
        "bytes_per_second": float(link.bytes_per_second),
    }
