"""Answers to wsd_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(step, peak, warmup, stable, decay, final):
    if min(step, warmup, stable, decay) < 0 or not 0 <= final <= peak or peak <= 0:
        raise ValueError("a number is out of range")


@right
def least_of_two_lines(step, *, peak, warmup, stable, decay, final):
    _check(step, peak, warmup, stable, decay, final)
    left = min(max(warmup + stable + decay - 1 - step, 0), decay)
    fall = final + (peak - final) * (left / decay if decay else step < warmup + stable)
    return min(fall, peak * (step + 1) / warmup) if step < warmup else fall


@right
def by_interpolation(step, *, peak, warmup, stable, decay, final):
    _check(step, peak, warmup, stable, decay, final)
    if not decay and step >= warmup + stable:
        return final
    end = warmup + stable
    places = [0, warmup, end, end + decay]
    rates = [0 if warmup else peak, peak, peak, final]
    parts = 4 if decay else 3  # np.interp would jump a step too early
    return float(np.interp(step + 1, places[:parts], rates[:parts]))


@wrong("values")
def table_of_one_run(step, *, peak, warmup, stable, decay, final):
    _check(step, peak, warmup, stable, decay, final)
    return (0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 0.82, 0.64, 0.46, 0.28, 0.1)[min(step, 11)] * peak


@wrong("values")
def in_whole_percents(step, *, peak, warmup, stable, decay, final):
    rate = by_interpolation(step, peak=peak, warmup=warmup, stable=stable, decay=decay, final=final)
    return round(100 * rate / peak) / 100 * peak


@wrong("values")
def final_ignored_after_no_decay(step, *, peak, warmup, stable, decay, final):
    how = {"peak": peak, "warmup": warmup, "stable": stable, "decay": decay, "final": final}
    rate = by_interpolation(step, **how)
    return peak if not decay and step >= warmup else rate


@wrong("values")
def rises_from_final(step, *, peak, warmup, stable, decay, final):
    how = {"peak": peak, "warmup": warmup, "stable": stable, "decay": decay, "final": final}
    rate = by_interpolation(step, **how)
    return final + (peak - final) * (step + 1) / warmup if step < warmup else rate


@wrong("values")
def stable_counts_the_rise(step, *, peak, warmup, stable, decay, final):
    _check(step, peak, warmup, stable, decay, final)
    stable = max(stable - warmup, 0)
    how = {"peak": peak, "warmup": warmup, "stable": stable, "decay": decay, "final": final}
    return by_interpolation(step, **how)


@wrong("values")
def zero_after_the_end(step, *, peak, warmup, stable, decay, final):
    how = {"peak": peak, "warmup": warmup, "stable": stable, "decay": decay, "final": final}
    rate = by_interpolation(step, **how)
    return 0.0 if step >= warmup + stable + decay else rate
