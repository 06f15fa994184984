"""Signals to a server that is a process of its own, while it streams; and its address."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from jaxpar.serve.server import listen
from tests.serve.serving import events, text_after

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from jaxpar.serve.http import Limits, Service
from jaxpar.serve.server import listen, run
from tests.serve.serving import SERVED, SLOTS, StandIn

class Slow(StandIn):
    def step(self):
        time.sleep({step})
        return super().step()

listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
sys.exit(run(Service(SERVED, [Slow()], Limits(SLOTS)), listener, grace_seconds={grace}))
"""


@pytest.fixture
def start() -> Iterator:
    """Starts a server with these seconds, and returns its process and a client of it."""
    ended = []

    def start(*, step: float, grace: float) -> tuple[subprocess.Popen[str], httpx.Client]:
        program = PROGRAM.format(step=step, grace=grace)
        process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        ended.append(process)
        assert process.stdout
        port = int(process.stdout.readline())
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        ended.append(client)
        return process, client

    yield start
    for one in reversed(ended):
        if isinstance(one, httpx.Client):
            one.close()
        else:
            one.kill()
            one.communicate()


BODY = {"prompt": "hello", "max_tokens": 40, "temperature": 0, "stream": True}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_ends_in_the_time_of_grace(start, number: int) -> None:
    process, client = start(step=0.01, grace=60)
    with client.stream("POST", "/v1/completions", json=BODY) as response:
        parts = events(response.iter_lines())
        text = next(parts)["choices"][0]["text"]
        process.send_signal(number)
        *rest, end = parts
    assert end is None
    text += "".join(part["choices"][0]["text"] for part in rest)
    assert text == text_after("hello", 40)
    assert process.wait(60) == number
    assert process.communicate()[1] == ""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
def test_what_does_not_end_is_told(start) -> None:
    process, client = start(step=0.5, grace=0.1)
    with client.stream("POST", "/v1/completions", json=BODY) as response:
        parts = events(response.iter_lines())
        next(parts)
        process.send_signal(signal.SIGTERM)
        *_, last = parts
    assert "shutting down" in last["error"]["message"]
    assert process.wait(60) == signal.SIGTERM
    with pytest.raises(httpx.ConnectError):
        client.get("/health")


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
def test_a_client_that_does_not_read_does_not_hold_the_server(start) -> None:
    process, client = start(step=0.0, grace=0.1)
    assert client.get("/health").status_code == 200
    with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
        body = json.dumps(BODY).encode()
        head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        raw.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == signal.SIGTERM


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_an_address(host: str) -> None:
    try:
        listener = listen(host, 0)
    except ValueError:
        pytest.skip(f"this machine has no {host}")
    with listener:
        assert listener.getsockname()[1] > 0


def test_an_address_that_cannot_be_had_is_refused() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"--port {port}: .*use"):
            listen("127.0.0.1", port)
    with pytest.raises(ValueError, match=r"--host no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)
