"""An HTTP server over engines, with OpenAI's completions; all of it runs in one event loop."""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from jaxpar.serve.answer import headers_of
from jaxpar.serve.completions import Completions, Limits, Served, check_json
from jaxpar.serve.engine import Request, Stats
from jaxpar.serve.metrics import Metrics, by_replica, samples
from jaxpar.serve.protocol import ApiError, Completion
from jaxpar.serve.replicas import FullError, Job, Replicas, Serves

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
        completions = Completions(served, limits, self.metrics, self.begin, self._release)
        routes = [
            Route("/", self._page),
            Route("/health", self._health),
            Route("/metrics", self._show_metrics),
            Route("/v1/models", self._models),
            Route("/v1/completions", completions, methods=["POST"]),
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

    def _release(self, job: Job) -> None:
        self.replicas.release(job)

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
        check_json(request)
        number, known = request.path_params["number"], len(self.replicas.all)
        if number >= known:
            raise ApiError(404, f"replica {number} is unknown; use 0 to {known - 1}")
        self.replicas.all[number].kill()
        return JSONResponse({"killed": number})


async def _told(request: HttpRequest, error: Exception) -> Response:
    """Any error as a response in OpenAI's form."""
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        error = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    elif not isinstance(error, ApiError):
        headers, error = {}, ApiError(500, "the server has failed")
    else:
        headers = dict(headers_of(error))
    return JSONResponse(error.body, error.status, headers)
