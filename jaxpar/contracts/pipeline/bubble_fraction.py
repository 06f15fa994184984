"""The idle fraction of a pipeline's makespan."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.schedules import bubble_fraction


def _sizes(rng: np.random.Generator) -> list[Call]:
    """Stages, microbatches and chunks: a few small sizes, then random ones."""
    sizes = [(4, 8, 1), (4, 8, 2), (1, 5, 1), (8, 2, 1)]
    sizes += [tuple(int(n) for n in rng.integers((2, 1, 1), (65, 129, 9))) for _ in range(6)]
    return [(size, {}) for size in sizes]


CONTRACT = Contract(
    kind="value",
    task="return the idle fraction of the makespan, where all chunks take equally long",
    reference=bubble_fraction,
    oracle=bubble_fraction,
    values=_sizes,
    hints=(
        "The fraction is idle time divided by makespan. The makespan is idle time plus work, so "
        "count both for one device, in chunks.",
        "A device works on m microbatches in each of its v chunks, forward and backward alike. It "
        "idles while the first microbatch comes to it and while the last one leaves: p - 1 chunks.",
        "(p - 1) / (v * m + p - 1)",
    ),
    minimal="Whatever the order, no device has work until the devices before it have done their "
    "first chunks.",
    harder="Write it for ZB-H1, where weight gradients fill a part of the idle time.",
)


@wrong("values")
def bubble_over_the_ideal(stages: int, microbatches: int, chunks: int) -> float:
    """This is idle time divided by work; the makespan is both, so add the idle time to the
    denominator."""
    return (stages - 1) / (chunks * microbatches)


@wrong("values")
def bubble_over_the_microbatches(stages: int, microbatches: int, chunks: int) -> float:
    """This is (p - 1)/m, idle time divided by the work of one chunk; divide by the makespan, v*m +
    p - 1."""
    del chunks
    return (stages - 1) / microbatches


@wrong("values")
def bubble_chunks_ignored(stages: int, microbatches: int, chunks: int) -> float:
    """`chunks` is not used; each device works on each microbatch once for each of its chunks, and
    idles as few chunks as before."""
    del chunks
    return (stages - 1) / (microbatches + stages - 1)


@wrong("values")
def bubble_divided_by_chunks(stages: int, microbatches: int, chunks: int) -> float:
    """The fraction is divided by `chunks`, but it is the idle time that becomes shorter, and the
    makespan with it; multiply the microbatches in the denominator by `chunks`."""
    return (stages - 1) / (microbatches + stages - 1) / chunks


@wrong("values")
def bubble_chunks_as_devices(stages: int, microbatches: int, chunks: int) -> float:
    """Each chunk counts as a device; there are p devices, and the chunks of one take turns."""
    p = stages * chunks
    return (p - 1) / (microbatches + p - 1)


@wrong("values")
def bubble_of_all_stages(stages: int, microbatches: int, chunks: int) -> float:
    """A device waits for the p - 1 others, not for itself; use p - 1 in place of p."""
    return stages / (chunks * microbatches + stages)


@wrong("values")
def bubble_of_forwards(stages: int, microbatches: int, chunks: int) -> float:
    """Work counts forward and backward, idle time forward only; a device idles in both, so the
    fraction is the same as for one of them."""
    return (stages - 1) / (2 * chunks * microbatches + stages - 1)


@wrong("values")
def bubble_counted_twice(stages: int, microbatches: int, chunks: int) -> float:
    """The idle time is in the makespan twice; a device works v*m chunks and idles p - 1."""
    return (stages - 1) / (chunks * (microbatches + stages - 1) + stages - 1)


@wrong("values")
def busy_fraction(stages: int, microbatches: int, chunks: int) -> float:
    """This is the busy fraction; the idle fraction is 1 minus it."""
    return chunks * microbatches / (chunks * microbatches + stages - 1)
