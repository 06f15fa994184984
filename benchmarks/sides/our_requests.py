"""Requests that our engine answers from start to end, in a way that is named on the command line.

What a step tells for a loss is the sum of the tokens that it has generated.
"""

import sys
from collections.abc import Callable, Sequence

import jax
import numpy as np

from benchmarks.sides.our_decode import SETTINGS, make_engine, prompts, request
from benchmarks.sides.race import serve
from jaxpar.model import init, loss_fn
from jaxpar.serve.engine import Engine, Request, Sizes

# Requests of various lengths, for two ways of batching.
SLOTS, REQUESTS, MEAN_OUTPUT = 16, 64, 32
# Requests of one length, all at once.
PROMPT, OUTPUT = 64, 64
PREFILLED = 512


def answered(engine: Engine, requests: Sequence[Request]) -> float:
    """Answers all, and returns the sum of their tokens."""
    for one in requests:
        engine.submit(one)
    total = 0
    while engine.busy:
        total += sum(sum(event.tokens) for event in engine.step())
    return float(total)


def alike(b: int) -> Callable[[], float]:
    """Requests of one length."""
    engine = make_engine(Sizes(b, PROMPT + OUTPUT, PROMPT, budget=b * PROMPT, page_size=None))
    requests = [request(i, prompt, OUTPUT) for i, prompt in enumerate(prompts(b, PROMPT))]
    return lambda: answered(engine, requests)


def various(at_once: int) -> Callable[[], float]:
    """Requests of geometric lengths, of which so many come when all before them have ended."""
    draw = np.random.default_rng(0)
    lengths = np.minimum(draw.geometric(1 / MEAN_OUTPUT, REQUESTS), 6 * MEAN_OUTPUT).tolist()
    engine = make_engine(Sizes(SLOTS, PROMPT + 6 * MEAN_OUTPUT, PROMPT, page_size=None))
    given = zip(prompts(REQUESTS, PROMPT), lengths, strict=True)
    requests = [request(i, prompt, length) for i, (prompt, length) in enumerate(given)]
    parts = [requests[i : i + at_once] for i in range(0, REQUESTS, at_once)]
    return lambda: sum(answered(engine, part) for part in parts)


def prefill(page_size: int) -> Callable[[], float]:
    """The prompt of one request, and its first token; in slots without a size of pages."""
    engine = make_engine(Sizes(1, PREFILLED + 16, PREFILLED, page_size=page_size or None))
    (prompt,) = prompts(1, PREFILLED)
    return lambda: answered(engine, [request(0, prompt, 1)])


def forward() -> Callable[[], float]:
    """The forward pass of training over as many tokens."""
    params = init(SETTINGS, jax.random.key(0))
    loss = jax.jit(loss_fn(SETTINGS))
    tokens = np.concatenate([prompts(1, PREFILLED), [[0]]], axis=1)
    return lambda: float(loss(params, tokens))


WAYS: dict[str, Callable[..., Callable[[], float]]] = {
    "alike": alike,
    "continuous": lambda: various(REQUESTS),
    "static": lambda: various(SLOTS),
    "prefill": prefill,
    "forward": forward,
}

if __name__ == "__main__":
    way, *numbers = sys.argv[1:]
    serve(WAYS[way](*map(int, numbers)))
