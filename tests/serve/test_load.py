"""Clients against a stand-in: what they note, and what they call a failure."""

import asyncio
import threading
import time
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from jaxpar.serve.load import Kill, run_load
from jaxpar.serve.measures import Objectives, summary
from jaxpar.serve.workload import Load, Planned, plan
from tests.serve.serving import PAGES, SLOTS, Client, StandIn, running, served, until


def url(client: Client) -> str:
    return str(client.base_url)


def test_every_client_is_noted() -> None:
    load = Load(rate=500, requests=60, prompt=(1, 20), output=(1, 40), leave=0.3)
    planned = plan(load)
    with served([StandIn()], queue=100) as client:
        loaded = run_load(f"{url(client)}/v1/", planned)
        until(lambda: client.pages() == [(PAGES, 0)])
    for one, outcome in zip(planned, loaded.outcomes, strict=True):
        assert outcome.arrival == one.arrival
        if one.leaves_after is None:
            assert (outcome.failed, outcome.tokens) == (None, one.output)
            assert outcome.end >= outcome.times[-1] >= outcome.times[0] > outcome.arrival
        else:
            assert outcome.failed in ("left", None)  # the last parts may have come at once
    assert any(one.failed for one in loaded.outcomes)
    assert loaded.cpu_seconds > 0
    assert not summary(loaded.outcomes, Objectives()).failed


def test_requests_do_not_wait_for_one_another() -> None:
    """All are sent while the server does nothing, and each counts from its own arrival."""
    engine = StandIn()
    planned = [Planned(0.1 * place, 4, 4) for place in range(SLOTS)]
    with served([engine]) as client:
        engine.hold()

        def release() -> None:
            until(lambda: client.service.replicas.open == SLOTS)
            engine.release()

        waiting = threading.Thread(target=release)
        waiting.start()
        outcomes = run_load(url(client), planned).outcomes
        waiting.join()
    seconds = [one.first_token_seconds for one in outcomes]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 0.1 * (SLOTS - 1)


class Slow(StandIn):
    """A request takes longer than others take to arrive."""

    def step(self) -> list:
        time.sleep(0.005)
        return super().step()


def test_what_is_refused_fails_by_its_status() -> None:
    with served([Slow()], slots=1, queue=0) as client:
        loaded = run_load(url(client), [Planned(0.0, 4, 40)] * 8 + [Planned(0.5, 60, 40)])
    kinds = summary(loaded.outcomes, Objectives()).failures
    assert kinds["HTTP 429"] > 0
    assert kinds["HTTP 400"] == 1


def test_a_replica_is_killed_and_nobody_notices() -> None:
    load = Load(rate=200, requests=40, prompt=(1, 20), output=(30, 40))
    with served([Slow(), Slow()], queue=100, kill=True) as client:
        loaded = run_load(url(client), plan(load), kill=Kill(0, 0.1))
        health = client.get("/health").json()
    assert all(one.failed is None for one in loaded.outcomes)
    assert [one["alive"] for one in health["replicas"]] == [False, True]
    assert health["reruns"] > 0


def test_a_server_that_kills_nothing_is_not_asked_to() -> None:
    with served([StandIn()]) as client, pytest.raises(ValueError, match="--allow-kill"):
        run_load(url(client), [Planned(0.0, 1, 1)], kill=Kill(0, 0.0))
    with served([StandIn()], kill=True) as client, pytest.raises(ValueError, match="1 replicas"):
        run_load(url(client), [Planned(0.0, 1, 1)], kill=Kill(1, 0.0))


@pytest.mark.parametrize("bad", ["http://127.0.0.1:1", "127.0.0.1", "ftp://a", "http://[", ""])
def test_no_server_is_no_load(bad: str) -> None:
    with pytest.raises(ValueError, match="no server"):
        run_load(bad, [Planned(0.0, 1, 1)])


PART = 'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
LAST = 'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\n'
DONE = "data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("parts", "failed"),
    [
        ([PART, LAST, DONE], None),
        ([PART, PART, DONE], "broken off"),
        ([PART], "broken off"),
        ([], "broken off"),
        ([PART, 'data: {"error": {"message": "b"}}\n\n'], "error in the stream"),
        ([PART, "data: {\n\n"], "not understood"),
        ([PART, "data: 7\n\n"], "not understood"),
        ([": a comment\n\n", "event: x\n", LAST, DONE], None),
    ],
)
def test_other_servers_may_answer_badly(parts: list[str], failed: str | None) -> None:
    async def models(request: Any) -> JSONResponse:
        return JSONResponse({"data": [{"id": "another"}]})

    async def complete(request: Any) -> StreamingResponse:
        assert (await request.json())["model"] == "another"

        async def stream() -> Any:
            for part in parts:
                await asyncio.sleep(0)
                yield part

        return StreamingResponse(stream(), media_type="text/event-stream")

    routes = [Route("/v1/models", models), Route("/v1/completions", complete, methods=["POST"])]
    with running(Starlette(routes=routes)) as address:
        (outcome,) = run_load(address, [Planned(0.0, 3, 3)]).outcomes
    assert outcome.failed == failed
