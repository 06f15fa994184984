"""Decoding by our engine: requests that run at once, of which a step generates some tokens each."""

import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.sides.race import serve
from jaxpar.model import Settings, init
from jaxpar.serve.engine import Engine, Request, Sizes

SETTINGS = Settings()
PROMPT, CONTEXT, TOKENS = 256, 512, 8


def prompts(b: int, length: int = PROMPT) -> np.ndarray:
    """Random tokens, the same in every side that races, [b, t]."""
    return np.random.default_rng(0).integers(0, SETTINGS.vocabulary, (b, length))


def make_engine(sizes: Sizes, settings: Settings = SETTINGS, dtype: str = "float32") -> Engine:
    """An engine with the first parameters."""
    params = jax.tree.map(lambda x: x.astype(jnp.dtype(dtype)), init(settings, jax.random.key(0)))
    return Engine(settings, params, sizes)


def request(name: int, prompt: Sequence[int], tokens: int) -> Request:
    return Request(str(name), tuple(map(int, prompt)), tokens)


def decode(
    b: int,
    page_size: int | None,
    length: int,
    context: int,
    settings: Settings = SETTINGS,
    dtype: str = "float32",
) -> None:
    """Each step generates some tokens of every request; what it tells for a loss is their sum."""
    # With this budget a step computes all prompts, and no request is ahead of another.
    sizes = Sizes(b, context, length, budget=b * length, page_size=page_size)
    engine = make_engine(sizes, settings, dtype)
    for i, prompt in enumerate(prompts(b, length)):
        engine.submit(request(i, prompt, context - length))
    engine.step()

    def step() -> float:
        told = [event for _ in range(TOKENS) for event in engine.step()]
        assert len(told) == b * TOKENS
        return float(sum(sum(event.tokens) for event in told))

    serve(step)


if __name__ == "__main__":
    b, page_size, length, context = map(int, sys.argv[1:])
    decode(b, page_size or None, length, context)
