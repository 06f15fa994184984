"""The seconds that an all-reduce round a ring takes."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import ETHERNET, NDR, NVLINK, Link, log_uniform, random_link
from jaxpar.cost.communication import all_reduce_seconds


def _all_reduces(rng: np.random.Generator) -> list[Call]:
    """Few bytes and many, on links of all kinds, on one device; then what is refused."""

    def call(num_bytes: float, n: int, link: Link) -> Call:
        return (num_bytes, n), {"latency_seconds": link[0], "bytes_per_second": link[1]}

    calls = [call(1000, 4, (1, 100)), call(1000, 2, (0, 100)), call(1000, 1, (1, 100))]
    calls += [call(4096, 8, NVLINK), call(2 * 4096 * 65536, 8, NVLINK), call(1e9, 3, ETHERNET)]
    calls += [call(1e9, 1, NDR), call(0, 5, NDR), call(3 * 10**8, 6, (0.0, 25e9))]
    for _ in range(8):
        calls.append(
            call(int(log_uniform(rng, 1, 1e11)), int(log_uniform(rng, 2, 5e3)), random_link(rng))
        )
    refused = [call(8, 0, (1, 100)), call(8, -2, NDR), call(-8, 2, NDR), call(8, 2, (1e-6, 0))]
    refused += [call(8, 2, link) for link in ((-1e-6, 1e9), (1e-6, -1e9))]
    return [*calls, *refused, call(8, 1, (1e-6, 0))]


CONTRACT = Contract(
    kind="value",
    task="return the seconds of a ring all-reduce: steps, the bytes of each, and the link's time",
    reference=all_reduce_seconds,
    oracle=all_reduce_seconds,
    values=_all_reduces,
    hints=(
        "How many steps has a ring reduce-scatter, and how many an all-gather? How many bytes "
        "does a device send in each?",
        "n - 1 steps for each of the two, and in each step one of n parts: num_bytes / n.",
        "2 * (n - 1) * (latency_seconds + num_bytes / n / bytes_per_second); first raise "
        "ValueError where n < 1, bytes_per_second <= 0, or another number is below 0.",
    ),
    minimal="Each element must travel 2(n - 1) times, and the n devices share that (lesson 03).",
    harder="Write it for a tree. Below how many bytes is it faster, for n of your choice?",
)


@wrong("values")
def seconds_of_one_pass(num_bytes: float, n: int, **link: float) -> float:
    """This is half of it: a reduce-scatter alone, or an all-gather; both together are an
    all-reduce, with 2(n - 1) steps."""
    return all_reduce_seconds(num_bytes, n, **link) / 2


def _ring(
    num_bytes: float, n: int, link: dict[str, float], *, steps: float, sent_bytes: float
) -> float:
    """The seconds of so many steps one after the other, in which a device sends so many bytes."""
    all_reduce_seconds(num_bytes, n, **link)  # raises where it must
    return steps * link["latency_seconds"] + sent_bytes / link["bytes_per_second"]


@wrong("values")
def seconds_whole_each_step(num_bytes: float, n: int, **link: float) -> float:
    """A device sends num_bytes in each step, as if the array were n times as large; it sends one of
    n parts, num_bytes / n."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=2 * (n - 1) * num_bytes)


@wrong("values")
def seconds_a_step_for_each(num_bytes: float, n: int, **link: float) -> float:
    """There are 2n steps; a ring all-reduce has 2(n - 1)."""
    return _ring(num_bytes, n, link, steps=2 * n, sent_bytes=2 * num_bytes)


@wrong("values")
def seconds_own_part_sent(num_bytes: float, n: int, **link: float) -> float:
    """The bytes are 2 * num_bytes in all; there are n - 1 steps in each pass, so a device sends 2(n
    - 1)/n times num_bytes."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=2 * num_bytes)


def _sent_bytes(num_bytes: float, n: int) -> float:
    """What a device really sends in all steps."""
    return 2 * (n - 1) / n * num_bytes


@wrong("values")
def seconds_one_latency(num_bytes: float, n: int, **link: float) -> float:
    """There is one latency in all; each of the 2(n - 1) steps has one."""
    return _ring(num_bytes, n, link, steps=1, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_no_latency(num_bytes: float, n: int, **link: float) -> float:
    """The latency is left out; each of the 2(n - 1) steps has one."""
    return _ring(num_bytes, n, link, steps=0, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_latency_of_one_pass(num_bytes: float, n: int, **link: float) -> float:
    """There are n - 1 latencies; both passes have so many, so count 2(n - 1)."""
    return _ring(num_bytes, n, link, steps=n - 1, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_both_directions(num_bytes: float, n: int, **link: float) -> float:
    """The bytes take half their time: both passes have n - 1 steps, and a ring sends one way round,
    so take `bytes_per_second` as it is."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=_sent_bytes(num_bytes, n) / 2)


@wrong("values")
def seconds_of_a_tree(num_bytes: float, n: int, **link: float) -> float:
    """This is a tree, with 2 log2 n steps; write the ring, with 2(n - 1)."""
    all_reduce_seconds(num_bytes, n, **link)
    steps = 2 * (n - 1).bit_length()
    return _ring(num_bytes, n, link, steps=steps, sent_bytes=steps * num_bytes)


@wrong("values")
def seconds_in_bits(num_bytes: float, n: int, **link: float) -> float:
    """The bytes are multiplied by 8; the bandwidth is in bytes, too."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=8 * _sent_bytes(num_bytes, n))


@wrong("values")
def seconds_taken_for_bits(num_bytes: float, n: int, **link: float) -> float:
    """The bytes are divided by 8; they are bytes already, as the bandwidth is."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=_sent_bytes(num_bytes, n) / 8)


@wrong("values")
def seconds_gib_over_gb(num_bytes: float, n: int, **link: float) -> float:
    """The bytes are in GiB and the bandwidth in GB; use bytes for both."""
    return _ring(
        num_bytes, n, link, steps=2 * (n - 1), sent_bytes=_sent_bytes(num_bytes, n) * 1e9 / 2**30
    )


@wrong("values")
def seconds_in_milliseconds(num_bytes: float, n: int, **link: float) -> float:
    """The result is in milliseconds; return seconds."""
    return 1e3 * all_reduce_seconds(num_bytes, n, **link)


@wrong("values")
def seconds_nothing_refused(num_bytes: float, n: int, **link: float) -> float:
    """n below 1, a bandwidth not above 0, and negative bytes or latency must raise ValueError."""
    return 2 * (n - 1) * (link["latency_seconds"] + num_bytes / n / link["bytes_per_second"])


@wrong("values")
def seconds_alone_is_refused(num_bytes: float, n: int, **link: float) -> float:
    """One device alone is no error; it has nothing to send: 0 seconds."""
    if n == 1:
        raise ValueError("all_reduce_seconds: one device")
    return all_reduce_seconds(num_bytes, n, **link)
