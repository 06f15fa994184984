"""How long a collective over mesh axes takes, on the links that join the devices of these axes.

Devices are numbered with the innermost axis fastest, and fill nodes in that order. The devices of a
group of an axis are then inside a node, on different nodes, or both: `inner` devices on each of
`outer` nodes. In the last case a collective has two levels. An all-reduce, for example, is a
reduce-scatter inside each node, then an all-reduce of each device's part between nodes, and then an
all-gather inside each node. Messages are cut into pieces, so that both levels are busy at once: the
time is that of the slower level, plus the latencies of both.

All devices of a node use its network cards at once, so each has an equal part of them. A node of
eight H100 has eight cards of 50 GB/s. If a group has all eight devices of each of its nodes, its
collectives leave a node at 400 GB/s. If it has one device on each node, as data parallelism has
where tensor parallelism fills the nodes, it has one card, 50 GB/s, and the node's eight groups send
at the same time. `flat_ring_seconds` is for the ring that knows no nodes, to compare.

Between nodes an all-reduce takes a ring or a tree, whichever is faster.

On a torus of TPUs an axis takes as many rings as it needs, and uses both directions of each. All
slices are assumed to have closed rings, although the smallest ones do not.

Sources: Cho, Finkler, Kung and Hunter 2019 (BlueConnect); jax-ml/scaling-book, gpus.md
(https://jax-ml.github.io/scaling-book/gpus, cross-node collectives) and sharding.md; NVIDIA/nccl,
src/graph/tuning.cc, which chooses a ring or a tree by such an estimate.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal

import numpy as np

from jaxpar.cost.communication import (
    Cost,
    Kind,
    Link,
    pairwise_all_to_all,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
    tree_broadcast,
    wire_bytes,
)
from jaxpar.cost.hardware import Cluster
from jaxpar.layout import AXES, Layout

_ALGORITHMS: Mapping[Kind, Callable[[Any, Any], Cost]] = {
    "all_reduce": ring_all_reduce,
    "reduce_scatter": ring_reduce_scatter,
    "all_gather": ring_all_gather,
    "all_to_all": pairwise_all_to_all,
    "broadcast": tree_broadcast,
}


def collective_seconds(
    kind: Kind, operand_bytes: Any, layout: Layout, axis: str | tuple[str, ...], cluster: Cluster
) -> Any:
    """The time of one collective over one mesh axis, or over several as if they were one.

    `operand_bytes` is what one device gives in; a permute sends it to a neighbour on the axis. The
    links reach their whole bandwidth. Bytes and the sizes of `layout` may be numpy arrays.

    Math: steps inside * latency + steps between * latency + the larger of bytes / bandwidth
    """
    inner, outer = levels(layout, axis, cluster)
    inside, between = _costs(kind, 1.0 * operand_bytes, inner, outer, cluster)
    latency = (
        inside.steps * cluster.inside.latency_seconds
        + between.steps * cluster.between.latency_seconds
    )
    return latency + np.maximum(
        inside.serial_bytes / cluster.inside.bytes_per_second,
        between.serial_bytes / cluster.between.bytes_per_second,
    )


def flat_ring_seconds(
    kind: Literal["all_reduce", "reduce_scatter", "all_gather"],
    operand_bytes: Any,
    layout: Layout,
    axis: str | tuple[str, ...],
    cluster: Cluster,
) -> Any:
    """The time of one collective over a mesh axis by rings over all its devices.

    Such rings know no nodes. There are as many of them as a node has devices of the group, and each
    takes an equal part of the bytes. A ring visits one node after the other, and it leaves a node
    from another device than the other rings do, so by another network card. All cards of a node
    together therefore send what a device sends round a single ring. A device sends on its link
    inside the node what it does not send by its card. Arguments are those of `collective_seconds`;
    nodes have switches.

    Math: with k devices of the group on each of m nodes, n = k m, and w the wire bytes of a ring:
        steps * latency + w * max((k-1)/k / inside, 1 / (k * between)); of the n-1 steps of a pass
        m-1 are between nodes; on one node, w / inside
    Source: NVIDIA/nccl, src/graph/tuning.cc (ring: bandwidth of all channels, steps inside and
        between nodes); jax-ml/scaling-book, gpus.md, cross-node collectives
    """
    inner, outer = levels(layout, axis, cluster)
    n = inner * outer
    passes = 2 if kind == "all_reduce" else 1
    latency = passes * (
        (n - outer) * cluster.inside.latency_seconds + (outer - 1) * cluster.between.latency_seconds
    )
    stays = np.where(outer > 1, (inner - 1) / inner, 1)
    leaves = np.where(outer > 1, 1 / inner, 0)
    sent = wire_bytes(kind, 1.0 * operand_bytes, n)
    return latency + sent * np.maximum(
        stays / cluster.inside.bytes_per_second, leaves / cluster.between.bytes_per_second
    )


def levels(layout: Layout, axis: str | tuple[str, ...], cluster: Cluster) -> tuple[Any, Any]:
    """How many devices of a group are on a node, and on how many nodes the group is.

    Devices are spread evenly over nodes, with as many on each as this allows: 64 of an NVL72's 72
    where there are 128. Where some groups are on more nodes than others, those on most count.
    """
    per_node = _per_node(layout.devices, cluster.devices_per_node)
    inner, outer = 1, 1
    for name in (axis,) if isinstance(axis, str) else axis:
        size = getattr(layout, name)
        stride = prod(getattr(layout, its) for its in AXES[AXES.index(name) + 1 :])
        together = np.where(per_node % stride == 0, np.gcd(size, per_node // stride), 1)
        inner, outer = inner * together, outer * (size // together)
    return inner, outer


def _per_node(devices: Any, most: int) -> Any:
    """The most devices that nodes can have, if all have equally many."""
    counts, which = np.unique(devices, return_inverse=True)
    largest = [next(k for k in range(min(n, most), 0, -1) if n % k == 0) for n in counts.tolist()]
    return np.array(largest)[which].reshape(np.shape(devices))


def _costs(
    kind: Kind, operand_bytes: Any, inner: Any, outer: Any, cluster: Cluster
) -> tuple[Cost, Cost]:
    """The cost on the links inside nodes, and that on the links between them."""
    if kind == "permute":  # the slowest pair counts
        beside, away = (outer == 1) & (inner > 1), outer > 1
        return _message(beside, operand_bytes), _message(away, operand_bytes)
    # A reduction begins inside nodes, an all-gather between them, so that least crosses between.
    given_inside, given_between = operand_bytes, operand_bytes
    if kind == "all_gather":
        given_inside = operand_bytes * outer
    elif kind in ("all_reduce", "reduce_scatter"):
        given_between = operand_bytes / inner
    if cluster.torus:
        inside = _on_torus(kind, given_inside, inner, cluster.torus)
    else:
        inside = _ALGORITHMS[kind](given_inside, inner)
    between = _ALGORITHMS[kind](given_between, outer)
    if kind == "all_reduce":
        between = _faster(between, tree_all_reduce(given_between, outer), cluster.between)
    return inside, between


def _message(sent: Any, operand_bytes: Any) -> Cost:
    return Cost(1 * sent, sent * operand_bytes, sent * operand_bytes)


def _faster(one: Cost, other: Cost, link: Link) -> Cost:
    first = one.seconds(link) <= other.seconds(link)
    return Cost(
        np.where(first, one.steps, other.steps),
        np.where(first, one.wire_bytes, other.wire_bytes),
        np.where(first, one.serial_bytes, other.serial_bytes),
    )


def _on_torus(kind: Kind, operand_bytes: Any, n: Any, torus: tuple[int, ...]) -> Cost:
    """The cost on a torus: parts of the bytes go over all rings at once, in both directions.

    Math: with r rings of n^(1/r) devices, steps r n^(1/r) / 2 for each pass; bytes 1/(2r) of a
        ring's; of an all-to-all n^(1/r) / 8, as a chunk goes a quarter of the way round each ring
    Source: jax-ml/scaling-book, sharding.md
    """
    rings = 1 + sum(n > prod(torus[:full]) for full in range(1, len(torus)))
    length = n ** (1 / rings)
    passes = 2 if kind == "all_reduce" else 1
    sent = wire_bytes(kind, operand_bytes, n)
    serial = operand_bytes * length / 8 if kind == "all_to_all" else sent / (2 * rings)
    several = n > 1
    return Cost(several * passes * rings * length / 2, several * sent, several * serial)
