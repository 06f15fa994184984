"""An engine writes what the decoder alone would, in any company, and every request ends."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.serve.engine import Engine, Event, Request, Sampling, Sizes
from jaxpar.serve.speculate import Speculation
from tests.serve.decoders import (
    CONTEXT,
    SETTINGS,
    SIZES,
    answers,
    collect,
    greedy,
    params_of,
    requests,
)

SLOTS = replace(SIZES, page_size=None)
WAYS: dict[str, dict[str, Any]] = {
    "pages": {"sizes": SIZES},
    "slots": {"sizes": SLOTS},
    "one at a time": {"sizes": Sizes(slots=1, context=CONTEXT, chunk=48, page_size=48)},
    "few pages": {"sizes": Sizes(slots=4, context=CONTEXT, chunk=5, page_size=3, pages=17)},
    "budget": {"sizes": replace(SIZES, budget=4)},
    "tp=2": {"sizes": SIZES, "mesh": "tp=2"},
    "tp=4 in slots": {"sizes": SLOTS, "mesh": "tp=4"},
    "cp=2": {"sizes": SIZES, "mesh": "cp=2"},
    "cp=3,tp=2 in slots": {"sizes": SLOTS, "mesh": "cp=3,tp=2"},
}


def engine(sizes: Sizes = SIZES, mesh: str | None = None, **how: Any) -> Engine:
    on = make_mesh(mesh) if mesh else None
    return Engine(SETTINGS, params_of(SETTINGS), sizes, mesh=on, **how)


@cache
def served(way: str) -> Engine:
    """The engine of a way, which several tests use one after the other."""
    return engine(**WAYS[way])


@contextmanager
def compiled() -> Iterator[list[str]]:
    """The programs that are compiled meanwhile."""
    found: list[str] = []

    def listen(event: str, _seconds: float, **_: Any) -> None:
        if "backend_compile" in event:
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_compiling_is_noticed() -> None:
    with compiled() as found:
        jax.jit(lambda x: x * 3 + 1)(np.arange(11))
    assert found


@pytest.mark.parametrize("way", WAYS)
def test_greedy_texts_are_those_of_the_whole_forward_pass(way: str) -> None:
    """In any company, with any chunks, in slots or pages, on one device or more."""
    asked = requests(9)
    got = answers(served(way), asked)
    for one in asked:
        expected = greedy(SETTINGS, params_of(SETTINGS), one.prompt, one.tokens)
        assert got[one.name] == expected, one


def test_few_pages_preempt() -> None:
    few = served("few pages")
    before = few.stats.preempted
    answers(few, requests(9))
    assert few.stats.preempted > before


@pytest.mark.parametrize("way", ["slots", "few pages", "tp=2"])
def test_the_same_seed_gives_the_same_text_in_any_company(way: str) -> None:
    """With top-k, top-p, neither, and greedy requests between them."""
    kinds = [
        Sampling(1.0, seed=5),
        Sampling(0.8, top_k=4, seed=6),
        Sampling(),
        Sampling(1.3, top_p=0.8, seed=7),
    ]
    asked = [replace(one, sampling=kinds[i % 4]) for i, one in enumerate(requests(8))]
    got = answers(served(way), asked)
    alone = served("one at a time")
    for one in asked:
        assert answers(alone, [one])[one.name] == got[one.name]
    other = replace(asked[0], sampling=Sampling(1.0, seed=50), tokens=20, prompt=(1, 2))
    same = replace(other, sampling=asked[0].sampling)
    assert answers(alone, [other]) != answers(alone, [same])


@pytest.mark.parametrize("way", ["pages", "slots"])
def test_two_programs_serve_any_stream(way: str) -> None:
    with compiled() as before:
        one = engine(**WAYS[way])
    assert before
    with compiled() as found:
        for seed in range(3):
            answers(one, requests(5, seed, sampling=Sampling(float(seed), seed, 0.9, seed)))
    assert not found
    assert one.stats.programs == 2


def test_a_stop_ends_a_text_and_is_not_told() -> None:
    (one,) = requests(1)
    text = greedy(SETTINGS, params_of(SETTINGS), one.prompt, CONTEXT - len(one.prompt))
    stop = text[3]
    asked = replace(one, tokens=len(text), stop=frozenset([stop]))
    serving = served("pages")
    serving.submit(asked)
    events = []
    while serving.busy:
        events += serving.step()
    assert [event.tokens for event in events] == [(t,) for t in text[: text.index(stop)]] + [()]
    assert [event.ended for event in events][-1] == "stop"
    assert serving.stats.pages_held == 0


def test_equal_beginnings_are_computed_once() -> None:
    prompt = tuple(range(20))
    serving = engine()
    first = answers(serving, [Request("a", prompt, 4)])["a"]
    assert serving.stats.prefilled == 20
    again = answers(serving, [Request("b", prompt, 4), Request("c", (*prompt, 3), 4)])
    assert again["b"] == first
    assert serving.stats.shared == 16 + 20
    assert again["c"] == greedy(SETTINGS, params_of(SETTINGS), (*prompt, 3), 4)


def test_a_cancelled_request_ends_and_its_pages_are_free() -> None:
    serving = served("pages")
    asked = [replace(one, tokens=CONTEXT - len(one.prompt)) for one in requests(5)]
    for one in asked:
        serving.submit(one)
    serving.step()
    running, waiting = asked[0].name, asked[4].name
    serving.cancel(running)
    serving.cancel(waiting)
    serving.cancel(waiting)
    serving.cancel("nobody")
    told = serving.step()
    assert told[:2] == [Event(running, (), "cancelled"), Event(waiting, (), "cancelled")]
    rest = collect(serving)
    assert running not in rest and waiting not in rest
    assert serving.stats.pages_held == 0
    assert serving.step() == [] and not serving.busy


def test_a_cancellation_is_told_even_if_nothing_else_is_left() -> None:
    serving = served("pages")
    steps = serving.stats.steps
    serving.submit(Request("a", (1, 2), 3))
    serving.cancel("a")
    assert serving.busy
    assert serving.step() == [Event("a", (), "cancelled")]
    assert not serving.busy and serving.stats.steps == steps
    serving.submit(Request("a", (1, 2), 3))  # the name is free again
    assert len(collect(serving)["a"]) == 3


@pytest.mark.parametrize("seed", range(3))
def test_random_streams_with_cancels_and_a_full_pool(seed: int) -> None:
    draw, asked = random.Random(seed), requests(14, seed)
    serving = served("few pages")
    told: list[Event] = []
    waiting = list(asked)
    while waiting or serving.busy:
        if waiting and draw.random() < 0.4:
            serving.submit(waiting.pop())
        if draw.random() < 0.1:
            serving.cancel(draw.choice(asked).name)
        told += serving.step()
        stats = serving.stats
        assert stats.pages_free + stats.pages_held == 17
        assert stats.running <= 4
    assert stats.pages_held == stats.running == stats.waiting == 0
    for one in asked:
        events = [event for event in told if event.name == one.name]
        assert [event.ended for event in events[:-1]] == [None] * (len(events) - 1)
        got = [token for event in events for token in event.tokens]
        expected = greedy(SETTINGS, params_of(SETTINGS), one.prompt, one.tokens)
        assert events[-1].ended in ("length", "cancelled")
        assert got == (expected if events[-1].ended == "length" else expected[: len(got)])


def test_8_bits_nearly() -> None:
    """Most texts are the same, and chunks do not matter."""
    asked = [replace(one, tokens=min(one.tokens, 8)) for one in requests(8)]
    got = answers(engine(cache="int8"), asked)
    right = [
        got[one.name] == greedy(SETTINGS, params_of(SETTINGS), one.prompt, one.tokens)
        for one in asked
    ]
    assert sum(right) >= 6
    sizes = replace(SIZES, chunk=3, slots=1)
    assert answers(engine(sizes, cache="int8"), asked) == got


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, positions="learned", norm="layer", mlp="gelu", tied=True, sequence=48),
        replace(SETTINGS, experts=4, capacity_factor=1.0),
    ],
    ids=["gpt", "experts"],
)
def test_other_decoders_on_two_devices(settings: Settings) -> None:
    asked, params = requests(4), params_of(settings)
    got = answers(Engine(settings, params, SIZES, mesh=make_mesh("tp=2")), asked)
    right, mlp = settings, params["layers"]["mlp"]
    if settings.experts:
        right = replace(settings, capacity_factor=None)
        mlp = {name: leaf for name, leaf in mlp.items() if name != "dropped"}
    params = params | {"layers": params["layers"] | {"mlp": mlp}}
    for one in asked:
        assert got[one.name] == greedy(right, params, one.prompt, one.tokens)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request("a", (), 3), "0 tokens of a prompt and 3 to generate; use 1 or more of each"),
        (Request("a", (1,), 0), "1 tokens of a prompt and 0 to generate"),
        (
            Request("a", (1,) * 40, 9),
            "40 tokens of a prompt and 9 to generate; a request has at most 48 in all; use a "
            "shorter prompt, or at most 8 tokens",
        ),
        (Request("a", (1, 32), 3), "token 32; the vocabulary has 32; use 0 to 31"),
        (Request("a", (-1, 1), 3), "token -1"),
    ],
)
def test_requests_that_are_refused(request_: Request, says: str) -> None:
    with pytest.raises(ValueError, match=f"Engine: request 'a': {says}"):
        served("few pages").submit(request_)
    assert not served("few pages").busy


def test_a_name_that_is_being_served() -> None:
    served("few pages").submit(Request("a", (1,), 3))
    with pytest.raises(ValueError, match="'a' is being served"):
        served("few pages").submit(Request("a", (1,), 3))
    collect(served("few pages"))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"sizes": replace(SIZES, budget=2)}, "Scheduler: a budget of 2 tokens for 3 slots"),
        ({"sizes": replace(SLOTS, pages=9)}, "Engine: 9 pages without a page_size"),
        ({"sizes": SLOTS, "cache": "int8"}, "Engine: a cache in int8 without a page_size"),
        ({"cache": "int4"}, "Engine: cache is 'int4'; use one of model, int8"),
        ({"mesh": "dp=2,tp=2"}, r"Engine: mesh axis dp \(size 2\)"),
        ({"mesh": "cp=3"}, r"Engine: dim s .* \(size 4\) must be divisible by mesh axis cp"),
        ({"mesh": "tp=3"}, r"Split: heads: dim a \(size 4\) must be divisible by mesh axis tp"),
        (
            {"speculation": Speculation(2, replace(SETTINGS, vocabulary=64))},
            "Engine: a draft with a vocabulary of 64, and a model with one of 32",
        ),
    ],
)
def test_sizes_that_do_not_fit(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        engine(**how)


def test_more_numbers_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="Sizes: chunk is 0"):
        Sizes(chunk=0)
    with pytest.raises(ValueError, match="Speculation: most is 0"):
        Speculation(0)
    learned = replace(SETTINGS, positions="learned", sequence=32)
    with pytest.raises(ValueError, match=r"a context of 48 tokens; .* reach 32; use 32 or fewer"):
        Engine(learned, {}, SIZES)
