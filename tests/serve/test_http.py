"""The server in front of a stand-in: answers, errors, limits, clients that leave, and death."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxpar.serve.http import Served
from jaxpar.serve.text import Bytes
from tests.serve.serving import (
    HEADERS,
    PAGES,
    SLOTS,
    Client,
    StandIn,
    events,
    served,
    text_after,
    until,
)


@pytest.fixture
def engine() -> StandIn:
    return StandIn()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a server that several tests share."""
    with served([StandIn()]) as client:
        yield client


def streamed(client: Client, prompt: str, **more: object) -> list:
    body = {"prompt": prompt, "stream": True} | more
    with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.headers["content-type"] == "text/event-stream"
        return list(events(response.iter_lines()))


def test_an_answer_has_openais_form(engine: StandIn) -> None:
    with served([engine]) as client:
        answer = client.ask("hello", max_tokens=7).json()
        assert answer.pop("id").startswith("cmpl-")
        assert abs(answer.pop("created") - time.time()) < 60
        text = text_after("hello", 7)
        assert answer == {
            "object": "text_completion",
            "model": "small",
            "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        }
        assert client.ask(list(b"hello"), max_tokens=7).json()["choices"][0]["text"] == text
        assert client.get("/v1/models").json()["data"][0]["id"] == "small"


def test_a_stream_has_the_same_text(engine: StandIn) -> None:
    with served([engine]) as client:
        *parts, counts, end = streamed(
            client, "hello", max_tokens=7, stream_options={"include_usage": True}
        )
        assert end is None
        choices = [part["choices"][0] for part in parts]
        assert "".join(one["text"] for one in choices) == text_after("hello", 7)
        assert [one["finish_reason"] for one in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1]["finish_reason"] == "length"
        assert (counts["choices"], counts["usage"]["completion_tokens"]) == ([], 7)
        assert len({part["id"] for part in parts}) == 1


def test_a_stop_string_ends_both_forms_at_the_same_token(engine: StandIn) -> None:
    text = text_after("hello", 30)
    stop = text[10:13]
    at = text.index(stop)
    with served([engine]) as client:
        answer = client.ask("hello", max_tokens=30, stop=stop).json()
        assert answer["choices"][0]["text"] == text[:at]
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == at + len(stop)
        *parts, _ = streamed(client, "hello", max_tokens=30, stop=["nothing", stop])
        assert "".join(part["choices"][0]["text"] for part in parts) == text[:at]
        until(lambda: client.pages() == [(PAGES, 0)])


class Accents(Bytes):
    """Tokens are letters to the engine, and become two bytes each for the client."""

    def stream(self, prompt):
        inner = super().stream(prompt)

        class Stream:
            def feed(self, tokens):
                (token,) = tokens
                return inner.feed([0xC3]) + inner.feed([0xA0 + token % 32])

            close = staticmethod(inner.close)

        return Stream()


def test_streams_have_whole_characters(engine: StandIn) -> None:
    with served([engine], Served("small", 64, Accents())) as client:
        *parts, _ = streamed(client, "hello", max_tokens=5)
        text = "".join(part["choices"][0]["text"] for part in parts)
        letters = text_after("hello", 5)
        assert text == "".join(chr(0xE0 + ord(letter) % 32) for letter in letters)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "not JSON"),
        (b"[]", 400, "list"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"prompt": "a", "max_tokens": 1' + b"0" * 5000 + b"}", 400, "not JSON"),
        (b'{"prompt": "\\ud800"}', 400, "character"),
        (b'{"prompt": ""}', 400, "prompt"),
        (b'{"prompt": ["a", "b"]}', 400, "prompt"),
        (b'{"prompt": [true]}', 400, "prompt"),
        (b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 1.5}', 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": true}', 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 64}', 400, "at most 64"),
        (b'{"prompt": "a", "temperature": NaN}', 400, "temperature"),
        (b'{"prompt": "a", "temperature": Infinity}', 400, "temperature"),
        (b'{"prompt": "a", "temperature": "hot"}', 400, "temperature"),
        (b'{"prompt": "a", "top_p": 0}', 400, "top_p"),
        (b'{"prompt": "a", "top_k": 99999999999}', 400, "top_k"),
        (b'{"prompt": "a", "seed": -1}', 400, "seed"),
        (b'{"prompt": "a", "stop": [""]}', 400, "stop"),
        (b'{"prompt": "a", "stop": {"a": 1}}', 400, "stop"),
        (b'{"prompt": "a", "stream": 1}', 400, "stream"),
        (b'{"prompt": "a", "stream_options": []}', 400, "stream_options"),
        (b'{"prompt": "a", "n": 2}', 400, "n is 2"),
        (b'{"prompt": "a", "echo": true}', 400, "echo"),
        (b'{"prompt": "a", "model": "other"}', 404, "model"),
        (b'{"prompt": "' + b"a" * (1 << 20) + b'"}', 413, "too large"),
    ],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else str(value),
)
def test_bad_bodies_are_refused(client: Client, body: bytes, status: int, word: str) -> None:
    response = client.post("/v1/completions", content=body, headers=HEADERS)
    error = response.json()["error"]
    assert response.status_code == status
    assert word in error["message"]
    assert "Engine" not in error["message"] and "cmpl-" not in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert client.ask("a").status_code == 200


def test_a_request_that_no_pages_hold_is_refused_while_others_wait() -> None:
    engine = StandIn(pages=8)
    with served([engine]) as client, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.ask, "hello", max_tokens=25) for _ in range(3)]
        refused = client.ask("hello", max_tokens=40)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].endswith(
            "need 11 pages; there are 8; use 33 tokens or fewer"
        )
        assert [one.result().status_code for one in asked] == [200] * 3
        until(lambda: client.pages() == [(8, 0)])


def test_other_errors_have_openais_form_too(engine: StandIn) -> None:
    with served([engine]) as client:
        for response, status in (
            (client.get("/nothing"), 404),
            (client.get("/v1/completions"), 405),
            (client.post("/v1/completions", content=b"{}"), 415),
            (client.post("/replicas/0/kill", json={}), 404),
        ):
            assert response.status_code == status
            assert response.json()["error"]["message"]


def test_the_page_loads_nothing(engine: StandIn) -> None:
    with served([engine]) as client:
        page = client.get("/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "//" not in page.text.replace("// ", "")
        assert "innerHTML" not in page.text


def test_too_many_requests_are_refused_and_later_ones_served(engine: StandIn) -> None:
    engine.hold()
    with served([engine], queue=2) as client, ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(client.ask, f"prompt {i}") for i in range(SLOTS + 2)]
        until(lambda: client.get("/health").json()["open"] == SLOTS + 2)
        refused = client.ask("one more")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        engine.release()
        assert [one.result().status_code for one in asked] == [200] * (SLOTS + 2)
        until(lambda: client.get("/health").json()["open"] == 0)
        assert client.ask("one more").status_code == 200
        results = {'{result="length"}': SLOTS + 3, '{result="overloaded"}': 1}
        until(lambda: client.metric("jaxpar_requests_total") == results)
        assert client.pages() == [(PAGES, 0)]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_pages(engine: StandIn, stream: bool) -> None:
    with served([engine]) as client:
        engine.hold()
        body = json.dumps({"prompt": "hello", "max_tokens": 50, "stream": stream}).encode()
        raw = connect(client)
        raw.sendall(request(body))
        until(lambda: client.service.replicas.open == 1)
        raw.close()
        until(lambda: client.service.replicas.open == 0)
        engine.release()
        until(lambda: client.pages() == [(PAGES, 0)])
        assert client.metric("jaxpar_requests_total") == {'{result="left"}': 1}


def test_a_client_that_leaves_within_its_body_is_forgotten(engine: StandIn) -> None:
    with served([engine]) as client:
        with connect(client) as raw:
            raw.sendall(request(b'{"prompt": "a"}', length=1000))
        until(lambda: client.metric("jaxpar_requests_total") == {'{result="left"}': 1})
        assert client.ask("a").status_code == 200


def test_a_request_has_a_limit_of_time(engine: StandIn) -> None:
    engine.hold()
    with served([engine], seconds=0.2) as client:
        response = client.ask("hello")
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "timeout"
        engine.release()
        until(lambda: client.pages() == [(PAGES, 0)])


class Verbose(Bytes):
    """Each token is a text that no buffer of a socket holds."""

    def stream(self, prompt):
        inner = super().stream(prompt)

        class Stream:
            def feed(self, tokens):
                return 2_000_000 * inner.feed(tokens)

            close = staticmethod(inner.close)

        return Stream()


def test_a_client_that_does_not_read_is_left_after_its_time(engine: StandIn) -> None:
    with served([engine], Served("small", 64, Verbose()), seconds=0.5) as client:
        body = json.dumps({"prompt": "hello", "max_tokens": 50, "stream": True}).encode()
        with connect(client) as raw:
            raw.sendall(request(body))
            until(lambda: client.metric("jaxpar_requests_total") == {'{result="timeout"}': 1})
            assert client.service.replicas.open == 0
            assert client.pages() == [(PAGES, 0)]


def test_a_dead_replicas_requests_are_run_again() -> None:
    engines = [StandIn(), StandIn()]
    with served(engines, kill=True, queue=20) as client, ThreadPoolExecutor(20) as pool:
        for one in engines:
            one.hold()
        prompts = [f"prompt {i}" for i in range(12)]
        asked = [pool.submit(streamed, client, one, max_tokens=40) for one in prompts]
        until(lambda: client.get("/health").json()["open"] == 12)
        jobs = [list(replica.jobs.values()) for replica in client.service.replicas.all]
        assert list(map(len, jobs)) == [6, 6]
        for one in engines:
            one.release(5)
        until(lambda: all(job.placed for some in jobs for job in some))
        until(lambda: any(job.tokens for job in jobs[1]))
        assert client.post("/replicas/1/kill", json={}).status_code == 200
        for one in engines:
            one.release()
        for prompt, answer in zip(prompts, asked, strict=True):
            *parts, end = answer.result()
            text = "".join(part["choices"][0]["text"] for part in parts)
            assert (text, end) == (text_after(prompt, 40), None)
        health = client.get("/health").json()
        assert health["status"] == "degraded"
        assert health["reruns"] == client.metric("jaxpar_reruns_total")[""] == 6
        assert client.metric("jaxpar_replica_alive") == {
            '{replica="0"}': 1,
            '{replica="1"}': 0,
        }
        assert client.pages() == [(PAGES, 0)]  # a dead one has none


def test_without_a_replica_all_requests_fail() -> None:
    engine = StandIn()
    with served([engine]) as client, ThreadPoolExecutor(4) as pool:
        engine.hold()
        asked = pool.submit(client.ask, "hello")
        stream = pool.submit(client.ask, "hello", stream=True)
        until(lambda: client.get("/health").json()["open"] == 2)
        engine.raises = RuntimeError("no memory is left")
        engine.release()
        assert asked.result().status_code == stream.result().status_code == 503
        assert client.ask("hello").status_code == 503
        health = client.get("/health")
        assert health.status_code == 503
        assert health.json()["replicas"][0]["died_of"] == "RuntimeError"
        assert client.get("/metrics").status_code == 200


def test_what_runs_is_told_that_the_server_ends(engine: StandIn) -> None:
    with served([engine]) as client:
        body = {"prompt": "hello", "max_tokens": 50, "stream": True}
        engine.hold()
        engine.release(2)
        with client.stream("POST", "/v1/completions", json=body) as response:
            parts = events(response.iter_lines())
            next(parts)
            client.service.take_no_more()
            assert client.ask("hello").status_code == 503
            assert client.get("/health").json()["status"] == "shutting down"
            client.service.end_all()
            assert "shutting down" in list(parts)[-1]["error"]["message"]
        engine.release()


def test_many_clients_get_their_own_text(engine: StandIn) -> None:
    """More requests than slots and pages, some of which leave."""
    with served([engine, StandIn()], queue=100) as client, ThreadPoolExecutor(16) as pool:

        def one(number: int) -> None:
            prompt = f"{number} and more"
            if number % 5 == 0:
                body = {"prompt": prompt, "max_tokens": 40, "stream": True}
                with client.stream("POST", "/v1/completions", json=body) as response:
                    next(response.iter_lines())
                return
            if number % 5 == 1:
                assert client.ask(prompt, max_tokens=60).status_code == 400
                return
            text = client.ask(prompt, max_tokens=40).json()["choices"][0]["text"]
            assert text == text_after(prompt, 40)

        list(pool.map(one, range(100)))
        until(lambda: client.pages() == [(PAGES, 0)] * 2)
        assert client.service.replicas.open == 0


def connect(client: Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port))


def request(body: bytes, length: int | None = None) -> bytes:
    head = "POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {length or len(body)}\r\n\r\n".encode() + body
