"""The learning rate of a step: a rise, a plateau and a fall."""

from __future__ import annotations

import itertools
import math

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.long_run.learning_rates import wsd_schedule


def _steps(rng: np.random.Generator) -> list[Call]:
    """All steps around the joints of runs, short and long ones; then what is refused."""

    def call(step: int, peak: float, lengths: tuple[int, int, int], final: float) -> Call:
        warmup, stable, decay = lengths
        how = {"peak": peak, "warmup": warmup, "stable": stable, "decay": decay, "final": final}
        return (step,), how

    runs = [(1.0, (4, 3, 5), 0.1), (0.5, (0, 3, 4), 0.0), (0.25, (3, 0, 2), 0.25)]
    runs += [(3e-4, (2, 4, 0), 1e-5), (2.0, (0, 0, 3), 0.5), (2.0, (0, 0, 0), 0.5)]
    runs += [(0.75, (1, 1, 1), 0.25), (1.0, (3, 0, 0), 0.25), (1.0, (0, 2, 0), 0.5)]
    calls = [call(step, *run) for run in runs for step in range(sum(run[1]) + 3)]
    for _ in range(6):
        lengths = [int(n) for n in rng.integers(1000, 200_000, size=3)]
        peak = float(rng.uniform(1e-5, 1e-1))
        final = float(peak * rng.uniform(0.01, 0.9))
        joints = np.cumsum([0, *lengths])
        places = {int(joint) + near for joint in joints for near in (-1, 0, 1)}
        inside = {int(rng.integers(a, b)) for a, b in itertools.pairwise(joints)}
        later = {int(joints[-1] + rng.integers(2, 1000))}
        warmup, stable, decay = lengths
        for step in sorted(place for place in places | inside | later if place >= 0):
            calls.append(call(step, peak, (warmup, stable, decay), final))
    refused = [call(-1, 1.0, (4, 3, 5), 0.1), call(2, 1.0, (4, 3, 5), -0.1)]
    refused += [call(2, 1.0, (4, 3, 5), 1.5), call(2, 0.0, (4, 3, 5), 0.0)]
    refused += [call(2, -1.0, (4, 3, 5), -2.0), call(99, 1.0, (4, 3, 5), 1.5)]
    lengths = ((-4, 3, 5), (4, -3, 5), (4, 3, -5), (-4, -3, -5), (-1, 8, 5))
    refused += [call(step, 1.0, which, 0.1) for which in lengths for step in (0, 2, 50)]
    return [*calls, *refused]


CONTRACT = Contract(
    kind="value",
    task="return the rate of a step: up to `peak`, constant, down to `final`, and constant again",
    reference=wsd_schedule,
    oracle=wsd_schedule,
    values=_steps,
    hints=(
        "Write down the rates of a run with warmup=2, stable=1 and decay=2, step by step: "
        "peak/2, peak, peak, and then two more. Which is the first step with the rate `final`?",
        "Steps are counted from 0, so in the rise the step counts as step + 1. In the decay, count "
        "k = step - warmup - stable from 0; the last of the steps is k = decay - 1.",
        "Compare with the joints from left to right: peak * (step + 1) / warmup while step < "
        "warmup; peak while step < warmup + stable; peak + (final - peak) * (k + 1) / decay while "
        "k < decay; else final. First raise ValueError for negative numbers of steps, and unless "
        "0 <= final <= peak and 0 < peak.",
    ),
    minimal="No state is kept: the rate is a function of the step, so a resumed run has it too.",
    harder="Let the decay begin whenever somebody says so, in a run that has no planned end: what "
    "must a checkpoint hold then?",
)


def _checked(step: int, how: dict) -> tuple[float, int, int, int, float]:
    wsd_schedule(step, **how)  # raises where it must
    return how["peak"], how["warmup"], how["stable"], how["decay"], how["final"]


@wrong("values")
def first_step_wasted(step: int, **how) -> float:
    """Step 0 has the rate 0, and changes nothing; steps are counted from 0, so the rise is
    peak * (step + 1) / warmup."""
    peak, warmup, *_ = _checked(step, how)
    return peak * step / warmup if step < warmup else wsd_schedule(step, **how)


@wrong("values")
def decay_one_step_late(step: int, **how) -> float:
    """Your decay begins one step too late: its first step still has the rate `peak`, and its last
    one not yet `final`. In step k of the decay, k + 1 of `decay` equal amounts are gone."""
    peak, warmup, stable, decay, final = _checked(step, how)
    k = step - warmup - stable
    if 0 <= k < decay:
        return peak + (final - peak) * k / decay
    return wsd_schedule(step, **how)


@wrong("values")
def both_joints_one_late(step: int, **how) -> float:
    """Both joints are one step late: count the steps from 1 in the rise and in the decay."""
    peak, warmup, stable, decay, final = _checked(step, how)
    if step < warmup:
        return peak * step / warmup
    k = step - warmup - stable
    return peak if k < 0 else peak + (final - peak) * min(k / decay, 1) if decay else final


@wrong("values")
def decay_is_a_cosine(step: int, **how) -> float:
    """The rate falls as a cosine; here it falls by equal amounts."""
    peak, warmup, stable, decay, final = _checked(step, how)
    k = step - warmup - stable + 1
    if 0 < k < decay:
        return final + (peak - final) * (1 + math.cos(math.pi * k / decay)) / 2
    return wsd_schedule(step, **how)


@wrong("values")
def decay_is_exponential(step: int, **how) -> float:
    """The rate falls by equal factors; here it falls by equal amounts."""
    peak, warmup, stable, decay, final = _checked(step, how)
    k = step - warmup - stable + 1
    if 0 < k < decay and final:
        return peak * (final / peak) ** (k / decay)
    return wsd_schedule(step, **how)


@wrong("values")
def decay_from_the_rise(step: int, **how) -> float:
    """The decay begins at the end of the rise; `stable` steps with the rate `peak` come before."""
    _peak, _warmup, stable, decay, _final = _checked(step, how)
    how = how | {"stable": 0, "decay": stable + decay}
    return wsd_schedule(step, **how)


@wrong("values")
def below_final(step: int, **how) -> float:
    """The rate goes on falling after the decay; all later steps have the rate `final`."""
    peak, warmup, stable, decay, final = _checked(step, how)
    k = step - warmup - stable + 1
    return peak + (final - peak) * k / decay if decay and k > 0 else wsd_schedule(step, **how)


@wrong("values")
def falls_to_zero(step: int, **how) -> float:
    """The rate falls to 0; it falls to `final`, by equal amounts."""
    peak, warmup, stable, decay, _final = _checked(step, how)
    k = step - warmup - stable + 1
    return max(0.0, peak * (1 - k / decay)) if decay and k > 0 else wsd_schedule(step, **how)


@wrong("values")
def final_cuts_the_fall(step: int, **how) -> float:
    """The rate falls towards 0, and is cut off at `final`; let it fall by (peak - final) / decay in
    each step, so that it gets there in the last one."""
    peak, warmup, stable, decay, final = _checked(step, how)
    k = step - warmup - stable + 1
    return max(final, peak * (1 - k / decay)) if decay and k > 0 else wsd_schedule(step, **how)


@wrong("values")
def final_is_a_fraction(step: int, **how) -> float:
    """You take `final` for a fraction of the peak; it is a rate."""
    peak, *_, final = _checked(step, how)
    how["final"] = final * min(peak, 1)
    return wsd_schedule(step, **how)


@wrong("values")
def lengths_are_ends(step: int, **how) -> float:
    """You take `stable` and `decay` for the steps where these parts end; they are their lengths."""
    _, warmup, stable, decay, _ = _checked(step, how)
    stable_steps = max(stable - warmup, 0)
    how = how | {"stable": stable_steps, "decay": max(decay - warmup - stable_steps, 0)}
    return wsd_schedule(step, **how)


@wrong("values")
def in_float32(step: int, **how) -> float:
    """You compute in float32, which has 7 digits; return a number of Python's own."""
    return float(np.float32(wsd_schedule(step, **how)))


@wrong("values")
def no_rise_divides_by_zero(step: int, **how) -> float:
    """Without a rise (warmup=0) or a decay you divide by 0; a part of no steps is left out."""
    peak, warmup, stable, decay, final = _checked(step, how)
    rise, fall = (step + 1) / warmup, (step + 1 - warmup - stable) / decay
    return min(peak, peak * rise) if fall <= 0 else peak + (final - peak) * min(fall, 1)


@wrong("values")
def rates_not_checked(step: int, **how) -> float:
    """Raise ValueError where a number of steps is negative, and unless 0 <= final <= peak and
    0 < peak."""
    try:
        return wsd_schedule(step, **how)
    except ValueError:
        return how["final"]


@wrong("values")
def only_own_part_checked(step: int, **how) -> float:
    """You return the rate of the rise before you have looked at the other numbers; raise ValueError
    first, whatever the step is."""
    if 0 <= step < how["warmup"] and how["peak"] > 0:
        return how["peak"] * (step + 1) / how["warmup"]
    return wsd_schedule(step, **how)
