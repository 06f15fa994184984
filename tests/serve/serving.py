"""An engine without a model, and servers on ports of their own, for tests of what is around it."""

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from jaxpar.batching.pages import PagePool
from jaxpar.batching.scheduler import Generation, Scheduler
from jaxpar.serve.completions import Limits, Served
from jaxpar.serve.engine import Event, Request, Stats
from jaxpar.serve.http import Service
from jaxpar.serve.server import listen
from jaxpar.serve.text import Bytes

SLOTS, CONTEXT, PAGES, PAGE_SIZE = 4, 64, 40, 4
SERVED = Served("small", CONTEXT, Bytes())
HEADERS = {"content-type": "application/json"}


def next_token(tokens: Sequence[int]) -> int:
    """A letter that depends on all that stands before it."""
    return 97 + zlib.crc32(bytes(tokens)) % 26


def text_after(prompt: str, count: int) -> str:
    """What a stand-in answers to a prompt."""
    tokens = list(prompt.encode())
    for _ in range(count):
        tokens.append(next_token(tokens))
    return bytes(tokens[-count:]).decode()


class StandIn:
    """The interface of an engine, with its scheduler and pages, whose next token is a formula.

    Attributes:
        raises: what the next step raises.
    """

    def __init__(self, pages: int = PAGES) -> None:
        self._pool = PagePool(pages, PAGE_SIZE)
        self._scheduler = Scheduler(self._pool, slots=SLOTS, chunk=8, budget=16)
        self._all: dict[str, tuple[Generation, frozenset[int]]] = {}
        self._told: list[Event] = []
        self._held, self._steps = False, threading.Semaphore(0)
        self.raises: Exception | None = None

    def hold(self) -> None:
        """Lets each step wait for `release`."""
        self._held = True

    def release(self, steps: int | None = None) -> None:
        """Lets so many steps go on; None: all."""
        self._held &= steps is not None
        self._steps.release(steps or 1)

    @property
    def busy(self) -> bool:
        return bool(self._all or self._told)

    @property
    def stats(self) -> Stats:
        scheduler, pool = self._scheduler, self._pool
        return Stats(
            len(scheduler.waiting), len(scheduler.running), pool.free, pool.held,
            preempted=scheduler.preempted,
        )  # fmt: skip

    def submit(self, request: Request) -> None:
        if len(request.prompt) + request.tokens > CONTEXT:
            raise ValueError(f"Engine: request {request.name!r}: at most {CONTEXT} tokens")
        one = Generation(request.name, list(request.prompt), len(request.prompt) + request.tokens)
        self._scheduler.add(one)
        self._all[one.name] = one, request.stop

    def cancel(self, name: str) -> None:
        if name in self._all:
            self._scheduler.finish(self._all.pop(name)[0])
            self._told.append(Event(name, (), "cancelled"))

    def step(self) -> list[Event]:
        if self._held:
            self._steps.acquire()
        if self.raises:
            raise self.raises
        told, self._told = self._told, []
        for work in self._scheduler.next():
            one, known = work.generation, work.ends_known
            self._scheduler.record(work, [next_token(one.tokens)] if known else [])
            if known:
                ended = "length" if len(one.tokens) == one.limit else None
                told.append(Event(one.name, (one.tokens[-1],), ended))
                if ended:
                    self._scheduler.finish(self._all.pop(one.name)[0])
        return told


class Client(httpx.Client):
    """A client of one server.

    Attributes:
        service: what it talks to, in this process.
    """

    service: Service

    def ask(self, prompt: Any, **more: Any) -> httpx.Response:
        return self.post("/v1/completions", json={"prompt": prompt, "temperature": 0} | more)

    def metric(self, name: str) -> dict[str, float]:
        """The samples of a metric, by their labels."""
        lines = self.get("/metrics").text.splitlines()
        found = [line for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        return {line.rpartition(" ")[0][len(name) :]: float(line.split()[-1]) for line in found}

    def pages(self) -> list[tuple[float, float]]:
        """The pages that are free, and those that are held, of each replica."""
        free, held = (self.metric(f"jaxpar_pages_{name}").values() for name in ("free", "held"))
        return list(zip(free, held, strict=True))


@contextmanager
def served(engines: Sequence[Any], served: Served = SERVED, **limits: Any) -> Iterator[Client]:
    """A client of a server in a thread."""
    service = Service(served, engines, Limits(**({"slots": SLOTS} | limits)))
    with running(service.app) as address, Client(base_url=address, timeout=60) as client:
        client.service = service
        yield client


@contextmanager
def running(app: Any) -> Iterator[str]:
    """The address of an application in a thread."""
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        app, log_config=None, log_level="critical", ws="none", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def until(holds: Callable[[], Any], seconds: float = 60) -> None:
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.005)


def events(lines: Iterator[str]) -> Iterator[Any]:
    """The data of server-sent events, of which the last is None if all was sent."""
    for line in lines:
        if line == "data: [DONE]":
            yield None
        elif line:
            yield json.loads(line.removeprefix("data: "))
