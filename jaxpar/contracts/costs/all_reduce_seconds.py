"""The seconds that an all-reduce round a ring takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import ETHERNET, NDR, NVLINK, Link, log_spread, random_link
from jaxpar.cost.communication import all_reduce_seconds


def _all_reduces(rng: np.random.Generator) -> list[Call]:
    """Few bytes and many, on links of all kinds, on one device; then what is refused."""

    def call(num_bytes: float, n: int, link: Link) -> Call:
        return (num_bytes, n), {"latency_seconds": link[0], "bytes_per_second": link[1]}

    calls = [call(1000, 4, (1, 100)), call(1000, 2, (0, 100)), call(1000, 1, (1, 100))]
    calls += [call(4096, 8, NVLINK), call(2 * 4096 * 65536, 8, NVLINK), call(1e9, 3, ETHERNET)]
    calls += [call(1e9, 1, NDR), call(0, 5, NDR), call(3 * 10**8, 6, (0.0, 25e9))]
    # Less than a byte for each device, bytes that are no whole number, and more of everything than
    # there is today: no limit and no rounding is right.
    calls += [call(3, 16, NVLINK), call(0, 1, NDR), call(10.5, 4, (0.25, 0.5))]
    calls += [call(10**16, 300_000, (1e-6, 4e15)), call(7, 3, (1e-12, 9.5e14))]
    calls += [call(1000, 2, (600, 0.5))]
    for num_bytes, n in zip(log_spread(rng, 1, 1e12, 8), log_spread(rng, 2, 1e5, 8), strict=True):
        calls.append(call(int(num_bytes), int(n), random_link(rng)))
    refused = [call(8, 0, (1, 100)), call(8, -2, NDR), call(-8, 2, NDR), call(8, 2, (1e-6, 0))]
    refused += [call(8, 2, link) for link in ((-1e-6, 1e9), (1e-6, -1e9))]
    # What comes to 0 or to more, and what no message has to use.
    refused += [call(1e12, -2, NDR), call(-8, 2, (1e-6, -1e9)), call(1e12, 2, (-1e-6, 1e9))]
    refused += [call(8, 1, (1e-6, 0)), call(8, 1, (1e-6, -1e9)), call(8, 1, (-1e-6, 1e9))]
    refused += [call(-8, 1, NDR), call(0, 0, NDR), call(0, -1, NDR), call(0, 2, (1e-6, 0))]
    refused += [call(0, 2, (-1e-6, 1e9)), call(0, 2, (1e-6, -1e9)), call(-0.5, 4, NDR)]
    return [*calls, *refused]


CONTRACT = Contract(
    kind="value",
    task="return the seconds of a ring all-reduce, from its steps, the bytes of each, and the link",
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
    minimal="Each element must travel 2(n - 1) times in all, and the n devices divide that work "
    "between them (lesson 03).",
    harder="Write it for a tree. Below how many bytes is it faster, for n of your choice?",
)


@wrong("values")
def seconds_of_one_pass(num_bytes: float, n: int, **link: float) -> float:
    """You count only a reduce-scatter, or only an all-gather; an all-reduce is both, one after the
    other, with 2(n - 1) steps."""
    return all_reduce_seconds(num_bytes, n, **link) / 2


def _ring(
    num_bytes: float, n: int, link: dict[str, float], *, steps: float, sent_bytes: float
) -> float:
    """The seconds of `steps` steps, in which a device sends `sent_bytes` in all."""
    all_reduce_seconds(num_bytes, n, **link)  # raises where it must
    return steps * link["latency_seconds"] + sent_bytes / link["bytes_per_second"]


@wrong("values")
def seconds_whole_each_step(num_bytes: float, n: int, **link: float) -> float:
    """You let a device send all num_bytes in each step; it sends one of n parts, num_bytes / n."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=2 * (n - 1) * num_bytes)


@wrong("values")
def seconds_a_step_for_each(num_bytes: float, n: int, **link: float) -> float:
    """You count 2n steps; a ring all-reduce has 2(n - 1)."""
    return _ring(num_bytes, n, link, steps=2 * n, sent_bytes=2 * num_bytes)


@wrong("values")
def seconds_own_part_sent(num_bytes: float, n: int, **link: float) -> float:
    """You let a device send 2 * num_bytes in all; each of the two passes has n - 1 steps, so a
    device sends 2(n - 1)/n times num_bytes."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=2 * num_bytes)


def _sent_bytes(num_bytes: float, n: int) -> float:
    """What a device really sends in all steps."""
    return 2 * (n - 1) / n * num_bytes


def _in_whole_bytes(num_bytes: float, n: int, link: dict[str, float], whole: Callable) -> float:
    all_reduce_seconds(num_bytes, n, **link)  # raises where it must
    return all_reduce_seconds(n * whole(num_bytes / n), n, **link)


@wrong("values")
def seconds_parts_rounded_down(num_bytes: float, n: int, **link: float) -> float:
    """You round a part down to whole bytes; a message has num_bytes / n bytes, so use / in place of
    //."""
    return _in_whole_bytes(num_bytes, n, link, math.floor)


@wrong("values")
def seconds_parts_rounded_up(num_bytes: float, n: int, **link: float) -> float:
    """You round a part up to whole bytes; a message has num_bytes / n bytes, whole or not."""
    return _in_whole_bytes(num_bytes, n, link, math.ceil)


@wrong("values")
def seconds_one_latency(num_bytes: float, n: int, **link: float) -> float:
    """You count the latency once; each of the 2(n - 1) steps has one."""
    return _ring(num_bytes, n, link, steps=1, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_latency_of_each_pass(num_bytes: float, n: int, **link: float) -> float:
    """You count one latency for each of the two passes; each of the n - 1 steps of a pass has
    one."""
    steps = 2 if n > 1 else 0
    return _ring(num_bytes, n, link, steps=steps, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_latency_of_each_pass_alone(num_bytes: float, n: int, **link: float) -> float:
    """You count one latency for each of the two passes, also where a device is alone and sends
    nothing; each of the n - 1 steps of a pass has one."""
    return _ring(num_bytes, n, link, steps=2, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_no_latency(num_bytes: float, n: int, **link: float) -> float:
    """You leave the latency out; each of the 2(n - 1) steps has one."""
    return _ring(num_bytes, n, link, steps=0, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_latency_of_one_pass(num_bytes: float, n: int, **link: float) -> float:
    """You count n - 1 latencies; each of the two passes has n - 1 steps, so count 2(n - 1)."""
    return _ring(num_bytes, n, link, steps=n - 1, sent_bytes=_sent_bytes(num_bytes, n))


@wrong("values")
def seconds_both_directions(num_bytes: float, n: int, **link: float) -> float:
    """Sending the bytes takes half as long as it should; both passes have n - 1 steps, and a ring
    sends one way round, so use `bytes_per_second` as it is."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=_sent_bytes(num_bytes, n) / 2)


@wrong("values")
def seconds_of_a_tree(num_bytes: float, n: int, **link: float) -> float:
    """These are the seconds of a tree, with 2 log2 n steps; a ring has 2(n - 1)."""
    all_reduce_seconds(num_bytes, n, **link)
    steps = 2 * (n - 1).bit_length()
    return _ring(num_bytes, n, link, steps=steps, sent_bytes=steps * num_bytes)


@wrong("values")
def seconds_in_bits(num_bytes: float, n: int, **link: float) -> float:
    """You multiply the bytes by 8; the bandwidth is in bytes, too."""
    return _ring(num_bytes, n, link, steps=2 * (n - 1), sent_bytes=8 * _sent_bytes(num_bytes, n))


@wrong("values")
def seconds_taken_for_bits(num_bytes: float, n: int, **link: float) -> float:
    """You divide the bytes by 8; they are bytes already, and so is the bandwidth."""
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
    """Raise ValueError where n is below 1, the bandwidth is not above 0, or the bytes or the
    latency are negative."""
    return 2 * (n - 1) * (link["latency_seconds"] + num_bytes / n / link["bytes_per_second"])


@wrong("values")
def seconds_alone_not_checked(num_bytes: float, n: int, **link: float) -> float:
    """You return 0 for one device, or for no bytes, before you have looked at the other numbers;
    raise ValueError first, whatever the result would be."""
    return 0.0 if n == 1 else all_reduce_seconds(num_bytes, n, **link)


@wrong("values")
def seconds_alone_is_refused(num_bytes: float, n: int, **link: float) -> float:
    """One device alone is no error: it has nothing to send, so return 0 seconds."""
    if n == 1:
        raise ValueError("all_reduce_seconds: one device")
    return all_reduce_seconds(num_bytes, n, **link)
