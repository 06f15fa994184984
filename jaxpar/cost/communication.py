"""What collectives send, and how long that takes on links of known latency and bandwidth.

The latency-bandwidth model, also called alpha-beta: a message of s bytes takes
`latency_seconds + s / bytes_per_second`. A device sends one message at a time (two at a time on a
two-way ring), all devices send at once, and arithmetic is free.

Everywhere n is the number of devices. Operand bytes are what one device gives in: the shard of an
all-gather, the whole array of an all-reduce or a reduce-scatter. n and the bytes may be numpy
arrays, except in recursive doubling.

Sources: Thakur, Rabenseifner and Gropp 2005, Optimization of Collective Communication Operations
in MPICH, sections 3 and 4; Chan, Heimlich, Purkayastha and van de Geijn 2007, Collective
communication: theory, practice, and experience; NVIDIA/nccl-tests, doc/PERFORMANCE.md, where wire
bytes over the bytes of the full tensor are the bus factor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast"]
Number = int | float


def wire_bytes(kind: Kind, operand_bytes: Number, n: int) -> Number:
    """Bytes that one device sends by a ring algorithm.

    For a permute, these are the bytes through the busiest device, sent or received. The result is
    an int if `operand_bytes` is one and the division leaves no rest. Both arguments may be arrays.

    Math: all_reduce 2(n-1)/n of the operand, reduce_scatter and all_to_all (n-1)/n, all_gather
        n-1 times the operand, permute and broadcast the operand.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md
    """
    if kind == "all_gather":
        return (n - 1) * operand_bytes
    if kind in ("permute", "broadcast"):
        return operand_bytes
    times_n = (2 if kind == "all_reduce" else 1) * (n - 1) * operand_bytes
    exact = isinstance(times_n, int) and times_n % n == 0
    return times_n // n if exact else times_n / n


@dataclass(frozen=True)
class Link:
    """The link between two devices.

    Attributes:
        latency_seconds: the time of a message, however small (alpha).
        bytes_per_second: its bandwidth in one direction (1 / beta).
    """

    latency_seconds: Number
    bytes_per_second: Number


@dataclass(frozen=True)
class Cost:
    """What an algorithm asks of the busiest device.

    Attributes:
        steps: messages that wait for one another.
        wire_bytes: the bytes that the device sends or receives; what it sends while it receives
            as much counts once.
        serial_bytes: those that follow one another: about half if it sends both ways at once.
    """

    steps: Any
    wire_bytes: Any
    serial_bytes: Any

    def seconds(self, link: Link) -> Any:
        """The time of the algorithm: steps * latency + serial bytes / bandwidth."""
        return self.steps * link.latency_seconds + self.serial_bytes / link.bytes_per_second


def ring_all_gather(operand_bytes: Number, n: int) -> Cost:
    """n-1 steps, in each the shard of one device (Thakur et al., section 4.1)."""
    return _one_way(n - 1, wire_bytes("all_gather", operand_bytes, n))


def two_way_ring_all_gather(operand_bytes: Number, n: int) -> Cost:
    """Both directions at once: the bytes of one direction, in ceil((n-1)/2) steps."""
    steps = n // 2
    return Cost(steps, wire_bytes("all_gather", operand_bytes, n), steps * operand_bytes)


def ring_reduce_scatter(operand_bytes: Number, n: int) -> Cost:
    """n-1 steps, in each one of n chunks (Chan et al., bucket algorithm)."""
    return _one_way(n - 1, wire_bytes("reduce_scatter", operand_bytes, n))


def ring_all_reduce(operand_bytes: Number, n: int) -> Cost:
    """A ring reduce-scatter, then a ring all-gather of the chunks: 2(n-1) steps."""
    return _one_way(2 * (n - 1), wire_bytes("all_reduce", operand_bytes, n))


def pairwise_all_to_all(operand_bytes: Number, n: int) -> Cost:
    """n-1 steps, in each the chunk for one other device (Thakur et al., section 4.3)."""
    return _one_way(n - 1, wire_bytes("all_to_all", operand_bytes, n))


def tree_broadcast(operand_bytes: Number, n: int) -> Cost:
    """ceil(log2 n) steps, and the root sends all in each (Thakur et al., section 4.2)."""
    steps = _ceil_log2(n)
    return _one_way(steps, steps * operand_bytes)


def tree_reduce(operand_bytes: Number, n: int) -> Cost:
    """The tree broadcast, backwards: the root receives all in each step, the others send once."""
    return tree_broadcast(operand_bytes, n)


def tree_all_reduce(operand_bytes: Number, n: int) -> Cost:
    """A tree reduce, then a tree broadcast: 2 ceil(log2 n) steps (Chan et al., short vectors)."""
    steps = 2 * _ceil_log2(n)
    return _one_way(steps, steps * operand_bytes)


def recursive_doubling_all_gather(operand_bytes: Number, n: int) -> Cost:
    """log2 n steps of 1, 2, 4, ... shards: n-1 in all (Thakur et al., section 4.1).

    Raises:
        ValueError: n is not a power of two.
    """
    steps = _log2("recursive_doubling_all_gather", n)
    return _one_way(steps, wire_bytes("all_gather", operand_bytes, n))


def recursive_doubling_all_reduce(operand_bytes: Number, n: int) -> Cost:
    """log2 n steps, in each the whole array (Thakur et al., section 4.5).

    Raises:
        ValueError: n is not a power of two.
    """
    steps = _log2("recursive_doubling_all_reduce", n)
    return _one_way(steps, steps * operand_bytes)


def hierarchical_all_reduce(operand_bytes: Number, n_inner: int, n_outer: int) -> tuple[Cost, Cost]:
    """The cost on the inner links, and that on the outer links; their times add up.

    A ring reduce-scatter inside the node, a ring all-reduce of 1/n_inner of the array between
    nodes, a ring all-gather inside the node.

    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)
    """
    inner = ring_all_reduce(operand_bytes, n_inner)
    return inner, ring_all_reduce(operand_bytes / n_inner, n_outer)


def all_reduce_seconds(
    num_bytes: float, n: int, *, latency_seconds: float, bytes_per_second: float
) -> float:
    """The time of an all-reduce of `num_bytes` on each of n devices, by a ring.

    A reduce-scatter, then an all-gather, each of n-1 steps; a message of s bytes takes
    `latency_seconds + s / bytes_per_second`, and all devices send at once, in one direction.

    Source: Thakur, Rabenseifner and Gropp 2005, section 4.5

    Raises:
        ValueError: n is below 1, the bandwidth not above 0, or bytes or the latency negative.
    """
    link = (latency_seconds, bytes_per_second)
    _check_all_reduce("all_reduce_seconds", num_bytes, {"n": n}, {"": link})
    return ring_all_reduce(num_bytes, n).seconds(Link(*link))


def hierarchical_all_reduce_seconds(
    num_bytes: float,
    *,
    inner: int,
    outer: int,
    inner_link: tuple[float, float],
    outer_link: tuple[float, float],
) -> float:
    """The time of an all-reduce of `num_bytes` on each of `outer` nodes of `inner` devices.

    A ring reduce-scatter inside each node; a ring all-reduce between nodes, of each device's part
    with those that hold the same part; a ring all-gather inside each node. A link is
    (latency_seconds, bytes_per_second), both of one device: all devices of a node send at once.

    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)

    Raises:
        ValueError: a size is below 1, a bandwidth not above 0, or bytes or a latency negative.
    """
    sizes = {"inner": inner, "outer": outer}
    links = {"inner_": inner_link, "outer_": outer_link}
    _check_all_reduce("hierarchical_all_reduce_seconds", num_bytes, sizes, links)
    inside, between = hierarchical_all_reduce(num_bytes, inner, outer)
    return inside.seconds(Link(*inner_link)) + between.seconds(Link(*outer_link))


def crossover_bytes(
    few_steps: Callable[[Number, int], Cost],
    few_bytes: Callable[[Number, int], Cost],
    n: int,
    link: Link,
) -> float:
    """The operand bytes at which two algorithms take the same time; below, fewer steps win.

    Math: with k steps and g serial bytes for each operand byte, k1 a + g1 s/b = k2 a + g2 s/b, so
        s = a b (k2 - k1) / (g1 - g2), where a is the latency and b the bandwidth.
    """
    first, second = few_steps(1.0, n), few_bytes(1.0, n)
    more_steps = second.steps - first.steps
    more_bytes = first.serial_bytes - second.serial_bytes
    return link.latency_seconds * link.bytes_per_second * more_steps / more_bytes


def _one_way(steps: int, sent: Number) -> Cost:
    return Cost(steps, sent, sent)


def _check_all_reduce(
    where: str,
    num_bytes: Number,
    sizes: Mapping[str, int],
    links: Mapping[str, tuple[Number, Number]],
) -> None:
    """Raises a ValueError if a size, the bytes or a link are impossible."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{where}: {name} = {size}; it must be 1 or more; a device alone is 1")
    numbers = {"num_bytes": num_bytes}
    for name, (latency, bandwidth) in links.items():
        numbers[f"{name}latency_seconds"] = latency
        if not bandwidth > 0:
            raise ValueError(
                f"{where}: {name}bytes_per_second = {bandwidth}; it must be above 0; give one "
                "direction of the link"
            )
    for name, number in numbers.items():
        if not number >= 0:
            raise ValueError(f"{where}: {name} = {number}; it must be 0 or more; use 0 for none")


def _ceil_log2(n: int) -> int:
    # The exponent that frexp gives is the bit length, and it takes arrays.
    return (n - 1).bit_length() if isinstance(n, int) else np.frexp(n - 1)[1]


def _log2(where: str, n: int) -> int:
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise ValueError(
            f"{where}: n = {n}; it must be a power of two; use {below} or {2 * below}, or a ring"
        )
    return n.bit_length() - 1
