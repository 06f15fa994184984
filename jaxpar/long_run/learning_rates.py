"""Learning rates: how large a step of training is, from the number of the step; plain Python."""

import math


def cosine_schedule(
    step: int, *, peak: float, warmup: int, decay: int, final: float = 0.0
) -> float:
    """The learning rate of a step that rises linearly, and then falls as half a cosine.

    Steps are counted from 0. Step `warmup - 1` has the rate `peak`, and step `warmup + decay - 1`
    and all steps after it have the rate `final`.

    Math: peak*(step+1)/warmup, then final + (peak-final)*(1 + cos(pi*k/decay))/2 in step k of decay
    Source: Loshchilov and Hutter 2017 (SGDR), section 3

    Raises:
        ValueError: a number of steps is negative, or not 0 <= final <= peak with peak above 0.
    """
    _check("cosine_schedule", (step, warmup, decay), peak, final)
    if step < warmup:
        return peak * (step + 1) / warmup
    done = step - warmup + 1
    if done >= decay:
        return final
    return final + (peak - final) * (1 + math.cos(math.pi * done / decay)) / 2


def wsd_schedule(
    step: int, *, peak: float, warmup: int, stable: int, decay: int, final: float
) -> float:
    """The learning rate of a step: it rises linearly, is constant, and then falls linearly.

    Steps are counted from 0. The first `warmup` steps rise by equal amounts, from peak/warmup in
    step 0 to `peak` in the last of them. The next `stable` steps have the rate `peak`. The next
    `decay` steps fall by equal amounts, and the last of them has the rate `final`, as have all
    steps after it. Each of the three numbers of steps may be 0.

    Math: peak*(step+1)/warmup; peak; peak + (final-peak)*(k+1)/decay in step k of decay; final
    Source: Hu et al. 2024 (MiniCPM), section 4, whose decay is exponential

    Raises:
        ValueError: a number of steps is negative, or not 0 <= final <= peak with peak above 0.
    """
    _check("wsd_schedule", (step, warmup, stable, decay), peak, final)
    if step < warmup:
        return peak * (step + 1) / warmup
    done = step - warmup - stable + 1  # steps of the decay, with this one
    if done <= 0:
        return peak
    if done >= decay:
        return final
    return peak + (final - peak) * done / decay


def _check(where: str, steps: tuple[int, ...], peak: float, final: float) -> None:
    if min(steps) < 0:
        raise ValueError(f"{where}: numbers of steps {list(steps)}; give none below 0")
    if not 0 <= final <= peak or peak <= 0:
        raise ValueError(
            f"{where}: peak {peak:g} and final {final:g}; "
            "give a peak above 0, and a final rate from 0 to the peak"
        )
