"""Wrong answers to the exercises of lesson 19, the planner, that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from jaxpar.contracts.base import Mistake
from jaxpar.cost.goodput import young_daly_interval
from jaxpar.cost.inference import kv_cache_bytes, max_batch_that_fits
from jaxpar.cost.planner import best_plan

Plan = dict[str, Any]
SIZES = ("batch", "sequence", "layers", "kv_heads", "head_size")


def _scaled(right: Callable, factor: float) -> Callable:
    """The right result, times a number."""

    def wrong(*args: Any, **kwargs: Any) -> float:
        return right(*args, **kwargs) * factor

    return wrong


def _without(name: str) -> Callable:
    """The cache, where one of the sizes is left out."""

    def wrong(*sizes: int, element_bytes: float) -> float:
        return kv_cache_bytes(*sizes, element_bytes=element_bytes) / sizes[SIZES.index(name)]

    return wrong


def _two_bytes_each(*sizes: int, element_bytes: float) -> float:
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / element_bytes * 2


def _whole_bytes(*sizes: int, element_bytes: float) -> float:
    cache = kv_cache_bytes(*sizes, element_bytes=element_bytes)
    return cache / element_bytes * math.ceil(element_bytes)


def _scores_kept(batch: int, sequence: int, *sizes: int, element_bytes: float) -> float:
    return kv_cache_bytes(batch, sequence, *sizes, element_bytes=element_bytes) * sequence


def _any_cache(*sizes: int, element_bytes: float) -> float:
    return 2 * math.prod(sizes) * element_bytes


def _batch(round_off: Callable[[float], float], *, state_parts: float = 1) -> Callable:
    """The batch, rounded off in some way, with so many times the states."""

    def wrong(device: int, states: int, each: int) -> float:
        max_batch_that_fits(device, states, each)  # raises where it must
        return max(0, round_off((device - state_parts * states) / each))

    return wrong


def _states_for_each_example(device: int, states: int, each: int) -> int:
    max_batch_that_fits(device, states, each)
    return int(device // (states + each))


def _below_zero(device: int, states: int, each: int) -> int:
    max_batch_that_fits(device, states, each)
    return int((device - states) // each)


def _at_least_one(device: int, states: int, each: int) -> int:
    return max(1, max_batch_that_fits(device, states, each))


def _one_byte_free(device: int, states: int, each: int) -> int:
    max_batch_that_fits(device, states, each)
    return max(0, int((device - states - 1) // each))


def _power_of_two(device: int, states: int, each: int) -> int:
    batch = max_batch_that_fits(device, states, each)
    return 2 ** (batch.bit_length() - 1) if batch else 0


def _in_gib(device: int, states: int, each: int) -> int:
    """The device in GiB, all else in GB."""
    max_batch_that_fits(device, states, each)
    return max(0, math.floor((device / 2**30 - states / 1e9) / (each / 1e9)))


def _tenth_kept(device: int, states: int, each: int) -> int:
    max_batch_that_fits(device, states, each)
    return max(0, math.floor((0.9 * device - states) / each))


def _too_large_refused(device: int, states: int, each: int) -> int:
    if states > device:
        raise ValueError("the states do not fit")
    return max_batch_that_fits(device, states, each)


def _any_batch(device: int, states: int, each: int) -> int:
    return max(0, int((device - states) // each)) if each else 0


def _float_of_floats(device: int, states: int, each: int) -> float:
    max_batch_that_fits(device, states, each)
    return max(0, (device - states) // each)


def _interval(formula: Callable[[float, float], float]) -> Callable:
    """A formula of the checkpoint's time and the time between failures."""

    def wrong(checkpoint: float, mtbf: float) -> float:
        young_daly_interval(checkpoint, mtbf)  # raises where it must
        return formula(checkpoint, mtbf)

    return wrong


def _whole_seconds(checkpoint: float, mtbf: float) -> int:
    return round(young_daly_interval(checkpoint, mtbf))


def _any_times(checkpoint: float, mtbf: float) -> float:
    return math.sqrt(abs(2 * checkpoint * mtbf))


def _zero_refused(checkpoint: float, mtbf: float) -> float:
    if min(checkpoint, mtbf) <= 0:
        raise ValueError("not positive")
    return young_daly_interval(checkpoint, mtbf)


def _fitting(plans: list[Plan], device_bytes: float) -> list[Plan]:
    return [plan for plan in plans if plan["memory_bytes"] <= device_bytes]


_seconds, _held = itemgetter("step_seconds"), itemgetter("memory_bytes")


def _memory_ignored(plans: list[Plan], device_bytes: float) -> Plan | None:
    return min(plans, key=_seconds, default=None)


def _fastest_or_none(plans: list[Plan], device_bytes: float) -> Plan | None:
    fastest = min(plans, key=_seconds, default=None)
    return fastest if fastest and _held(fastest) <= device_bytes else None


def _smallest(plans: list[Plan], device_bytes: float) -> Plan | None:
    return min(_fitting(plans, device_bytes), key=_held, default=None)


def _fullest(plans: list[Plan], device_bytes: float) -> Plan | None:
    return max(_fitting(plans, device_bytes), key=_held, default=None)


def _slowest(plans: list[Plan], device_bytes: float) -> Plan | None:
    return max(_fitting(plans, device_bytes), key=_seconds, default=None)


def _first_that_fits(plans: list[Plan], device_bytes: float) -> Plan | None:
    return next(iter(_fitting(plans, device_bytes)), None)


def _first_taken_for_granted(plans: list[Plan], device_bytes: float) -> Plan | None:
    fitting = _fitting(plans, device_bytes)
    return min([plans[0], *fitting], key=_seconds) if fitting else None


def _last_on_ties(plans: list[Plan], device_bytes: float) -> Plan | None:
    return best_plan(plans[::-1], device_bytes)


def _ties_by_memory(plans: list[Plan], device_bytes: float) -> Plan | None:
    return best_plan(sorted(plans, key=_held), device_bytes)


def _less_than_the_device(plans: list[Plan], device_bytes: float) -> Plan | None:
    return best_plan([plan for plan in plans if _held(plan) < device_bytes], device_bytes)


def _tenth_left_free(plans: list[Plan], device_bytes: float) -> Plan | None:
    return best_plan(plans, 0.9 * device_bytes)


def _smallest_if_none(plans: list[Plan], device_bytes: float) -> Plan | None:
    return best_plan(plans, device_bytes) or min(plans, key=_held, default=None)


def _its_seconds(plans: list[Plan], device_bytes: float) -> float | None:
    plan = best_plan(plans, device_bytes)
    return None if plan is None else plan["step_seconds"]


def _its_place(plans: list[Plan], device_bytes: float) -> int | None:
    plan = best_plan(plans, device_bytes)
    return None if plan is None else next(i for i, one in enumerate(plans) if one is plan)


def _raising(choose: Callable, error: type[Exception]) -> Callable:
    """A choice that raises what `min` (ValueError) or [0] (IndexError) of nothing does."""

    def wrong(plans: list[Plan], device_bytes: float) -> Plan:
        chosen = choose(plans, device_bytes)
        if chosen is None:
            raise error("nothing to choose from")
        return chosen

    return wrong


def _mistakes(functions: dict[str, Callable]) -> tuple[Mistake, ...]:
    return tuple(Mistake(name, function, "values") for name, function in functions.items())


KV_CACHE_BYTES = _mistakes(
    {
        "cache_of_keys_alone": _scaled(kv_cache_bytes, 1 / 2),
        "cache_of_one_example": _without("batch"),
        "cache_of_one_token": _without("sequence"),
        "cache_of_one_layer": _without("layers"),
        "cache_of_one_head": _without("kv_heads"),
        "cache_of_one_element": _without("head_size"),
        "cache_of_scores": _scores_kept,
        "cache_in_bits": _scaled(kv_cache_bytes, 8),
        "cache_given_in_bits": _scaled(kv_cache_bytes, 1 / 8),
        "cache_in_gb": _scaled(kv_cache_bytes, 1e-9),
        "cache_in_gib": _scaled(kv_cache_bytes, 2**-30),
        "cache_always_16_bits": _two_bytes_each,
        "cache_of_whole_bytes": _whole_bytes,
        "cache_of_anything": _any_cache,
    }
)
MAX_BATCH_THAT_FITS = _mistakes(
    {
        "batch_rounded_up": _batch(math.ceil),
        "batch_rounded": _batch(round),
        "batch_no_whole_number": _batch(float),
        "batch_without_states": _batch(math.floor, state_parts=0),
        "batch_states_twice": _batch(math.floor, state_parts=2),
        "batch_states_for_each": _states_for_each_example,
        "batch_below_zero": _below_zero,
        "batch_at_least_one": _at_least_one,
        "batch_one_byte_free": _one_byte_free,
        "batch_power_of_two": _power_of_two,
        "batch_in_gib": _in_gib,
        "batch_tenth_kept": _tenth_kept,
        "batch_too_large_refused": _too_large_refused,
        "batch_of_anything": _any_batch,
        "batch_float_of_floats": _float_of_floats,
    }
)
YOUNG_DALY_INTERVAL = _mistakes(
    {
        "interval_without_2": _interval(lambda c, m: math.sqrt(c * m)),
        "interval_2_outside": _interval(lambda c, m: 2 * math.sqrt(c * m)),
        "interval_without_root": _interval(lambda c, m: 2 * c * m),
        "interval_of_a_quotient": _interval(lambda c, m: math.sqrt(2 * m / c) if c else 0.0),
        "interval_of_a_sum": _interval(lambda c, m: math.sqrt(2 * (c + m))),
        "interval_of_failures": _interval(lambda _, m: m),
        "interval_and_checkpoint": _interval(lambda c, m: math.sqrt(2 * c * m) + c),
        "interval_less_checkpoint": _interval(lambda c, m: math.sqrt(2 * c * m) - c),
        "interval_in_minutes": _scaled(young_daly_interval, 1 / 60),
        "interval_in_hours": _scaled(young_daly_interval, 1 / 3600),
        "interval_mtbf_in_hours": _scaled(young_daly_interval, 60),
        "interval_in_whole_seconds": _whole_seconds,
        "interval_of_anything": _any_times,
        "interval_zero_refused": _zero_refused,
    }
)
_CHOICES: dict[str, Callable] = {
    "plan_memory_ignored": _memory_ignored,
    "plan_with_least_memory": _smallest,
    "plan_with_most_memory": _fullest,
    "plan_slowest": _slowest,
    "plan_first_that_fits": _first_that_fits,
    "plan_last_on_ties": _last_on_ties,
    "plan_ties_by_memory": _ties_by_memory,
    "plan_less_than_the_device": _less_than_the_device,
    "plan_tenth_left_free": _tenth_left_free,
    "plan_its_seconds": _its_seconds,
    "plan_its_place": _its_place,
}
_OTHERS: dict[str, Callable] = {
    "plan_fastest_or_none": _fastest_or_none,
    "plan_first_taken_for_granted": _first_taken_for_granted,
    "plan_smallest_if_none": _smallest_if_none,
}
BEST_PLAN = _mistakes(_CHOICES | _OTHERS)
# Many raise besides where nothing fits; they are told of their choice first.
for _error in (ValueError, IndexError):
    _all = _CHOICES | {"plan_none_raises": best_plan}
    BEST_PLAN += _mistakes({name: _raising(choose, _error) for name, choose in _all.items()})
