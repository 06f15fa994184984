"""The idle fraction of a pipeline's makespan."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.schedules import bubble_fraction

_LARGE = ((1025, 2, 1), (2, 66_000, 1), (2, 1, 129), (1025, 66_000, 129))


def _sizes(rng: np.random.Generator) -> list[Call]:
    """Stages, microbatches and chunks: a few small sizes, random ones, then large ones.

    Whatever the seed, there is one of each, and more of each than anyone would take for the most.
    """
    sizes = [(4, 8, 1), (4, 8, 2), (1, 5, 1), (8, 2, 1), (1, 1, 1), (1, 3, 4), (6, 1, 3), (3, 1, 1)]
    sizes += [tuple(int(n) for n in rng.integers((2, 1, 1), (65, 129, 9))) for _ in range(4)]
    sizes += [tuple(int(n) for n in rng.integers(least, (4100, 70_000, 200))) for least in _LARGE]
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


@wrong("values")
def bubble_in_float32(stages: int, microbatches: int, chunks: int) -> float:
    """The division is in float32, as that of jax.numpy, and is right to seven digits only; divide
    Python's own numbers, which needs no array."""
    return float(np.float32(stages - 1) / np.float32(chunks * microbatches + stages - 1))


@wrong("values")
def busy_taken_away_in_float32(stages: int, microbatches: int, chunks: int) -> float:
    """The busy fraction is taken away from 1 in float32, as that of jax.numpy, which leaves fewer
    than seven digits; compute with Python's own numbers."""
    work = np.float32(chunks * microbatches)
    return float(np.float32(1) - work / (work + np.float32(stages - 1)))


@wrong("values")
def bubble_in_percent(stages: int, microbatches: int, chunks: int) -> float:
    """The fraction is in percent; return a number from 0 to 1."""
    return 100 * bubble_fraction(stages, microbatches, chunks)


@wrong("values")
def bubble_in_whole_numbers(stages: int, microbatches: int, chunks: int) -> int:
    """The division // drops what is behind the point, which leaves 0; use / in its place."""
    return (stages - 1) // (chunks * microbatches + stages - 1)


@wrong("values")
def bubble_rounded(stages: int, microbatches: int, chunks: int) -> float:
    """The fraction is rounded to four places; return it as it is."""
    return round(bubble_fraction(stages, microbatches, chunks), 4)
