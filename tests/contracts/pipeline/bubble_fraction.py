"""Answers to bubble_fraction: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

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
