"""Replicas that die while requests come, leave and end; without HTTP."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jaxpar.serve import replicas as replicas_module
from jaxpar.serve.engine import Event, Request
from jaxpar.serve.metrics import Metrics
from jaxpar.serve.replicas import FullError, NotServedError, Replicas
from tests.serve.serving import PAGES, SLOTS, StandIn, text_after


def run(
    engines: list[StandIn], body: Callable[[Replicas], Coroutine[Any, Any, None]], queue: int = 20
) -> None:
    async def inside() -> None:
        replicas = Replicas(engines, Metrics(), slots=SLOTS, queue=queue)
        try:
            async with asyncio.timeout(60):
                await body(replicas)
        finally:
            for engine in engines:
                engine.release()
            replicas.close()

    asyncio.run(inside())


def request(name: str, tokens: int = 10) -> Request:
    return Request(name, tuple(name.encode()), tokens)


async def whole(replicas: Replicas, name: str, tokens: int = 10) -> str:
    job = await replicas.begin(request(name, tokens), time.perf_counter())
    try:
        text, ended = [], None
        while not ended:
            new, ended = await job.more()
            text += new
        return bytes(text).decode()
    finally:
        replicas.release(job)


def test_the_least_loaded_takes_the_next() -> None:
    engines = [StandIn(), StandIn(), StandIn()]

    async def body(replicas: Replicas) -> None:
        for engine in engines:
            engine.hold()
        begun = [asyncio.create_task(replicas.begin(request(str(i)), 0.0)) for i in range(7)]
        await asyncio.sleep(0)
        assert [len(one.jobs) for one in replicas.all] == [3, 2, 2]
        for engine in engines:
            engine.release()
        for task in begun:
            replicas.release(await task)
        assert replicas.open == 0

    run(engines, body)


def test_a_replica_that_dies_in_a_step_is_replaced() -> None:
    """The last one alive serves all; without it, all fail, and nothing stays open."""
    engines = [StandIn(), StandIn(), StandIn()]

    async def body(replicas: Replicas) -> None:
        async def break_all() -> None:
            for engine in engines[:2]:
                await asyncio.sleep(0.005)
                engine.raises = RuntimeError("broken")

        names = [f"request {i}" for i in range(12)]
        texts, _ = await asyncio.gather(
            asyncio.gather(*(whole(replicas, name, 30) for name in names)), break_all()
        )
        assert texts == [text_after(name, 30) for name in names]
        engines[2].raises = RuntimeError("broken")
        for _ in range(3):
            with pytest.raises(NotServedError, match="no replica"):
                while True:
                    await whole(replicas, "more")
        assert replicas.open == 0
        assert [one.why for one in replicas.all if not one.alive][-1:] == ["RuntimeError"]

    run(engines, body)


class Refusing(StandIn):
    """An engine that cannot even take a request."""

    def submit(self, request: Request) -> None:
        raise MemoryError("nothing is left")


def test_an_error_that_is_no_refusal_is_the_death_of_a_replica() -> None:
    async def body(replicas: Replicas) -> None:
        names = [f"request {i}" for i in range(12)]
        texts = await asyncio.gather(*(whole(replicas, name, 30) for name in names))
        assert texts == [text_after(name, 30) for name in names]
        while len(replicas.alive) > 1:
            await asyncio.sleep(0)
        assert replicas.all[-1].alive
        assert replicas.metrics.reruns == 0
        assert not any(one.jobs for one in replicas.all)

    run([*(Refusing() for _ in range(5)), StandIn()], body)


def test_a_request_that_does_not_fit_is_refused_and_forgotten() -> None:
    async def body(replicas: Replicas) -> None:
        for _ in range(SLOTS + 25):
            with pytest.raises(ValueError, match="at most 64"):
                await whole(replicas, "hello", 60)
        assert replicas.open == 0
        assert replicas.alive

    run([StandIn()], body)


def test_there_is_a_limit_to_open_requests() -> None:
    async def body(replicas: Replicas) -> None:
        jobs = [await replicas.begin(request(str(i)), 0.0) for i in range(SLOTS + 2)]
        for _ in range(3):
            with pytest.raises(FullError) as full:
                await replicas.begin(request("more"), 0.0)
            assert 1 <= full.value.seconds <= 60
        for job in jobs:
            replicas.release(job)
        assert await whole(replicas, "more") == text_after("more", 10)

    run([StandIn()], body, queue=2)


def test_a_dead_replica_takes_its_slots_with_it() -> None:
    async def body(replicas: Replicas) -> None:
        replicas.all[0].kill()
        while replicas.all[0].alive:
            await asyncio.sleep(0)
        jobs = [await replicas.begin(request(str(i)), 0.0) for i in range(SLOTS + 1)]
        with pytest.raises(FullError):
            await replicas.begin(request("more"), 0.0)
        for job in jobs:
            replicas.release(job)

    run([StandIn(), StandIn()], body, queue=1)


def test_a_client_that_leaves_while_its_request_is_moved_is_forgotten() -> None:
    engines = [StandIn(), StandIn()]

    async def body(replicas: Replicas) -> None:
        engines[1].hold()
        job = await replicas.begin(request("moved", 40), 0.0)
        assert job.replica is replicas.all[0]
        replicas.all[0].kill()
        while replicas.all[0].alive:
            await asyncio.sleep(0)
        replicas.release(job)
        engines[1].release()
        dead, alive = await replicas.stats()
        assert dead is None
        assert alive and alive.running + alive.waiting == 0
        assert (alive.pages_free, alive.pages_held) == (PAGES, 0)
        assert not replicas.all[1].jobs

    run(engines, body)


def test_a_replica_that_does_not_answer_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_module, "SECONDS_TO_ANSWER", 0.05)
    engines = [StandIn(), StandIn()]

    async def body(replicas: Replicas) -> None:
        engines[0].hold()
        job = await replicas.begin(request("stuck"), 0.0)
        stuck, well = await replicas.stats()
        assert stuck is None
        assert well and well.pages_free == PAGES
        engines[0].release()
        replicas.release(job)

    run(engines, body)


def test_tokens_that_nobody_reads_wait_for_their_reader() -> None:
    async def body(replicas: Replicas) -> None:
        job = await replicas.begin(request("slow", 20), 0.0)
        while not job.ended:
            await asyncio.sleep(0.001)
        tokens, ended = await job.more()
        assert bytes(tokens).decode() == text_after("slow", 20)
        assert ended == "length"
        replicas.release(job)

    run([StandIn()], body)


def test_times_are_measured() -> None:
    async def body(replicas: Replicas) -> None:
        await whole(replicas, "hello", 10)
        metrics = replicas.metrics
        assert sum(metrics.first_token.counts) == 1
        assert sum(metrics.gap.counts) == 9
        assert (metrics.prompt_tokens, metrics.generated_tokens) == (5, 10)

    run([StandIn()], body)


def test_an_event_of_several_tokens_is_read_whole() -> None:
    class Drafts(StandIn):
        """Tells all tokens of a request at once."""

        def step(self) -> list[Event]:
            told: dict[str, list[Event]] = {}
            while any(name not in told or not told[name][-1].ended for name in self._all):
                for event in super().step():
                    told.setdefault(event.name, []).append(event)
            return [
                Event(name, sum((one.tokens for one in some), ()), some[-1].ended)
                for name, some in told.items()
            ]

    async def body(replicas: Replicas) -> None:
        assert await whole(replicas, "hello", 10) == text_after("hello", 10)
        assert sum(replicas.metrics.gap.counts) == 9

    run([Drafts()], body)
