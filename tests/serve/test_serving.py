"""The server in front of real engines: every request ends, with the text that it has alone."""

import gc
import json
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import pytest

from jaxpar.model import Settings, init
from jaxpar.serve.engine import Engine, Request, Sizes
from jaxpar.serve.http import Served
from jaxpar.serve.sampling import Sampling
from jaxpar.serve.text import Bytes
from tests.serve.decoders import collect
from tests.serve.quickly import compile_all_quickly
from tests.serve.serving import HEADERS, Client, events, served, until

SETTINGS = Settings(layers=1, d_model=32, heads=2)
SIZES = Sizes(slots=4, context=64, chunk=16, page_size=4, pages=30)
SERVED = Served("small", SIZES.context, Bytes())
STATUSES = {200, 400, 404, 405, 413, 415, 429}


@cache
def params() -> Any:
    made = init(SETTINGS, jax.random.key(0))
    return made | {"head": 30 * made["head"]}


def engine() -> Engine:
    return Engine(SETTINGS, params(), SIZES)


@pytest.fixture(scope="module")
def alone() -> Iterator[Engine]:
    """An engine that no server has."""
    with pytest.MonkeyPatch.context() as patch:
        compile_all_quickly(patch)
        yield engine()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of two replicas that several tests share."""
    with pytest.MonkeyPatch.context() as patch:
        compile_all_quickly(patch)
        engines = [engine(), engine()]
    with served(engines, SERVED, queue=200, body_bytes=1 << 12) as client:
        yield client


def asked(count: int, seed: int = 0) -> list[tuple[list[int], int, Sampling]]:
    """Prompts, tokens to generate, and how they are chosen: greedily or by a seed."""
    draw = random.Random(seed)
    return [
        (
            [draw.randrange(97, 123) for _ in range(draw.randint(1, 30))],
            draw.randint(1, 30),
            Sampling(draw.choice([0.0, 0.8]), draw.choice([0, 20]), draw.choice([1.0, 0.9]), i),
        )
        for i in range(count)
    ]


def text_of(alone: Engine, prompt: list[int], tokens: int, sampling: Sampling) -> str:
    """What an engine says that does nothing else."""
    alone.submit(Request("one", tuple(prompt), tokens, sampling, Bytes().stop))
    stream = Bytes().stream(prompt)
    return stream.feed(collect(alone).get("one", [])) + stream.close()


def body_of(prompt: list[int], tokens: int, sampling: Sampling) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens} | vars(sampling)


def streamed(client: Client, body: dict[str, Any]) -> str:
    """The text of a stream, which ends as it should."""
    with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        *parts, end = events(response.iter_lines())
    assert end is None
    assert parts[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    return "".join(part["choices"][0]["text"] for part in parts)


def all_pages_are_free(client: Client) -> bool:
    return set(client.pages()) == {(SIZES.pages, 0)}


def test_in_any_company_a_request_has_the_text_that_it_has_alone(
    client: Client, alone: Engine
) -> None:
    """There are fewer pages than the requests need, some clients leave, and some ask too much."""

    def one(number: int, prompt: list[int], tokens: int, sampling: Sampling) -> str | None:
        body = body_of(prompt, tokens, sampling)
        if number % 6 == 0:
            with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
                next(answer.iter_lines())
            return None
        if number % 6 == 1:
            assert client.ask(prompt, max_tokens=64).status_code == 400
            return None
        if number % 6 < 4:
            return streamed(client, body)
        return client.post("/v1/completions", json=body).json()["choices"][0]["text"]

    everything = asked(60)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(one, range(60), *zip(*everything, strict=True)))
    for number, (its, text) in enumerate(zip(everything, found, strict=True)):
        assert text is None or text == text_of(alone, *its), number
    assert sum(client.metric("jaxpar_preemptions_total").values()) > 0
    until(lambda: all_pages_are_free(client))
    assert client.service.replicas.open == 0


def test_the_text_survives_the_death_of_a_replica(alone: Engine) -> None:
    everything = asked(12, seed=1)
    with served([engine(), engine()], SERVED, kill=True) as client, ThreadPoolExecutor(12) as pool:
        bodies = [body_of(prompt, 30, sampling) for prompt, _, sampling in everything]
        found = [pool.submit(streamed, client, body) for body in bodies]
        replica = client.service.replicas.all[1]
        until(lambda: any(job.tokens for job in list(replica.jobs.values())))
        client.post("/replicas/1/kill", json={})
        for (prompt, _, sampling), text in zip(everything, found, strict=True):
            assert text.result() == text_of(alone, prompt, 30, sampling)
        assert client.get("/health").json()["reruns"] > 0
        until(lambda: all_pages_are_free(client))


def test_hostile_requests_are_answered_and_forgotten(client: Client, alone: Engine) -> None:
    """Neither requests nor memory stay behind, and others have their own text meanwhile."""
    draw = random.Random(0)
    objects = []
    its = asked(1, seed=2)[0]
    text = text_of(alone, *its)
    for _ in range(4):
        for _ in range(150):
            hostile = strange_body(draw)
            response = client.post("/v1/completions", content=hostile, headers=HEADERS)
            assert response.status_code in STATUSES, hostile
            if response.status_code != 200:
                error = response.json()["error"]
                assert error["message"] and len(error["message"]) < 1000
                assert "Traceback" not in response.text
        for _ in range(20):
            strange_bytes(client, draw)
        assert (
            client.post("/v1/completions", json=body_of(*its)).json()["choices"][0]["text"] == text
        )
        until(lambda: all_pages_are_free(client) and client.service.replicas.open == 0)
        gc.collect()
        objects.append(len(gc.get_objects()))
    assert objects[-1] - objects[1] < 1000
    assert "error" not in str(client.metric("jaxpar_requests_total"))


STRANGE = [
    None, True, False, 0, 1, -1, 3, 1.5, 1e308, -1e-308, float("nan"), float("inf"), 2**31, 2**63,
    10**400, "", "a", "\ud800", "\udc80", "\x00", "a" * 100, [], [0], [255], [256], [-1], [2**70],
    [1.0], [True], ["a"], [[]], {}, {"a": []}, [97] * 70, "\u20ac" * 20, "data: [DONE]\n\n",
]  # fmt: skip
FIELDS = [
    "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stream", "n", "echo",
    "model", "stream_options", "logprobs", "suffix", "logit_bias", "user", "", "\x00",
]  # fmt: skip


def strange_body(draw: random.Random) -> bytes:
    """A body of which at least one field is seldom sent."""
    body: Any = {"prompt": "hello", "max_tokens": 3}
    for name in draw.sample(FIELDS, draw.randint(1, 3)):
        body[name] = draw.choice(STRANGE)
    if draw.random() < 0.1:
        body = draw.choice(STRANGE)
    data = json.dumps(body).encode()
    if draw.random() < 0.2:
        cut = draw.randrange(len(data))
        data = (
            data[:cut] + draw.randbytes(draw.randint(0, 5)) + data[draw.randint(cut, len(data)) :]
        )
    if draw.random() < 0.02:
        data = draw.choice([b"[" * 4000, b'{"a":' * 800, b" " * 5000, b'"' + b"a" * 4090])
    return data


def strange_bytes(client: Client, draw: random.Random) -> None:
    """Something that is no HTTP, or ends early."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    sent = draw.choice([
        draw.randbytes(200),
        head,
        head + b"content-length: 10\r\n\r\n{",
        head + b"content-length: -1\r\n\r\n{}",
        head + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        head + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        head + b"x: " + b"a" * 70_000 + b"\r\n\r\n",
        head + b'content-length: 46\r\n\r\n{"prompt": "a", "stream": true, "max_tokens":9}',
        b"GET /%ff%00/../ HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ])  # fmt: skip
    with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
        raw.sendall(sent)
        if draw.random() < 0.5:
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(60)
            while raw.recv(1 << 16):
                pass
