"""The seconds of a step of one layout, from a few figures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread
from jaxpar.cost.step import layout_step_seconds

_LLAMA_8B, _LLAMA_70B, _LLAMA_405B = 8_030_261_248, 70_553_706_496, 405_853_388_800


def _call(
    parameters: float,
    tokens: float,
    *counts: int,
    recompute: bool = False,
    speed: float,
    tp_seconds: float = 0,
    gradient_seconds: float = 0,
) -> Call:
    """A call; `counts` are stages, devices of each, microbatches and chunks."""
    how = dict(zip(("pp", "tp", "microbatches", "chunks"), counts, strict=True))
    times = {"tp_seconds": tp_seconds, "gradient_seconds": gradient_seconds}
    return (parameters, tokens), how | {"recompute": recompute, "flops_per_second": speed} | times


def _steps(rng: np.random.Generator) -> list[Call]:
    """Round numbers, gradients that hide or do not, real models, any; then what is refused."""
    calls = [
        _call(60, 10, 4, 5, 3, 1, speed=10, tp_seconds=2),
        _call(60, 10, 4, 5, 3, 3, recompute=True, speed=10, tp_seconds=2, gradient_seconds=40),
        _call(60, 10, 1, 1, 8, 1, speed=100, gradient_seconds=30),
    ]
    # Forward takes 20 seconds, so that backward takes 40, or 60 with recomputation.
    for wait in (10, 39, 40, 41, 59, 60, 61, 100):
        for again in (False, True):
            how = {"recompute": again, "speed": 10, "tp_seconds": 5, "gradient_seconds": wait}
            calls.append(_call(60, 10, 2, 3, 4, 2, **how))
    calls += [_call(0, 10, 2, 2, 4, 1, speed=10, tp_seconds=3, gradient_seconds=7)]
    calls += [_call(60, 0, 2, 2, 4, 1, recompute=True, speed=10, gradient_seconds=7)]
    calls += [_call(_LLAMA_8B, 8192, 1, 8, 16, 1, speed=4e14, tp_seconds=0.02)]
    calls += [_call(_LLAMA_70B, 8192, 4, 8, 32, 5, recompute=True, speed=4e14, tp_seconds=0.15)]
    calls += [_call(_LLAMA_405B, 8192, 16, 8, 16, 8, speed=4e14, gradient_seconds=0.3)]
    calls += [*_any(rng), *_refused()]
    return calls


def _any(rng: np.random.Generator) -> Iterator[Call]:
    """Small sizes and large ones, with gradients that hide and that do not."""
    ends = (1e8, 1e13), (500, 1e6), (1e13, 1e16)
    spreads = (log_spread(rng, *pair, 8) for pair in ends)
    for place, (parameters, tokens, speed) in enumerate(zip(*spreads, strict=True)):
        pp, tp, microbatches, chunks = rng.integers((2, 2, 1, 2), (130, 130, 900, 20)).tolist()
        forward = 2 * parameters * tokens / (pp * tp) / speed
        least, most = (0.1, 1.9) if place % 2 else (3.1, 9)
        yield _call(
            int(parameters),
            int(tokens),
            pp,
            tp,
            microbatches,
            chunks,
            recompute=place // 2 % 2 == 0,
            speed=speed,
            tp_seconds=float(forward * rng.uniform(0.1, 3)),
            gradient_seconds=float(forward * rng.uniform(least, most)),
        )


def _refused() -> Iterator[Call]:
    """One number that is impossible, or two, whose product may be possible."""
    (right, how) = _call(60, 10, 2, 3, 4, 2, speed=10, tp_seconds=5, gradient_seconds=50)
    numbers = {"parameters": right[0], "tokens": right[1]} | how
    del numbers["recompute"]
    may_be_0 = ("parameters", "tokens", "tp_seconds", "gradient_seconds")

    def call(changed: dict[str, Any]) -> Call:
        every = numbers | {"recompute": False} | changed
        return (every.pop("parameters"), every.pop("tokens")), every

    for name, number in numbers.items():
        yield call({name: -number})
        if name not in may_be_0:
            yield call({name: 0})
    for one, other in combinations(numbers, 2):
        yield call({one: -numbers[one], other: -numbers[other]})
    # Where it makes no difference to the result.
    yield call({"pp": 1, "chunks": 0})
    yield call({"pp": 1, "chunks": -2})
    yield call({"gradient_seconds": -0.5, "tp_seconds": 0})


CONTRACT = Contract(
    kind="value",
    task="return the seconds of a step: all microbatches, the bubble, and what gradients add",
    reference=layout_step_seconds,
    oracle=layout_step_seconds,
    values=_steps,
    hints=(
        "How long does one microbatch take on one stage: forward, backward, what is recomputed, "
        "what is sent? How many of these does a device work on, and for how many does it wait?",
        "forward = 2 * parameters * tokens / (pp * tp) / flops_per_second, and backward is 2 or 3 "
        "times as long. A chunk of a microbatch is 1/chunks of it.",
        "(microbatches + (pp - 1) / chunks) * (forward + backward + tp_seconds) + max(0, "
        "gradient_seconds - backward); first raise ValueError for what is impossible.",
    ),
    minimal="Arithmetic, waiting for links, an idle pipeline: a planner adds these up for each "
    "layout, and takes the least.",
    harder="Let half of tp_seconds hide behind the gradients of weights. By how much is a step of "
    "Llama 3 70B shorter, with the figures of lesson 19?",
)

Numbers = dict[str, Any]


def _with(how: Numbers, changed: Numbers) -> Numbers:
    """The arguments by name, with some of them changed."""
    return how | changed


def _forward(parameters: float, tokens: float, how: Numbers) -> float:
    """The seconds of a microbatch's forward pass on a stage."""
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return 2 * parameters * tokens / (how["pp"] * how["tp"]) / how["flops_per_second"]


def _backward(parameters: float, tokens: float, how: Numbers) -> float:
    return (3 if how["recompute"] else 2) * _forward(parameters, tokens, how)


def _microbatch(parameters: float, tokens: float, how: Numbers) -> float:
    """The seconds of a microbatch on a stage."""
    both = _forward(parameters, tokens, how) + _backward(parameters, tokens, how)
    return both + how["tp_seconds"]


@wrong("values")
def step_bubble_as_fraction(parameters: float, tokens: float, **how: Any) -> float:
    """You lengthen the step by the fraction (p - 1)/(vm + p - 1), which is the idle part of the
    whole; of the work the bubble is (p - 1)/(vm)."""
    right = layout_step_seconds(parameters, tokens, **how)
    idle, slots = how["pp"] - 1, how["chunks"] * how["microbatches"]
    work = how["microbatches"] * _microbatch(parameters, tokens, how)
    return right - work * idle / slots + work * idle / (slots + idle)


@wrong("values")
def step_without_a_bubble(parameters: float, tokens: float, **how: Any) -> float:
    """You leave the bubble out: every stage waits for the first microbatch, and after its last."""
    idle = (how["pp"] - 1) / how["chunks"] if how["chunks"] else 0
    right = layout_step_seconds(parameters, tokens, **how)
    return right - idle * _microbatch(parameters, tokens, how)


@wrong("values")
def step_chunks_ignored(parameters: float, tokens: float, **how: Any) -> float:
    """You do not use `chunks`; a device idles for pp - 1 chunks of a microbatch, and a chunk is
    1/chunks of it."""
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return layout_step_seconds(parameters, tokens, **_with(how, {"chunks": 1}))


@wrong("values")
def step_bubble_of_chunks(parameters: float, tokens: float, **how: Any) -> float:
    """Your bubble grows with the number of chunks; it shrinks: a chunk is 1/chunks of a
    microbatch."""
    right = layout_step_seconds(parameters, tokens, **how)
    one = _microbatch(parameters, tokens, how)
    return right + (how["pp"] - 1) * (how["chunks"] - 1 / how["chunks"]) * one


@wrong("values")
def step_recomputation_forgotten(parameters: float, tokens: float, **how: Any) -> float:
    """You do not use `recompute`; with it the backward pass takes a forward pass more."""
    return layout_step_seconds(parameters, tokens, **_with(how, {"recompute": False}))


@wrong("values")
def step_backward_as_long(parameters: float, tokens: float, **how: Any) -> float:
    """You let the backward pass take as long as the forward pass; it has two products for each
    one, so it takes twice as long."""
    right = layout_step_seconds(parameters, tokens, **how)
    forward, backward = _forward(parameters, tokens, how), _backward(parameters, tokens, how)
    wait = how["gradient_seconds"]
    times = how["microbatches"] + (how["pp"] - 1) / how["chunks"]
    return right - times * forward - max(0, wait - backward) + max(0, wait - backward + forward)


@wrong("values")
def step_of_multiplications(parameters: float, tokens: float, **how: Any) -> float:
    """You count 1 FLOP for each parameter and token forward; there are 2, a multiplication and an
    addition."""
    return layout_step_seconds(parameters / 2, tokens, **how)


@wrong("values")
def step_of_the_whole_model(parameters: float, tokens: float, **how: Any) -> float:
    """You let every device compute the whole model; it has 1/(pp * tp) of the products."""
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return layout_step_seconds(parameters * how["pp"] * how["tp"], tokens, **how)


@wrong("values")
def step_tensor_parallelism_forgotten(parameters: float, tokens: float, **how: Any) -> float:
    """You let every device compute its whole stage; the devices of tp split each product."""
    return layout_step_seconds(parameters * max(how["tp"], 1), tokens, **how)


@wrong("values")
def step_sent_once(parameters: float, tokens: float, **how: Any) -> float:
    """You count tp_seconds once; every microbatch sends its activations, and they also make the
    bubble longer."""
    alone = layout_step_seconds(parameters, tokens, **_with(how, {"tp_seconds": 0}))
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return alone + how["tp_seconds"]


@wrong("values")
def step_bubble_sends_nothing(parameters: float, tokens: float, **how: Any) -> float:
    """You leave tp_seconds out of the bubble; the microbatch that a stage waits for is also held up
    by what it sends on the stages before."""
    right = layout_step_seconds(parameters, tokens, **how)
    return right - (how["pp"] - 1) / how["chunks"] * how["tp_seconds"]


@wrong("values")
def step_gradients_never_hide(parameters: float, tokens: float, **how: Any) -> float:
    """You add all of gradient_seconds; gradients are summed while the last microbatch is still in
    its backward pass, so only the rest takes time."""
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    alone = layout_step_seconds(parameters, tokens, **_with(how, {"gradient_seconds": 0}))
    return alone + how["gradient_seconds"]


@wrong("values")
def step_gradients_always_hide(parameters: float, tokens: float, **how: Any) -> float:
    """You leave gradient_seconds out; what is longer than the backward pass of the last microbatch
    takes time."""
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return layout_step_seconds(parameters, tokens, **_with(how, {"gradient_seconds": 0}))


@wrong("values")
def step_gradients_hide_in_all(parameters: float, tokens: float, **how: Any) -> float:
    """You let the sum of the gradients overlap with the backward passes of all microbatches; before
    the last one the gradients are not complete."""
    alone = layout_step_seconds(parameters, tokens, **_with(how, {"gradient_seconds": 0}))
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    hidden = how["microbatches"] * _backward(parameters, tokens, how)
    return alone + max(0, how["gradient_seconds"] - hidden)


@wrong("values")
def step_gradients_hide_less(parameters: float, tokens: float, **how: Any) -> float:
    """You let the sum of the gradients overlap with 2 forward passes' time in any case; with
    recomputation the backward pass takes 3."""
    alone = layout_step_seconds(parameters, tokens, **_with(how, {"gradient_seconds": 0}))
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return alone + max(0, how["gradient_seconds"] - 2 * _forward(parameters, tokens, how))


@wrong("values")
def step_gradients_make_it_shorter(parameters: float, tokens: float, **how: Any) -> float:
    """Where the gradients need less time than the backward pass you make the step shorter; what
    hides costs nothing, and saves nothing."""
    alone = layout_step_seconds(parameters, tokens, **_with(how, {"gradient_seconds": 0}))
    layout_step_seconds(parameters, tokens, **how)  # raises where it must
    return alone + how["gradient_seconds"] - _backward(parameters, tokens, how)


@wrong("values")
def step_of_anything(parameters: float, tokens: float, **how: Any) -> float:
    """Raise ValueError where a count is below 1, flops_per_second is not above 0, or another number
    is negative."""
    if not (how["pp"] and how["tp"] and how["chunks"] and how["flops_per_second"]):
        raise ValueError("a division by zero")
    forward = 2 * parameters * tokens / (how["pp"] * how["tp"]) / how["flops_per_second"]
    backward = (3 if how["recompute"] else 2) * forward
    one = forward + backward + how["tp_seconds"]
    times = how["microbatches"] + (how["pp"] - 1) / how["chunks"]
    return times * one + max(0, how["gradient_seconds"] - backward)
