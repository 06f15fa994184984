"""Answers to bubble_fraction: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def as_fractions(stages, microbatches, chunks):
    return float(Fraction(stages - 1, chunks * microbatches + stages - 1))


@right
def by_counting_ticks(stages, microbatches, chunks):
    work, idle = 2 * microbatches * chunks, 2 * (stages - 1)
    return np.float64(idle) / (work + idle)


@right
def one_minus_busy(stages, microbatches, chunks):
    return 1 - microbatches / (microbatches + (stages - 1) / chunks)


@wrong("values")
def in_percent(stages, microbatches, chunks):
    return 100 * as_fractions(stages, microbatches, chunks)


@wrong("values")
def rounded(stages, microbatches, chunks):
    return round(as_fractions(stages, microbatches, chunks), 4)


@wrong("values")
def as_text(stages, microbatches, chunks):
    return str(as_fractions(stages, microbatches, chunks))


@wrong("values")
def not_for_one_stage(stages, microbatches, chunks):
    return 1 / (1 + chunks * microbatches / (stages - 1))


@right
def by_the_schedule(stages, microbatches, chunks):
    """The makespan of the last device, in forwards and backwards of one chunk."""
    makespan = 2 * (chunks * microbatches + stages - 1)
    return (makespan - 2 * chunks * microbatches) / makespan


@right
def as_an_array_of_numpy(stages, microbatches, chunks):
    return np.divide(stages - 1, chunks * microbatches + stages - 1)


@wrong("values")
def jnp_divides(stages, microbatches, chunks):
    return jnp.divide(stages - 1, chunks * microbatches + stages - 1)


@wrong("values")
def small_integers(stages, microbatches, chunks):
    return (stages - 1) / float(np.uint16(chunks * microbatches & 0xFFFF) + stages - 1)


@wrong("values")
def eight_chunks_at_most(stages, microbatches, chunks):
    return as_fractions(stages, microbatches, min(chunks, 8))


@wrong("values")
def a_thousand_stages_at_most(stages, microbatches, chunks):
    return as_fractions(min(stages, 1000), microbatches, chunks)


@wrong("values")
def one_stage_by_one_chunk(stages, microbatches, chunks):
    """A device alone idles where it has several chunks."""
    return as_fractions(stages + (stages == 1 and chunks > 1), microbatches, chunks)


@wrong("values")
def one_microbatch_fills_all(stages, microbatches, chunks):
    if microbatches == 1 and chunks > 1:
        return as_fractions(stages, stages, chunks)
    return as_fractions(stages, microbatches, chunks)
