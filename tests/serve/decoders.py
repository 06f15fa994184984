"""A small decoder, the texts that it writes when nothing is cached, and engines that serve it."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.model import Settings, init, logits
from jaxpar.serve.engine import Engine, Event, Request, Sizes

SETTINGS = Settings(vocabulary=32, layers=2, d_model=32, heads=4, kv_heads=2)
CONTEXT = 48
SIZES = Sizes(slots=3, context=CONTEXT, chunk=8, page_size=4)


@cache
def params_of(settings: Settings, seed: int = 0) -> Any:
    """Random parameters, with a head that makes some tokens much more likely than others."""
    params = init(settings, jax.random.key(seed))
    return params | ({} if settings.tied else {"head": 30 * params["head"]})


@cache
def forward(settings: Settings) -> Any:
    return jax.jit(partial(logits, settings))


def greedy(settings: Settings, params: Any, prompt: tuple[int, ...], tokens: int) -> list[int]:
    """The most likely tokens after a prompt: the whole text is computed again for each."""
    text = [*prompt, *[0] * (CONTEXT - len(prompt))]
    for at in range(len(prompt), len(prompt) + tokens):
        found = forward(settings)(params, jnp.asarray([text]))
        text[at] = int(np.argmax(found[0, at - 1]))
    return text[len(prompt) : len(prompt) + tokens]


def requests(count: int, seed: int = 0, **how: Any) -> list[Request]:
    """Requests of all lengths that fit."""
    draw = np.random.default_rng(seed)
    made = []
    for i in range(count):
        prompt = draw.integers(0, SETTINGS.vocabulary, draw.integers(1, CONTEXT - 1)).tolist()
        most = int(draw.integers(1, CONTEXT - len(prompt) + 1))
        made.append(Request(f"request {i}", tuple(prompt), most, **how))
    return made


def answers(engine: Engine, asked: list[Request]) -> dict[str, list[int]]:
    """What an engine answers to requests that come at once; each ends once."""
    for request in asked:
        engine.submit(request)
    return collect(engine)


def collect(engine: Engine) -> dict[str, list[int]]:
    """All tokens until all requests have ended."""
    told: list[Event] = []
    while engine.busy:
        told += engine.step()
    ends = [event.name for event in told if event.ended]
    assert len(set(ends)) == len(ends)
    names = dict.fromkeys(event.name for event in told)
    assert set(ends) == set(names)
    return {name: [t for one in told if one.name == name for t in one.tokens] for name in names}
