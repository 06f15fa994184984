"""Model FLOPs utilization: the fraction of the peak that is of use to the model."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
from jaxpar.cost.flops import model_flops_utilization

# Tokens per second, FLOPs per token, devices, peak: PaLM 540B; 22B in steps of 1.1 s.
_RUNS = (
    (238.3e3, 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048, 6144, 275e12),
    (4 * 2048 / 1.1, 72 * 48 * 6144 * (6144 + 2048 / 6) + 6 * 6144 * 51200, 8, 312e12),
)


def _runs(rng: np.random.Generator) -> list[Call]:
    """A round number, published runs, any run, then what is refused."""
    runs = [(1000, 6 * 10**9, 8, 10**13), *_RUNS, (9000, 10**9, 1, 10**13)]
    # All of the peak, more than it (a wrong peak shows so), nearly nothing, and numbers below 1.
    runs += [(10**4, 10**9, 1, 10**13), (3e4, 10**9, 2, 10**13), (0.25, 2e8, 7, 9e14)]
    runs += [(0.5, 0.25, 1, 0.5), (10**7, 10**14, 10**6, 10**18), (1, 1, 1, 1)]
    runs.append((10**17, 10**7, 10**6, 2 * 10**18))
    drawn = zip(
        log_spread(rng, 1e8, 1e14, 8),
        log_spread(rng, 2, 5e5, 8),
        log_spread(rng, 1e12, 1e17, 8),
        strict=True,
    )
    for flops, devices, peak in drawn:
        utilization = float(rng.uniform(0.05, 0.99))
        runs.append((utilization * int(devices) * peak / flops, flops, int(devices), peak))
    tokens, flops, devices, peak = runs[0]
    refused = [*not_positive(runs[0]), (-tokens, -flops, -devices, -peak)]
    refused += [(0, 0, devices, peak), (tokens, flops, 0, 0), (-0.5, flops, devices, peak)]
    return [(run, {}) for run in [*runs, *refused]]


CONTRACT = Contract(
    kind="value",
    task="return the model's FLOPs per second as a fraction of what all devices could do",
    reference=model_flops_utilization,
    oracle=model_flops_utilization,
    values=_runs,
    hints=(
        "Divide FLOPs per second by FLOPs per second: what the model took, by what the devices "
        "could have done.",
        "The model took tokens_per_second * flops_per_token. Each device could have done "
        "peak_flops.",
        "tokens_per_second * flops_per_token / (devices * peak_flops)",
    ),
    minimal="You need no profile: a clock and the model's sizes are enough.",
    harder="From a step's seconds and remat, compute HFU: what fraction of their peak did the "
    "devices really reach?",
)


@wrong("values")
def mfu_of_one_device(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You compare the tokens of all devices with the peak of one; divide by `devices`, too."""
    return model_flops_utilization(tokens, flops, devices, peak) * devices


@wrong("values")
def mfu_tokens_of_each(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You multiply the tokens by `devices`; they are those of all devices already, so divide by
    `devices` instead."""
    return model_flops_utilization(tokens, flops, devices, peak) * devices**2


@wrong("values")
def mfu_in_percent(tokens: float, flops: float, devices: int, peak: float) -> float:
    """The result is in percent; return a fraction, at most 1."""
    return 100 * model_flops_utilization(tokens, flops, devices, peak)


@wrong("values")
def mfu_upside_down(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You divide the peak by what the model took; divide the other way round."""
    return 1 / model_flops_utilization(tokens, flops, devices, peak)


@wrong("values")
def mfu_sparse_peak(tokens: float, flops: float, devices: int, peak: float) -> float:
    """The result is half as large as it should be, as with a sparse peak, which is twice the dense
    one; divide by `peak_flops` as it is."""
    return model_flops_utilization(tokens, flops, devices, 2 * peak)


@wrong("values")
def mfu_peak_halved(tokens: float, flops: float, devices: int, peak: float) -> float:
    """The result is twice as large as it should be; `peak_flops` is dense already, and
    `flops_per_token` counts a multiplication and an addition as 2, so scale neither."""
    return model_flops_utilization(tokens, flops, devices, peak / 2)


@wrong("values")
def mfu_with_recomputation(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You add a third for what is computed again; that is of no use to the model, and counts in HFU
    only."""
    return model_flops_utilization(tokens, 4 / 3 * flops, devices, peak)


@wrong("values")
def mfu_three_passes(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You count the FLOPs three times; `flops_per_token` is forward and backward together
    already."""
    return model_flops_utilization(tokens, 3 * flops, devices, peak)


@wrong("values")
def mfu_parameters_for_flops(tokens: float, flops: float, devices: int, peak: float) -> float:
    """The result is six times too large; `flops_per_token` counts FLOPs, not parameters."""
    return model_flops_utilization(tokens, 6 * flops, devices, peak)


@wrong("values")
def mfu_peak_in_tera(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You multiply `peak_flops` by 1e12; it is in FLOPs per second already, not in tera."""
    return model_flops_utilization(tokens, flops, devices, 1e12 * peak)


@wrong("values")
def mfu_in_whole_numbers(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You round the fraction down to 0; use / in place of //."""
    return float(model_flops_utilization(tokens, flops, devices, peak) // 1)


@wrong("values")
def mfu_at_most_1(tokens: float, flops: float, devices: int, peak: float) -> float:
    """You cut the fraction off at 1; a larger one tells that a number is wrong, so return it as it
    is."""
    return min(1.0, model_flops_utilization(tokens, flops, devices, peak))


@wrong("values")
def mfu_below_1_refused(tokens: float, flops: float, devices: int, peak: float) -> float:
    """A number may be below 1, such as half a token in a second; refuse those that are 0 or
    negative."""
    if min(tokens, flops, devices, peak) < 1:
        raise ValueError("below 1")
    return model_flops_utilization(tokens, flops, devices, peak)


@wrong("values")
def mfu_above_1_refused(tokens: float, flops: float, devices: int, peak: float) -> float:
    """A fraction above 1 is no error here; raise ValueError only where a number is 0 or
    negative."""
    mfu = model_flops_utilization(tokens, flops, devices, peak)
    if mfu > 1:
        raise ValueError("above 1")
    return mfu


@wrong("values")
def mfu_zero_for_nothing(tokens: float, flops: float, devices: int, peak: float) -> float:
    """Raise ValueError where a number is 0 or below."""
    if min(tokens, flops, devices, peak) <= 0:
        return 0.0
    return model_flops_utilization(tokens, flops, devices, peak)
