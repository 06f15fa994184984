"""Answers to requests for completions, from their bodies to their ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from jaxpar.serve.answer import JSON, Answer
from jaxpar.serve.metrics import Metrics
from jaxpar.serve.protocol import ApiError, Completion, completion, parse, usage
from jaxpar.serve.replicas import Job, NotServedError
from jaxpar.serve.stops import Stops
from jaxpar.serve.text import Alphabet


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


class Completions:
    """Answers requests for completions, whole or as streams: an ASGI application.

    `begin` takes a request that arrived at a time, and raises an `ApiError` if it does not; what it
    has taken is given to `release` in the end.
    """

    def __init__(
        self,
        served: Served,
        limits: Limits,
        metrics: Metrics,
        begin: Callable[[Completion, float], Awaitable[Job]],
        release: Callable[[Job], None],
    ) -> None:
        self._served, self._limits, self._metrics = served, limits, metrics
        self._begin, self._release = begin, release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, and counts how it ended."""
        answer, result = Answer(send), "error"
        try:
            async with asyncio.timeout(self._limits.seconds):
                result = await self._answered(Request(scope, receive), receive, answer)
        except LeftError:
            result = "left"
        except TimeoutError:
            result = "timeout"
            limit = f"there was no whole answer in {self._limits.seconds:g} s"
            await answer.fail(ApiError(504, limit, code="timeout"))
        except NotServedError as error:
            result = "failed"
            await answer.fail(ApiError(503, str(error)))
        except ApiError as error:
            result = {429: "overloaded", 503: "failed"}.get(error.status, "refused")
            await answer.fail(error)
        finally:
            self._metrics.requests[result] += 1

    async def _answered(self, request: Request, receive: Receive, answer: Answer) -> str:
        """Answers, and returns how the text ended."""
        arrived, served = time.perf_counter(), self._served
        check_json(request)
        body = await _body(request, receive, self._limits.body_bytes)
        asked = parse(body, served.name, served.alphabet)
        job = await self._begin(asked, arrived)
        try:
            write = self._stream if asked.stream else self._whole
            return await _unless_left(receive, write(job, asked, answer))
        finally:
            self._release(job)

    async def _whole(self, job: Job, asked: Completion, answer: Answer) -> str:
        text, ended, count = [], None, 0
        async for piece, ended, count in self._pieces(job, asked):  # noqa: B007
            text.append(piece)
        counts = usage(len(asked.prompt), count)
        await answer.whole(self._said(job, "".join(text), ended, counts))
        return str(ended)

    async def _stream(self, job: Job, asked: Completion, answer: Answer) -> str:
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
        stream = self._served.alphabet.stream(asked.prompt)
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
        return completion(name, self._served.name, created, text, ended, counts)


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


async def _body(request: Request, receive: Receive, most: int) -> bytes:
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


def check_json(request: Request) -> None:
    """Refuses what a page of another site could make a browser send without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ApiError(415, f"content-type is {kind[:100]!r}; send {JSON}")
