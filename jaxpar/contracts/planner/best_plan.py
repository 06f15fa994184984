"""The fastest plan that fits into the memory of a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, Mistake, sentence_of, wrong
from jaxpar.contracts.costs.common import log_spread
from jaxpar.cost.planner import best_plan

Plan = dict[str, Any]

_WITH_OTHER_KEYS: tuple[Plan, ...] = (
    {"layout": {"dp": 4, "tp": 2}, "memory_bytes": 70, "step_seconds": 2.5, "why": None},
    {"layout": {"fsdp": 8}, "memory_bytes": 55.5, "step_seconds": 3, "axes": ["dp", "fsdp"]},
    {"layout": {"pp": 8}, "memory_bytes": 50, "step_seconds": 4.5, "fits": False},
)

_seconds = itemgetter("step_seconds")
_held = itemgetter("memory_bytes")


def _choices(rng: np.random.Generator) -> list[Call]:
    """Few plans, none that fits, none at all, ties, what just fits, then any."""

    def call(device_bytes: float, *plans: tuple[float, float]) -> Call:
        """A call with plans of these (seconds, bytes), named in any order."""
        names = rng.permutation(len(plans)) + 1
        rows = [
            {"mesh": f"pp={name}", "step_seconds": seconds, "memory_bytes": held}
            for name, (seconds, held) in zip(names.tolist(), plans, strict=True)
        ]
        return (rows, device_bytes), {}

    calls = [call(80, (3, 70), (2, 90), (2.5, 60)), call(50, (3, 70), (2, 90))]
    calls += [call(80, (2, 70), (2, 60), (3, 10))]
    calls += [call(80e9), call(80e9, (1.5, 80e9 + 1)), call(80e9, (1.5, 80e9))]
    calls += [
        call(0, (1.5, 1)),
        call(80, (2.001, 10), (2.0009, 20)),
        call(24 * 10**9, (1.5, 10**9), (1.499, 24 * 10**9 + 1)),
        call(80, (2, 90), (4e6, 70), (3e6, 80)),
    ]
    # No time and no memory; slower than any limit; nearly as fast; only one fits, first or last.
    calls += [call(80, (0, 70), (1, 10), (0, 5)), call(0, (1.5, 0), (1, 1)), call(80, (3, 0))]
    calls += [call(80, (1e30, 10)), call(80, (4e25, 70), (1e24, 10), (1, 90))]
    calls += [call(80, (2, 10), (2 - 1e-12, 20)), call(80, (2 - 1e-12, 20), (2, 10), (2, 20))]
    calls += [call(80, (3, 80), (2, 81), (1, 90)), call(80, (1, 90), (2, 81), (3, 80), (0, 81))]
    equal = [{"mesh": mesh, "step_seconds": 2, "memory_bytes": 70} for mesh in ("dp=8", "dp=1")]
    calls += [((rows, 80), {}) for rows in (equal, equal[::-1])]
    calls += [((list(_WITH_OTHER_KEYS), most), {}) for most in (80, 60, 10)]
    for device_bytes, fastest in zip(
        map(int, log_spread(rng, 1e9, 1e13, 8)), log_spread(rng, 0.001, 1e4, 8), strict=True
    ):
        # Three are as fast as each other; the other four are slower.
        parts = (0.5, 0.4, 0.7, *rng.uniform(0.1, 0.99, 4))
        times = (1, 1, 1, *rng.uniform(1.001, 3, 4).tolist())
        plans = [
            (fastest * time, int(device_bytes * part))
            for time, part in zip(times, parts, strict=True)
        ]
        tight, near = (fastest * 0.9, device_bytes), (fastest * 0.9999, int(0.96 * device_bytes))
        over = [(fastest * 0.5, int(device_bytes * 1.02)), (fastest * 0.3, 3 * device_bytes)]
        order = rng.permutation(4).tolist()
        mixed = [plans[3], *plans[:3], *over, *(plans[3 + place] for place in order)]
        lists = (mixed, [*mixed[1:], tight], [*mixed, near], over, mixed[::-1], over + plans)
        calls += [call(device_bytes, *chosen) for chosen in lists]
    # Many plans fit, many faster ones do not, and the best is the last: no limit on how many are
    # tried is right.
    many = [(float(seconds), 70) for seconds in rng.uniform(2, 9, 150)]
    many += [(float(seconds), 90) for seconds in rng.uniform(0.1, 1, 150)]
    calls += [call(80, *many, (1.5, 80)), call(60, *many, (1.5, 60))]
    return calls


@wrong("values")
def plan_memory_ignored(plans: list[Plan], device_bytes: float) -> Plan | None:
    """This is the fastest plan of all, whether it fits or not; leave out the plans that need more
    than device_bytes."""
    return min(plans, key=_seconds, default=None)


def _fitting(plans: list[Plan], device_bytes: float) -> list[Plan]:
    return [plan for plan in plans if _held(plan) <= device_bytes]


@wrong("values")
def plan_with_least_memory(plans: list[Plan], device_bytes: float) -> Plan | None:
    """This is the plan with the least memory; take the fastest that fits."""
    return min(_fitting(plans, device_bytes), key=_held, default=None)


@wrong("values")
def plan_with_most_memory(plans: list[Plan], device_bytes: float) -> Plan | None:
    """This is the plan with the most memory; take the fastest that fits."""
    return max(_fitting(plans, device_bytes), key=_held, default=None)


@wrong("values")
def plan_slowest(plans: list[Plan], device_bytes: float) -> Plan | None:
    """This is the slowest plan that fits; take the one with the least step_seconds."""
    return max(_fitting(plans, device_bytes), key=_seconds, default=None)


@wrong("values")
def plan_first_that_fits(plans: list[Plan], device_bytes: float) -> Plan | None:
    """This is the first plan that fits; the plans are in no order, so compare all that fit."""
    return next(iter(_fitting(plans, device_bytes)), None)


@wrong("values")
def plan_last_on_ties(plans: list[Plan], device_bytes: float) -> Plan | None:
    """Of plans that are equally fast you take the last; take the first."""
    return best_plan(plans[::-1], device_bytes)


@wrong("values")
def plan_ties_by_memory(plans: list[Plan], device_bytes: float) -> Plan | None:
    """Of plans that are equally fast you take the one with the least memory; take the first of the
    list."""
    return best_plan(sorted(plans, key=_held), device_bytes)


@wrong("values")
def plan_less_than_the_device(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You refuse a plan that needs exactly device_bytes; it fits, so ask for <=, not <."""
    return best_plan([plan for plan in plans if _held(plan) < device_bytes], device_bytes)


@wrong("values")
def plan_tenth_left_free(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You ask the plans to leave a tenth of device_bytes free; all of it may be used."""
    return best_plan(plans, 0.9 * device_bytes)


@wrong("values")
def plan_its_seconds(plans: list[Plan], device_bytes: float) -> float | None:
    """This is the time of the plan; return the plan, the dict itself."""
    plan = best_plan(plans, device_bytes)
    return None if plan is None else _seconds(plan)


@wrong("values")
def plan_its_place(plans: list[Plan], device_bytes: float) -> int | None:
    """This is the plan's place in the list; return the plan, the dict itself."""
    plan = best_plan(plans, device_bytes)
    return None if plan is None else next(i for i, one in enumerate(plans) if one is plan)


@wrong("values")
def plan_fastest_or_none(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You return None where the fastest plan of all does not fit; look only at the plans that fit,
    and take the fastest of them."""
    fastest = min(plans, key=_seconds, default=None)
    return fastest if fastest and _held(fastest) <= device_bytes else None


@wrong("values")
def plan_first_taken_for_granted(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You take the first plan for the best so far before you know that it fits; begin with None."""
    fitting = _fitting(plans, device_bytes)
    return min([plans[0], *fitting], key=_seconds) if fitting else None


@wrong("values")
def plan_smallest_if_none(plans: list[Plan], device_bytes: float) -> Plan | None:
    """Where nothing fits you return a plan; return None."""
    return best_plan(plans, device_bytes) or min(plans, key=_held, default=None)


@wrong("values")
def plan_in_float32(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You compare in float32, as jnp does, where two numbers that differ in the eighth digit are
    equal; compare Python's own numbers."""
    fitting = [plan for plan in plans if np.float32(_held(plan)) <= np.float32(device_bytes)]
    return min(fitting, key=lambda plan: np.float32(_seconds(plan)), default=None)


@wrong("values")
def plan_nearly_equal_taken_for_equal(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You take plans for equally fast that nearly are; the faster one is better, by however
    little."""
    fitting = _fitting(plans, device_bytes)
    least = min(map(_seconds, fitting), default=0)
    return next((plan for plan in fitting if math.isclose(_seconds(plan), least)), None)


@wrong("values")
def plan_slow_left_out(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You take no plan that is slower than the number you begin with; begin with None, or with
    float("inf")."""
    return best_plan([plan for plan in plans if _seconds(plan) < 1e9], device_bytes)


@wrong("values")
def plan_of_three_keys(plans: list[Plan], device_bytes: float) -> Plan | None:
    """You make a new plan of three keys; the plans may have others, so return the dict itself."""
    plan = best_plan(plans, device_bytes)
    keys = ("mesh", "step_seconds", "memory_bytes")
    return plan and {key: plan[key] for key in keys if key in plan}


# Not marked: it is wrong only if it raises, as `_raising` makes it.
def plan_none_raises(plans: list[Plan], device_bytes: float) -> Plan | None:
    """Where nothing fits you raise an error; return None."""
    return best_plan(plans, device_bytes)


_CHOICES_THAT_MAY_RAISE = (
    plan_memory_ignored,
    plan_with_least_memory,
    plan_with_most_memory,
    plan_slowest,
    plan_first_that_fits,
    plan_last_on_ties,
    plan_ties_by_memory,
    plan_less_than_the_device,
    plan_tenth_left_free,
    plan_its_seconds,
    plan_its_place,
)


def _raising(choose: Callable, error: type[Exception]) -> Callable:
    """A choice that raises what `min` (ValueError) or [0] (IndexError) of nothing does."""

    def raises(plans: list[Plan], device_bytes: float) -> Plan:
        chosen = choose(plans, device_bytes)
        if chosen is None:
            raise error("nothing to choose from")
        return chosen

    return raises


CONTRACT = Contract(
    kind="value",
    task="return the dict with the least step_seconds of those that fit, or None",
    reference=best_plan,
    oracle=best_plan,
    values=_choices,
    hints=(
        "Two steps: which plans fit at all? And which of these takes least time?",
        "min takes a key, and gives the first of several that are equal. What does it do if there "
        "is nothing to choose from?",
        'min((p for p in plans if p["memory_bytes"] <= device_bytes), key=lambda p: '
        'p["step_seconds"], default=None)',
    ),
    minimal="A plan that needs more memory than there is cannot run, and memory that is left over "
    "gains nothing.",
    harder="Of plans within 1% of the fastest, return the one with least memory. Why would you "
    "want that?",
    # Where nothing fits, many answers raise as well: they are told of their wrong choice first.
    mistakes=tuple(
        Mistake(choice.__name__, _raising(choice, error), "values", sentence_of(choice))
        for error in (ValueError, IndexError)
        for choice in (*_CHOICES_THAT_MAY_RAISE, plan_none_raises)
    ),
)
