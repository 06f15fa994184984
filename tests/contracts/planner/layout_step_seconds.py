"""Answers to layout_step_seconds: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(parameters, tokens, how):
    if min(how["pp"], how["tp"], how["microbatches"], how["chunks"]) < 1:
        raise ValueError("a count")
    if how["flops_per_second"] <= 0:
        raise ValueError("flops_per_second")
    if min(parameters, tokens, how["tp_seconds"], how["gradient_seconds"]) < 0:
        raise ValueError("negative")


def _forward(parameters, tokens, how):
    _check(parameters, tokens, how)
    return 2 * parameters * tokens / how["pp"] / how["tp"] / how["flops_per_second"]


@right
def slot_by_slot(parameters, tokens, **how):
    forward = _forward(parameters, tokens, how)
    backward = 3 * forward if how["recompute"] else 2 * forward
    chunk = (forward + backward + how["tp_seconds"]) / how["chunks"]
    seconds = 0.0
    for _ in range(how["pp"] - 1):
        seconds += chunk
    for _ in range(how["microbatches"] * how["chunks"]):
        seconds += chunk
    left = how["gradient_seconds"] - backward
    return seconds + left if left > 0 else seconds


@right
def by_flops_of_all(parameters, tokens, **how):
    _check(parameters, tokens, how)
    count, devices = how["microbatches"], how["pp"] * how["tp"]
    factor = 8 if how["recompute"] else 6
    work = factor * parameters * tokens * count / devices / how["flops_per_second"]
    stage = work + count * how["tp_seconds"]
    bubble = stage * (how["pp"] - 1) / (count * how["chunks"])
    backward = work / count * (factor - 2) / factor
    return stage + bubble + max(how["gradient_seconds"], backward) - backward


@right
def in_fractions(parameters, tokens, **how):
    _check(parameters, tokens, how)
    speed = how["pp"] * how["tp"] * Fraction(how["flops_per_second"])
    forward = 2 * Fraction(parameters) * Fraction(tokens) / speed
    backward = (2 + bool(how["recompute"])) * forward
    times = how["microbatches"] + Fraction(how["pp"] - 1, how["chunks"])
    one = forward + backward + Fraction(how["tp_seconds"])
    return float(times * one + max(0, Fraction(how["gradient_seconds"]) - backward))


@right
def by_the_idle_part_of_the_whole(parameters, tokens, **how):
    forward = _forward(parameters, tokens, how)
    backward = (3 if how["recompute"] else 2) * forward
    slots = how["chunks"] * how["microbatches"]
    idle = (how["pp"] - 1) / (slots + how["pp"] - 1)
    work = how["microbatches"] * (forward + backward + how["tp_seconds"])
    return work / (1 - idle) + max(0, how["gradient_seconds"] - backward)


@wrong("values")
def the_longer_of_both(parameters, tokens, **how):
    alone = in_fractions(parameters, tokens, **how | {"gradient_seconds": 0})
    _check(parameters, tokens, how)
    return max(alone, how["gradient_seconds"])


@wrong("values")
def gradients_beside_what_is_sent(parameters, tokens, **how):
    backward = (3 if how["recompute"] else 2) * _forward(parameters, tokens, how)
    alone = in_fractions(parameters, tokens, **how | {"gradient_seconds": 0})
    return alone + max(0, how["gradient_seconds"] - backward - how["tp_seconds"])


@wrong("values")
def gradients_beside_the_last_chunk(parameters, tokens, **how):
    backward = (3 if how["recompute"] else 2) * _forward(parameters, tokens, how)
    alone = in_fractions(parameters, tokens, **how | {"gradient_seconds": 0})
    return alone + max(0, how["gradient_seconds"] - backward / how["chunks"])


@wrong("values")
def what_is_sent_hides(parameters, tokens, **how):
    _check(parameters, tokens, how)
    return in_fractions(parameters, tokens, **how | {"tp_seconds": 0})


@wrong("values")
def sent_again_if_recomputed(parameters, tokens, **how):
    _check(parameters, tokens, how)
    sent = how["tp_seconds"] * (1.5 if how["recompute"] else 1)
    return in_fractions(parameters, tokens, **how | {"tp_seconds": sent})


@wrong("values")
def pp_idle_slots(parameters, tokens, **how):
    one = _forward(parameters, tokens, how) * (4 if how["recompute"] else 3) + how["tp_seconds"]
    return in_fractions(parameters, tokens, **how) + one / how["chunks"]


@wrong("values")
def a_bubble_of_forward_passes(parameters, tokens, **how):
    forward = _forward(parameters, tokens, how)
    backward = (3 if how["recompute"] else 2) * forward
    bubble = (how["pp"] - 1) / how["chunks"] * forward
    stage = how["microbatches"] * (forward + backward + how["tp_seconds"])
    return stage + bubble + max(0, how["gradient_seconds"] - backward)


@wrong("values")
def microbatches_divide_the_tokens(parameters, tokens, **how):
    _check(parameters, tokens, how)
    return in_fractions(parameters, Fraction(tokens) / how["microbatches"], **how)


@wrong("values")
def one_stage_has_no_checks(parameters, tokens, **how):
    chunks = 1 if how["pp"] == 1 else how["chunks"]
    return in_fractions(parameters, tokens, **how | {"chunks": chunks})


@wrong("values")
def milliseconds_cut_off(parameters, tokens, **how):
    return round(in_fractions(parameters, tokens, **how), 3)


@wrong("values")
def in_float32_of_jax(parameters, tokens, **how):
    forward = _forward(parameters, tokens, how)
    return in_fractions(parameters, tokens, **how) + 0 * jnp.float32(forward)
