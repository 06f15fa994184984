"""Answers to best_plan: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from functools import reduce
from heapq import nsmallest

import jax.numpy as jnp
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


@wrong("values")
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


@right
def by_a_sorted_copy(plans, device_bytes):
    for plan in sorted(plans, key=lambda plan: plan["step_seconds"]):
        if plan["memory_bytes"] <= device_bytes:
            return plan
    return None


@right
def by_places_in_the_list(plans, device_bytes):
    ranked = [
        (plan["step_seconds"], place)
        for place, plan in enumerate(plans)
        if plan["memory_bytes"] <= device_bytes
    ]
    return dict(plans[min(ranked)[1]]) if ranked else None


@right
def by_two_passes(plans, device_bytes):
    fitting = list(filter(lambda plan: not plan["memory_bytes"] > device_bytes, plans))
    least = min([plan["step_seconds"] for plan in fitting], default=math.inf)
    return next((plan for plan in fitting if plan["step_seconds"] == least), None)


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


@wrong("values")
def what_does_not_fit_removed(plans, device_bytes):
    for plan in list(plans):
        if plan["memory_bytes"] > device_bytes:
            plans.remove(plan)
    return min(plans, key=lambda plan: plan["step_seconds"], default=None)


@wrong("values")
def marked_in_place(plans, device_bytes):
    for plan in plans:
        plan["fits"] = plan["memory_bytes"] <= device_bytes
    best = min(
        (plan for plan in plans if plan["fits"]), key=lambda p: p["step_seconds"], default=None
    )
    return best and {key: best[key] for key in best if key != "fits"}


@wrong("values")
def taken_out_of_the_list(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best if best is None else plans.pop(plans.index(best))


@wrong("values")
def fewer_bytes_then_the_name(plans, device_bytes):
    def key(plan):
        return plan["step_seconds"], plan["memory_bytes"], plan.get("mesh", "")

    return min(_fitting(plans, device_bytes), key=key, default=None)


@wrong("values")
def from_a_billion_seconds(plans, device_bytes):
    best, least = None, 1e9
    for plan in _fitting(plans, device_bytes):
        if plan["step_seconds"] < least:
            best, least = plan, plan["step_seconds"]
    return best


@wrong("values")
def no_time_taken_for_none(plans, device_bytes):
    best, least = None, None
    for plan in _fitting(plans, device_bytes):
        if not least or plan["step_seconds"] < least:
            best, least = plan, plan["step_seconds"]
    return best


@wrong("values")
def no_memory_taken_for_unknown(plans, device_bytes):
    known = [plan for plan in plans if plan["memory_bytes"]]
    return by_a_loop(known, device_bytes)


@wrong("values")
def the_first_hundred(plans, device_bytes):
    return by_a_loop(plans[:100], device_bytes)


@wrong("values")
def by_a_heap_of_times(plans, device_bytes):
    fastest = nsmallest(100, plans, key=lambda plan: plan["step_seconds"])
    return by_a_loop(fastest, device_bytes)


@wrong("values")
def with_the_name_of_its_mesh(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best and {"mesh": "", **best}


@wrong("values")
def in_float32_of_jax(plans, device_bytes):
    if not plans:
        return None
    held = jnp.array([float(plan["memory_bytes"]) for plan in plans])
    seconds = jnp.array([float(plan["step_seconds"]) for plan in plans])
    fits = held <= jnp.float32(device_bytes)
    return plans[int(jnp.argmin(jnp.where(fits, seconds, jnp.inf)))] if fits.any() else None
