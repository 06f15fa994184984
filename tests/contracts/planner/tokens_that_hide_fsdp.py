"""Answers to tokens_that_hide_fsdp: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(fsdp, how):
    if fsdp <= 0 or min(how.values()) <= 0:
        raise ValueError("not positive")
    if fsdp > how["devices_per_node"] and fsdp % how["devices_per_node"]:
        raise ValueError("no whole nodes")
    inner = min(fsdp, how["devices_per_node"])
    return inner, fsdp // inner


@right
def by_seconds_of_a_layer(fsdp, **how):
    inner, outer = _check(fsdp, how)
    parameters = 12 * 4096**2
    shard = parameters * how["parameter_bytes"] / fsdp
    between = shard * (outer - 1) / how["between_bytes_per_second"]
    inside = shard * outer * (inner - 1) / how["inside_bytes_per_second"]
    one_token = 2 * parameters / how["flops_per_second"]
    return max(inside, between) / one_token


@right
def step_by_step(fsdp, **how):
    inner, outer = _check(fsdp, how)
    between, inside = 0.0, 0.0
    for _ in range(outer - 1):
        between += 1 / fsdp
    for _ in range(inner - 1):
        inside += outer / fsdp
    seconds = max(
        inside / how["inside_bytes_per_second"], between / how["between_bytes_per_second"]
    )
    return how["flops_per_second"] * how["parameter_bytes"] / 2 * seconds


@right
def in_fractions(fsdp, **how):
    inner, outer = _check(fsdp, how)
    inside = Fraction(inner - 1, inner) / Fraction(how["inside_bytes_per_second"])
    between = Fraction(outer - 1, fsdp) / Fraction(how["between_bytes_per_second"])
    each = Fraction(how["flops_per_second"]) * Fraction(how["parameter_bytes"]) / 2
    return float(each * max(inside, between))


@right
def by_cases(fsdp, **how):
    inner, outer = _check(fsdp, how)
    if fsdp == 1:
        return 0
    speed = how["flops_per_second"] * how["parameter_bytes"] / 2
    in_node = speed * (inner - 1) / inner / how["inside_bytes_per_second"]
    if outer == 1:
        return in_node
    beyond = speed * (1 - 1 / outer) / (inner * how["between_bytes_per_second"])
    return np.float64(in_node if in_node > beyond else beyond)


@wrong("values")
def always_over_the_network(fsdp, **how):
    inner, outer = _check(fsdp, how)
    inside = (inner - 1) / inner / how["inside_bytes_per_second"]
    between = (outer - 1) / outer / inner / how["between_bytes_per_second"]
    seconds = between if outer > 1 else inside
    return how["flops_per_second"] * how["parameter_bytes"] / 2 * seconds


@wrong("values")
def as_the_book_prints_it(fsdp, **how):
    inner, outer = _check(fsdp, how)
    bandwidth = how["inside_bytes_per_second"] if outer == 1 else None
    bandwidth = bandwidth or inner * how["between_bytes_per_second"]
    return 0.0 if fsdp == 1 else how["flops_per_second"] * how["parameter_bytes"] / 2 / bandwidth


@wrong("values")
def whole_tokens(fsdp, **how):
    return round(in_fractions(fsdp, **how))


@wrong("values")
def a_token_at_least(fsdp, **how):
    return max(1.0, in_fractions(fsdp, **how))


@wrong("values")
def nodes_of_8(fsdp, **how):
    _check(fsdp, how)
    how["devices_per_node"] = math.gcd(8, how["devices_per_node"])
    return in_fractions(fsdp, **how)


@wrong("values")
def bf16_only(fsdp, **how):
    return in_fractions(fsdp, **how | {"parameter_bytes": min(how["parameter_bytes"], 2)})


@wrong("values")
def nodes_filled_up(fsdp, **how):
    per_node = how["devices_per_node"]
    if min(fsdp, *how.values()) > 0 and fsdp > per_node:
        fsdp = fsdp // per_node * per_node
    return in_fractions(fsdp, **how)


@wrong("values")
def links_of_today(fsdp, **how):
    fast = min(how["inside_bytes_per_second"], 1e13)
    return in_fractions(fsdp, **how | {"inside_bytes_per_second": fast})


@wrong("values")
def zero_for_one_device(fsdp, **how):
    return 0.0 if fsdp == 1 else in_fractions(fsdp, **how)


@wrong("values")
def refused_by_the_result(fsdp, **how):
    if 0 in (fsdp, *how.values()):
        raise ValueError("zero")
    inner = min(fsdp, how["devices_per_node"])
    if fsdp % inner:
        raise ValueError("nodes")
    inside = (inner - 1) / inner / how["inside_bytes_per_second"]
    between = (1 / inner - 1 / fsdp) / how["between_bytes_per_second"]
    tokens = how["flops_per_second"] * how["parameter_bytes"] / 2 * max(inside, between)
    if tokens < 0:
        raise ValueError("negative")
    return tokens


@wrong("values")
def in_float32_of_jax(fsdp, **how):
    inner, outer = _check(fsdp, how)
    inside = (inner - 1) / inner / how["inside_bytes_per_second"]
    between = (outer - 1) / outer / inner / how["between_bytes_per_second"]
    seconds = jnp.maximum(inside, between)
    return how["flops_per_second"] * how["parameter_bytes"] / 2 * seconds
