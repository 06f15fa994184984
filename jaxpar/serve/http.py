"""An HTTP server over engines, with OpenAI's completions; all of it runs in one event loop."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jaxpar.serve.engine import Request, Stats
from jaxpar.serve.metrics import Metrics, by_replica, samples
from jaxpar.serve.protocol import ApiError, Completion, completion, event, parse, usage
from jaxpar.serve.replicas import FullError, Job, NotServedError, Replicas, Serves
from jaxpar.serve.stops import Stops
from jaxpar.serve.text import Alphabet

JSON = "application/json"
SECONDS_TO_SAY_WHY = 1.0
OWN_PAGE = (
    "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
)
OF_REPLICAS: dict[str, tuple[str, str, Callable[[Stats], int]]] = {
    "requests_waiting": ("gauge", "Requests that wait.", lambda its: its.waiting),
    "requests_running": ("gauge", "Requests that run.", lambda its: its.running),
    "pages_free": ("gauge", "Pages that no request has.", lambda its: its.pages_free),
    "pages_held": ("gauge", "Pages that requests have.", lambda its: its.pages_held),
    "steps_total": ("counter", "Steps.", lambda its: its.steps),
    "shared_tokens_total": ("counter", "Tokens found in the cache.", lambda its: its.shared),
    "preemptions_total": ("counter", "Requests that lost their pages.", lambda its: its.preempted),
}


@dataclass(frozen=True)
class Limits:
    """What a client can take of a server.

    Attributes:
        slots: the requests that run at once on a replica.
        queue: how many more may be open, over all replicas.
        seconds: the time from the arrival of a request to the end of its answer.
        body_bytes: the largest body.
        kill: whether a client may kill a replica.
    """

    slots: int
    queue: int = 64
    seconds: float = 600.0
    body_bytes: int = 1 << 20
    kill: bool = False


@dataclass(frozen=True)
class Served:
    """What is served.

    Attributes:
        name: the name of the model.
        context: the most tokens of a request, with its prompt.
        alphabet: what its tokens stand for.
    """

    name: str
    context: int
    alphabet: Alphabet


class LeftError(Exception):
    """The client has left."""


class Service:
    """The application, and what it needs while it runs.

    Attributes:
        app: the ASGI application. It starts a thread for each engine when it starts.
        metrics: what has happened.
    """

    def __init__(self, served: Served, engines: Sequence[Serves], limits: Limits) -> None:
        self.served, self.limits, self.metrics = served, limits, Metrics()
        self._engines, self._started = engines, int(time.time())
        self._replicas: Replicas | None = None
        self._ends = False
        routes = [
            Route("/", self._page),
            Route("/health", self._health),
            Route("/metrics", self._show_metrics),
            Route("/v1/models", self._models),
            Route("/v1/completions", _Completions(self), methods=["POST"]),
        ]
        if limits.kill:
            routes.append(Route("/replicas/{number:int}/kill", self._kill, methods=["POST"]))
        handlers = {ApiError: _told, HTTPException: _told, Exception: _told}
        self.app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)

    @property
    def replicas(self) -> Replicas:
        """The replicas, while the application runs."""
        assert self._replicas, "the application has not been started"
        return self._replicas

    def take_no_more(self) -> None:
        """Refuses all requests from now on; those that were taken go on."""
        self._ends = True

    def end_all(self) -> None:
        """Ends all requests that still run."""
        self.replicas.end_all("the server is shutting down")

    def close(self) -> None:
        """Ends the threads of the replicas, if they have been started."""
        if self._replicas:
            self._replicas.close()

    async def begin(self, asked: Completion, arrived: float) -> Job:
        """Takes a request, which must be released.

        Raises:
            ApiError: it is not taken.
        """
        if self._ends:
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        name, ends = f"cmpl-{uuid.uuid4().hex}", self.served.alphabet.stop
        request = Request(name, asked.prompt, asked.tokens, asked.sampling, ends)
        try:
            return await self.replicas.begin(request, arrived)
        except ValueError as error:
            message = str(error).replace(f"request {name!r}: ", "").partition(": ")[2]
            raise ApiError(400, message) from None
        except FullError as error:
            message = f"{self.replicas.open} requests are open; try again"
            raise ApiError(429, message, code="overloaded", retry_seconds=error.seconds) from None

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        limits = self.limits
        self._replicas = Replicas(
            self._engines, self.metrics, slots=limits.slots, queue=limits.queue
        )
        try:
            yield
        finally:
            self.close()

    async def _page(self, request: HttpRequest) -> Response:
        page = files("jaxpar.serve").joinpath("chat.html").read_text("utf-8")
        return HTMLResponse(page, headers={"content-security-policy": OWN_PAGE})

    async def _health(self, request: HttpRequest) -> Response:
        each = [
            {"alive": one.alive, "requests": len(one.jobs), "died_of": one.why or None}
            for one in self.replicas.all
        ]
        well = bool(self.replicas.alive) and not self._ends
        status = "ok" if len(self.replicas.alive) == len(each) else "degraded"
        said = {
            "status": "shutting down" if self._ends else status if well else "dead",
            "open": self.replicas.open,
            "reruns": self.metrics.reruns,
            "kill": self.limits.kill,
            "replicas": each,
        }
        return JSONResponse(said, 200 if well else 503)

    async def _show_metrics(self, request: HttpRequest) -> Response:
        lines = list(self.metrics.lines())
        alive = by_replica(int(one.alive) for one in self.replicas.all)
        lines += samples("replica_alive", "gauge", "Whether a replica serves.", alive)
        open_now = {"": self.replicas.open}
        lines += samples("requests_open", "gauge", "Requests without a whole answer.", open_now)
        stats = await self.replicas.stats()
        for name, (kind, what, of) in OF_REPLICAS.items():
            values = by_replica(of(its) if its else None for its in stats)
            lines += samples(name, kind, what, values)
        return PlainTextResponse("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")

    async def _models(self, request: HttpRequest) -> Response:
        its = {"id": self.served.name, "object": "model", "created": self._started}
        its |= {"owned_by": "jaxpar", "max_model_len": self.served.context}
        return JSONResponse({"object": "list", "data": [its]})

    async def _kill(self, request: HttpRequest) -> Response:
        _check_json(request)
        number, known = request.path_params["number"], len(self.replicas.all)
        if number >= known:
            raise ApiError(404, f"replica {number} is unknown; use 0 to {known - 1}")
        self.replicas.all[number].kill()
        return JSONResponse({"killed": number})


class _Completions:
    """Answers a request for a completion, whole or as a stream."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, and counts how it ended."""
        answer, result = _Answer(send), "error"
        try:
            async with asyncio.timeout(self._service.limits.seconds):
                result = await self._answered(HttpRequest(scope, receive), receive, answer)
        except LeftError:
            result = "left"
        except TimeoutError:
            result = "timeout"
            limit = f"there was no whole answer in {self._service.limits.seconds:g} s"
            await answer.fail(ApiError(504, limit, code="timeout"))
        except NotServedError as error:
            result = "failed"
            await answer.fail(ApiError(503, str(error)))
        except ApiError as error:
            result = {429: "overloaded", 503: "failed"}.get(error.status, "refused")
            await answer.fail(error)
        finally:
            self._service.metrics.requests[result] += 1

    async def _answered(self, request: HttpRequest, receive: Receive, answer: "_Answer") -> str:
        """Answers, and returns how the text ended."""
        arrived, service = time.perf_counter(), self._service
        _check_json(request)
        body = await _body(request, receive, service.limits.body_bytes)
        asked = parse(body, service.served.name, service.served.alphabet)
        job = await service.begin(asked, arrived)
        try:
            write = self._stream if asked.stream else self._whole
            return await _unless_left(receive, write(job, asked, answer))
        finally:
            service.replicas.release(job)

    async def _whole(self, job: Job, asked: Completion, answer: "_Answer") -> str:
        text, ended, count = [], None, 0
        async for piece, ended, count in self._pieces(job, asked):  # noqa: B007
            text.append(piece)
        counts = usage(len(asked.prompt), count)
        await answer.whole(self._said(job, "".join(text), ended, counts))
        return str(ended)

    async def _stream(self, job: Job, asked: Completion, answer: "_Answer") -> str:
        ended, count = None, 0
        async for piece, ended, count in self._pieces(job, asked):  # noqa: B007
            await answer.part(self._said(job, piece, ended))
        if asked.counts:
            counts = usage(len(asked.prompt), count)
            await answer.part(self._said(job, "", None, counts) | {"choices": []})
        await answer.end("[DONE]")
        return str(ended)

    async def _pieces(
        self, job: Job, asked: Completion
    ) -> AsyncIterator[tuple[str, str | None, int]]:
        """Yields new text, why it ends or None, and how many tokens there are so far.

        What comes while nobody asks for it is one piece. A piece is empty where its tokens are part
        of a character, or of what may become a string that ends the text.
        """
        stream = self._service.served.alphabet.stream(asked.prompt)
        stops = Stops(asked.stops)
        count, ended = 0, None
        while not ended:
            tokens, ended = await job.more()
            piece = ""
            for token in tokens:
                piece += stops.feed(stream.feed([token]))
                count += 1
                if stops.found:
                    break
            if ended and not stops.found:
                piece += stops.feed(stream.close())
            if stops.found:
                ended = "stop"
            elif ended:
                piece += stops.end()
            yield piece, ended, count

    def _said(
        self, job: Job, text: str, ended: str | None, counts: dict[str, int] | None = None
    ) -> dict[str, Any]:
        name, created = job.request.name, int(time.time())
        return completion(name, self._service.served.name, created, text, ended, counts)


class _Answer:
    """An HTTP response that begins with its first part."""

    def __init__(self, send: Send) -> None:
        self._send, self._begun, self._ended = send, False, False

    async def whole(
        self, data: Any, status: int = 200, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Sends all at once."""
        await self._begin(status, JSON, headers)
        await self._finish(json.dumps(data).encode())

    async def part(self, data: Any) -> None:
        """Sends an event of a stream; waits while the client does not read."""
        if not self._begun:
            await self._begin(200, "text/event-stream", [("cache-control", "no-cache")])
        await self._send({"type": "http.response.body", "body": event(data), "more_body": True})

    async def end(self, data: Any) -> None:
        """Sends the last event of a stream."""
        await self._finish(event(data))

    async def fail(self, error: ApiError) -> None:
        """Sends an error: as a response, or as the last event of a stream.

        If the client does not read it, the server closes the connection.
        """
        if self._ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_TO_SAY_WHY):
                if self._begun:
                    await self.end(error.body)
                else:
                    await self.whole(error.body, error.status, _headers(error))

    async def _finish(self, body: bytes) -> None:
        self._ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(self, status: int, kind: str, headers: Sequence[tuple[str, str]]) -> None:
        self._begun = True
        pairs = [("content-type", kind), *headers]
        encoded = [(name.encode(), value.encode()) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


async def _unless_left(receive: Receive, work: Coroutine[Any, Any, str]) -> str:
    """Does the work, unless the client leaves before its end.

    Raises:
        LeftError: it has left; the work was cancelled.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise LeftError
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: HttpRequest, receive: Receive, most: int) -> bytes:
    """The body, of which no more is held than may be."""
    too_large = ApiError(413, f"the body is too large; send {most:,} bytes or fewer")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise too_large
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise too_large
    return bytes(body)


def _check_json(request: HttpRequest) -> None:
    """Refuses what a page of another site could make a browser send without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ApiError(415, f"content-type is {kind[:100]!r}; send {JSON}")


def _headers(error: ApiError) -> list[tuple[str, str]]:
    return [("retry-after", str(error.retry_seconds))] if error.retry_seconds else []


async def _told(request: HttpRequest, error: Exception) -> Response:
    """Any error as a response in OpenAI's form."""
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        error = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    elif not isinstance(error, ApiError):
        headers, error = {}, ApiError(500, "the server has failed")
    else:
        headers = dict(_headers(error))
    return JSONResponse(error.body, error.status, headers)
