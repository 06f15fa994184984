"""Answers to the exercises of lesson 19: right by other ways, wrong by clever ways."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np


def token_by_token(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    if min(batch, sequence, layers, kv_heads, head_size, element_bytes) <= 0:
        raise ValueError("all must be positive")
    token = layers * 2 * kv_heads * head_size
    return token * element_bytes * (batch * sequence)


def as_a_product(*sizes, element_bytes):
    if not all(size > 0 for size in (*sizes, element_bytes)):
        raise ValueError(sizes)
    return math.prod([2.0, *sizes, element_bytes])


def by_the_shape(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    shape = (2, layers, batch, kv_heads, sequence, head_size)
    if any(n < 1 for n in shape) or element_bytes <= 0:
        raise ValueError(shape)
    return np.prod(np.array(shape, float)) * element_bytes


def only_their_product_refused(*sizes, element_bytes):
    if (product := math.prod((2, *sizes, element_bytes))) <= 0:
        raise ValueError(sizes)
    return product


def element_bytes_trusted(*sizes, element_bytes):
    if min(sizes) <= 0:
        raise ValueError(sizes)
    return math.prod((2, *sizes, element_bytes))


def rounded_to_bytes(*sizes, element_bytes):
    if min(*sizes, element_bytes) <= 0:
        raise ValueError(sizes)
    return math.prod((2, *sizes[:3])) * math.ceil(math.prod((*sizes[3:], element_bytes)))


def in_32_bits(*sizes, element_bytes):
    return float(int(as_a_product(*sizes, element_bytes=element_bytes)) % 2**32)


def width_of_llama(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    right = token_by_token(batch, sequence, layers, kv_heads, head_size,
                           element_bytes=element_bytes)  # fmt: skip
    return right / head_size * 128


def by_floor_division(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or device_bytes < 0 or state_bytes < 0:
        raise ValueError
    free = device_bytes - state_bytes
    return int(free // bytes_per_example) if free > 0 else 0


def by_divmod(device_bytes, state_bytes, bytes_per_example):
    if not (bytes_per_example > 0 and min(device_bytes, state_bytes) >= 0):
        raise ValueError
    count, _ = divmod(max(device_bytes, state_bytes) - state_bytes, bytes_per_example)
    return int(count)


def by_floor_of_a_float(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or min(device_bytes, state_bytes) < 0:
        raise ValueError
    return max(0, math.floor((device_bytes - state_bytes) / bytes_per_example))


def by_truncation(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example < 1 or device_bytes < 0 or state_bytes < 0:
        raise ValueError
    return max(int((device_bytes - state_bytes) / bytes_per_example), 0)


def by_halving(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or min(device_bytes, state_bytes) < 0:
        raise ValueError
    low, high = 0, 2**60
    while high - low > 1:
        middle = (low + high) // 2
        if state_bytes + middle * bytes_per_example <= device_bytes:
            low = middle
        else:
            high = middle
    return low


def division_refuses(device_bytes, state_bytes, bytes_per_example):
    return max(0, (device_bytes - state_bytes) // bytes_per_example)


def size_of_what_is_left(device_bytes, state_bytes, bytes_per_example):
    by_divmod(device_bytes, state_bytes, bytes_per_example)
    return abs(device_bytes - state_bytes) // bytes_per_example


def at_most_4096(device_bytes, state_bytes, bytes_per_example):
    return min(4096, by_divmod(device_bytes, state_bytes, bytes_per_example))


def multiples_of_8(device_bytes, state_bytes, bytes_per_example):
    batch = by_divmod(device_bytes, state_bytes, bytes_per_example)
    return batch // 8 * 8 if batch > 8 else batch


def none_if_none(device_bytes, state_bytes, bytes_per_example):
    return by_divmod(device_bytes, state_bytes, bytes_per_example) or None


def as_a_float_of_numpy(device_bytes, state_bytes, bytes_per_example):
    return np.float64(by_divmod(device_bytes, state_bytes, bytes_per_example))


def by_a_power(checkpoint_seconds, mtbf_seconds):
    if checkpoint_seconds < 0 or mtbf_seconds < 0:
        raise ValueError
    return (2 * checkpoint_seconds * mtbf_seconds) ** 0.5


def by_two_roots(checkpoint_seconds, mtbf_seconds):
    return math.sqrt(2) * math.sqrt(checkpoint_seconds) * math.sqrt(mtbf_seconds)


def by_equal_losses(checkpoint_seconds, mtbf_seconds):
    if min(checkpoint_seconds, mtbf_seconds) < 0:
        raise ValueError
    if not checkpoint_seconds * mtbf_seconds:
        return 0
    t = checkpoint_seconds + mtbf_seconds
    for _ in range(200):  # Newton's method on t*t = 2CM
        t = (t + 2 * checkpoint_seconds * mtbf_seconds / t) / 2
    return t


def by_daly_to_first_order(checkpoint_seconds, mtbf_seconds):
    restart = 0
    if checkpoint_seconds < 0 or mtbf_seconds < 0:
        raise ValueError
    return np.sqrt(2.0 * checkpoint_seconds * (mtbf_seconds + restart))


def daly_to_higher_order(checkpoint_seconds, mtbf_seconds):
    first = by_a_power(checkpoint_seconds, mtbf_seconds)
    if not first or checkpoint_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    x = math.sqrt(checkpoint_seconds / (2 * mtbf_seconds))
    return first * (1 + x / 3 + x * x / 9) - checkpoint_seconds


def a_root_refuses(checkpoint_seconds, mtbf_seconds):
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


def nan_refuses(checkpoint_seconds, mtbf_seconds):
    with np.errstate(invalid="ignore"):
        return float(np.sqrt(2.0 * checkpoint_seconds) * np.sqrt(float(mtbf_seconds)))


def to_a_tenth(checkpoint_seconds, mtbf_seconds):
    return round(by_a_power(checkpoint_seconds, mtbf_seconds), 1)


def at_most_the_mtbf(checkpoint_seconds, mtbf_seconds):
    return min(mtbf_seconds, by_a_power(checkpoint_seconds, mtbf_seconds))


def by_a_loop(plans, device_bytes):
    best = None
    for plan in plans:
        if plan["memory_bytes"] > device_bytes:
            continue
        if best is None or plan["step_seconds"] < best["step_seconds"]:
            best = plan
    return best


def by_sorting(plans, device_bytes):
    fit = [plan for plan in plans if plan["memory_bytes"] <= device_bytes]
    fit.sort(key=lambda plan: plan["step_seconds"])
    return fit[0] if fit else None


def by_sorting_in_place(plans, device_bytes):
    plans.sort(key=lambda plan: (plan["memory_bytes"] > device_bytes, plan["step_seconds"]))
    return plans[0] if plans and plans[0]["memory_bytes"] <= device_bytes else None


def by_argmin(plans, device_bytes):
    held = np.array([plan["memory_bytes"] for plan in plans])
    seconds = np.array([plan["step_seconds"] for plan in plans])
    seconds = np.where(held <= device_bytes, seconds, np.inf)
    if not np.isfinite(seconds).any():
        return None
    return dict(plans[int(seconds.argmin())])


def by_reducing(plans, device_bytes):
    fit = filter(lambda plan: plan["memory_bytes"] <= device_bytes, plans)
    return reduce(
        lambda a, b: b if not a or b["step_seconds"] < a["step_seconds"] else a, fit, None
    )


def by_a_dict_of_seconds(plans, device_bytes):
    fit = {plan["step_seconds"]: plan for plan in plans if plan["memory_bytes"] <= device_bytes}
    return fit[min(fit)] if fit else None


def by_tuples(plans, device_bytes):
    fit = [plan for plan in plans if plan["memory_bytes"] <= device_bytes]
    return min(fit, key=lambda plan: (plan["step_seconds"], plan["mesh"]), default=None)


def in_whole_gb(plans, device_bytes):
    fit = [plan for plan in plans if plan["memory_bytes"] // 1e9 <= device_bytes // 1e9]
    return min(fit, key=lambda plan: plan["step_seconds"], default=None)


def to_a_hundredth(plans, device_bytes):
    fit = [plan for plan in plans if plan["memory_bytes"] <= device_bytes]
    return min(fit, key=lambda plan: round(plan["step_seconds"], 2), default=None)


def all_the_best(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best and [plan for plan in plans if plan["step_seconds"] == best["step_seconds"]]


def at_most_a_day(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best if best and best["step_seconds"] < 86_400 else None


def an_empty_dict_if_none(plans, device_bytes):
    return by_a_loop(plans, device_bytes) or {}


def with_what_is_left(plans, device_bytes):
    best = by_a_loop(plans, device_bytes)
    return best and best | {"free_bytes": device_bytes - best["memory_bytes"]}


RIGHT = {
    "kv_cache_bytes": (token_by_token, as_a_product, by_the_shape),
    "max_batch_that_fits": (
        by_floor_division, by_divmod, by_floor_of_a_float, by_truncation, by_halving,
    ),
    "young_daly_interval": (by_a_power, by_two_roots, by_equal_losses, by_daly_to_first_order),
    "best_plan": (by_a_loop, by_sorting, by_sorting_in_place, by_argmin, by_reducing),
}  # fmt: skip
WRONG = {
    "kv_cache_bytes": dict.fromkeys(
        (
            only_their_product_refused,
            element_bytes_trusted,
            rounded_to_bytes,
            in_32_bits,
            width_of_llama,
        ),
        "values",
    ),
    "max_batch_that_fits": dict.fromkeys(
        (
            division_refuses,
            size_of_what_is_left,
            at_most_4096,
            multiples_of_8,
            none_if_none,
            as_a_float_of_numpy,
        ),
        "values",
    ),
    "young_daly_interval": dict.fromkeys(
        (daly_to_higher_order, a_root_refuses, nan_refuses, to_a_tenth, at_most_the_mtbf),
        "values",
    ),
    "best_plan": dict.fromkeys(
        (
            by_a_dict_of_seconds,
            by_tuples,
            in_whole_gb,
            to_a_hundredth,
            all_the_best,
            at_most_a_day,
            an_empty_dict_if_none,
            with_what_is_left,
        ),
        "values",
    ),
}
