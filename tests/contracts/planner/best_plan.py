"""Answers to best_plan: right ones by other routes, and wrong ones."""

from __future__ import annotations

from functools import reduce

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _fitting(plans, device_bytes):
    return [plan for plan in plans if plan["memory_bytes"] <= device_bytes]


@right
def by_a_loop(plans, device_bytes):
    best = None
    for plan in plans:
        if plan["memory_bytes"] > device_bytes:
            continue
        if best is None or plan["step_seconds"] < best["step_seconds"]:
            best = plan
    return best


@right
def by_sorting(plans, device_bytes):
    fitting = _fitting(plans, device_bytes)
    fitting.sort(key=lambda plan: plan["step_seconds"])
    return fitting[0] if fitting else None


@right
def by_sorting_in_place(plans, device_bytes):
    plans.sort(key=lambda plan: (plan["memory_bytes"] > device_bytes, plan["step_seconds"]))
    return plans[0] if plans and plans[0]["memory_bytes"] <= device_bytes else None


@right
def by_argmin(plans, device_bytes):
    held = np.array([plan["memory_bytes"] for plan in plans])
    seconds = np.array([plan["step_seconds"] for plan in plans])
    seconds = np.where(held <= device_bytes, seconds, np.inf)
    if not np.isfinite(seconds).any():
        return None
    return dict(plans[int(seconds.argmin())])


@right
def by_reducing(plans, device_bytes):
    def faster(best, plan):
        return plan if not best or plan["step_seconds"] < best["step_seconds"] else best

    return reduce(faster, _fitting(plans, device_bytes), None)


@wrong("values")
def by_a_dict_of_seconds(plans, device_bytes):
    fitting = {plan["step_seconds"]: plan for plan in _fitting(plans, device_bytes)}
    return fitting[min(fitting)] if fitting else None


@wrong("values")
def by_tuples(plans, device_bytes):
    fitting = _fitting(plans, device_bytes)
    return min(fitting, key=lambda plan: (plan["step_seconds"], plan["mesh"]), default=None)


@wrong("values")
def in_whole_gb(plans, device_bytes):
    fitting = [plan for plan in plans if plan["memory_bytes"] // 1e9 <= device_bytes // 1e9]
    return min(fitting, key=lambda plan: plan["step_seconds"], default=None)


@wrong("values")
def to_a_hundredth(plans, device_bytes):
    fitting = _fitting(plans, device_bytes)
    return min(fitting, key=lambda plan: round(plan["step_seconds"], 2), default=None)


@wrong("values")
def all_the_best(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best and [plan for plan in plans if plan["step_seconds"] == best["step_seconds"]]


@wrong("values")
def at_most_a_day(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best if best and best["step_seconds"] < 86_400 else None


@wrong("values")
def an_empty_dict_if_none(plans, device_bytes):
    return by_a_loop(plans, device_bytes) or {}


@wrong("values")
def with_what_is_left(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best and best | {"free_bytes": device_bytes - best["memory_bytes"]}
