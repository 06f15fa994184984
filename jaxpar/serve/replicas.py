"""Engines behind one door: each has a thread of its own, and the least loaded takes a request.

All methods are called in one event loop. A replica whose thread raises is dead; what it served is
run again on another one, from its prompt and what has been generated. As the noise of a token
depends on the seed and the position alone, the text is the one that the first would have made.
"""

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Protocol

from jaxpar.serve.engine import Event, Request, Stats
from jaxpar.serve.metrics import Metrics

ENDS_KEPT, MOST_SECONDS_TO_WAIT = 16, 60
SECONDS_TO_ANSWER, SECONDS_TO_END = 5, 10


class Serves(Protocol):
    """What a replica needs of an engine; `jaxpar.serve.engine.Engine` has it."""

    @property
    def busy(self) -> bool:
        """Whether a step would compute or tell anything."""
        ...

    @property
    def stats(self) -> Stats:
        """What it has done, and what it holds now."""
        ...

    def submit(self, request: Request) -> None:
        """Lets a request wait; raises a ValueError if it can never be served."""

    def cancel(self, name: str) -> None:
        """Ends a request."""

    def step(self) -> list[Event]:
        """Computes one step, and tells what came of it."""
        ...


class DiedError(Exception):
    """The thread of a replica has ended."""


class FullError(Exception):
    """There are as many requests as may be; `seconds` is when to try again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class NotServedError(Exception):
    """A request that was taken cannot be served to its end; the message says why."""


class KilledError(Exception):
    """Somebody asked for the end of this replica."""


@dataclass(eq=False)
class Job:
    """A request that was taken.

    Attributes:
        request: what is asked for.
        arrived: when, by `time.perf_counter`.
        tokens: what has been generated.
        ended: why it has ended, as in `Event`; None: it goes on.
        failed: why it cannot go on; None: it can.
        replica: which one serves it.
        placed: whether that one has taken it.
    """

    request: Request
    arrived: float
    tokens: list[int] = field(default_factory=list)
    ended: str | None = None
    failed: str | None = None
    replica: "Replica | None" = None
    placed: bool = False
    _read: int = 0
    _latest: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def more(self) -> tuple[list[int], str | None]:
        """Waits for new tokens or the end, and returns all that nobody has read, and `ended`.

        Raises:
            NotServedError: it cannot go on.
        """
        while self._read == len(self.tokens) and not self.ended and not self.failed:
            self._changed.clear()
            await self._changed.wait()
        if self.failed:
            raise NotServedError(self.failed)
        new, self._read = self.tokens[self._read :], len(self.tokens)
        return new, self.ended

    def rest(self) -> Request:
        """What is left to do, as a request."""
        whole = self.request
        prompt = (*whole.prompt, *self.tokens)
        return replace(whole, prompt=prompt, tokens=whole.tokens - len(self.tokens))

    def fail(self, why: str) -> None:
        """Ends it, since it cannot go on."""
        if not self.ended:
            self.failed = why
        self._changed.set()

    def told(self, event: Event, metrics: Metrics) -> None:
        """Adds what a step has told of it."""
        now = time.perf_counter()
        for place in range(len(event.tokens)):
            if not self.tokens and not place:
                metrics.first_token.observe(now - self.arrived)
            else:
                metrics.gap.observe(now - self._latest)
            self._latest = now
        metrics.generated_tokens += len(event.tokens)
        self.tokens += event.tokens
        self.ended = event.ended
        self._changed.set()


class Replica:
    """An engine and its thread.

    Attributes:
        alive: whether it serves.
        jobs: what it serves, by name.
        why: the kind of error that it died of.
    """

    def __init__(
        self,
        engine: Serves,
        told: Callable[["Replica", list[Event]], None],
        died: Callable[["Replica"], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._told, self._died = told, died
        self.alive, self.why = True, ""
        self.jobs: dict[str, Job] = {}
        self._thread = threading.Thread(target=self._run, args=(engine,), daemon=True)
        self._thread.start()

    def ask(self, do: Callable[[Serves], Any]) -> asyncio.Future[Any]:
        """Does something with the engine between two steps; the future has the result.

        The future raises the ValueError of `do`, or a DiedError. Any other error is the replica's
        death.
        """
        future = self._loop.create_future()
        if self.alive:
            self._inbox.put(_Question(do, future))
        else:
            future.set_exception(DiedError(self.why))
        return future

    def order(self, do: Callable[[Serves], Any]) -> None:
        """The same, where nobody waits for a result."""
        if self.alive:
            self._inbox.put(_Question(do, None))

    def kill(self) -> None:
        """Lets its thread raise."""
        self.order(_raise_killed)

    def close(self) -> None:
        """Ends its thread after the running step."""
        self._inbox.put(None)
        self._thread.join(SECONDS_TO_END)

    def _run(self, engine: Serves) -> None:
        try:
            while True:
                while not engine.busy or not self._inbox.empty():
                    question = self._inbox.get()
                    if question is None:
                        return
                    self._answer(question, engine)
                if events := engine.step():
                    self._loop.call_soon_threadsafe(self._told, self, events)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._die, type(error).__name__)
            logging.getLogger(__name__).exception("a replica has died")

    def _answer(self, question: "_Question", engine: Serves) -> None:
        """Does what is asked, and lets the event loop know."""
        result, error = None, None
        try:
            result = question.do(engine)
        except ValueError as its:
            error = its
        except BaseException as its:
            error = DiedError(type(its).__name__)
            raise
        finally:
            if question.future:
                self._loop.call_soon_threadsafe(_resolve, question.future, result, error)

    def _die(self, why: str) -> None:
        self.alive, self.why = False, why
        while not self._inbox.empty():
            if (question := self._inbox.get()) and question.future:
                _resolve(question.future, None, DiedError(why))
        self._died(self)


@dataclass(frozen=True)
class _Question:
    """What the thread of a replica is asked to do; nobody may wait for the result."""

    do: Callable[[Serves], Any]
    future: asyncio.Future[Any] | None


class Replicas:
    """Several replicas, of which the one with the fewest requests takes the next one.

    At most `queue` requests are open beyond the slots of those alive; a request is open until it is
    released, so one whose client reads slowly counts.
    """

    def __init__(self, engines: Sequence[Serves], metrics: Metrics, *, slots: int, queue: int):
        self.all = [Replica(engine, self._told, self._died) for engine in engines]
        self.metrics, self._slots, self._queue = metrics, slots, queue
        self._open: set[Job] = set()
        self._reruns: set[asyncio.Task[None]] = set()
        self._ends: deque[float] = deque(maxlen=ENDS_KEPT)

    @property
    def alive(self) -> list[Replica]:
        """Those that serve."""
        return [replica for replica in self.all if replica.alive]

    @property
    def open(self) -> int:
        """How many requests are open."""
        return len(self._open)

    async def begin(self, request: Request, arrived: float) -> Job:
        """Takes a request, which must be released whatever becomes of it.

        Raises:
            ValueError: it can never be served.
            FullError: too many are open.
            NotServedError: no replica is alive.
        """
        if self.alive and len(self._open) >= len(self.alive) * self._slots + self._queue:
            raise FullError(self._seconds_to_wait())
        job = Job(request, arrived)
        self._open.add(job)
        try:
            await self._place(job)
        except BaseException:
            self.release(job)
            raise
        self.metrics.prompt_tokens += len(request.prompt)
        return job

    def release(self, job: Job) -> None:
        """Ends a request, if it has not ended, and forgets it."""
        if job in self._open:
            self._ends.append(time.perf_counter())
        self._open.discard(job)
        if job.replica and job.replica.jobs.pop(job.request.name, None):
            job.replica.order(lambda engine: engine.cancel(job.request.name))

    def end_all(self, why: str) -> None:
        """Ends all requests, and says why."""
        for job in self._open:
            job.fail(why)

    async def stats(self) -> list[Stats | None]:
        """What each replica has done and holds; None: it is dead, or does not answer."""
        asked = [replica.ask(lambda engine: engine.stats) for replica in self.all]
        await asyncio.wait(asked, timeout=SECONDS_TO_ANSWER)
        return [one.result() if one.done() and not one.exception() else None for one in asked]

    def close(self) -> None:
        """Ends all threads."""
        for task in self._reruns:
            task.cancel()
        for replica in self.all:
            replica.close()

    async def _place(self, job: Job) -> None:
        """Gives a request to the least loaded replica, or to the next one while they die."""
        name, job.placed = job.request.name, False
        while not job.ended:
            if not self.alive:
                raise NotServedError("no replica is alive")
            replica = job.replica = min(self.alive, key=lambda one: len(one.jobs))
            replica.jobs[name] = job
            request = job.rest()
            with suppress(DiedError):
                await replica.ask(lambda engine, request=request: engine.submit(request))
                job.placed = replica.alive  # it may have died since it answered
            if job.placed:
                return
            replica.jobs.pop(name, None)  # its death may not be known here yet

    def _told(self, replica: Replica, events: list[Event]) -> None:
        for event in events:
            if job := replica.jobs.get(event.name):
                job.told(event, self.metrics)
                if event.ended:
                    del replica.jobs[event.name]

    def _died(self, replica: Replica) -> None:
        """Runs again what a replica had taken; for all else `_place` finds another one."""
        jobs, replica.jobs = replica.jobs, {}
        for job in (one for one in jobs.values() if one.placed):
            task = asyncio.ensure_future(self._again(job))
            self._reruns.add(task)
            task.add_done_callback(self._reruns.discard)

    async def _again(self, job: Job) -> None:
        self.metrics.reruns += 1
        try:
            await self._place(job)
        except (NotServedError, ValueError) as error:
            job.fail(str(error))
        if job not in self._open:  # its client has left meanwhile
            self.release(job)

    def _seconds_to_wait(self) -> int:
        """About when the next request ends, as far as the last ones tell."""
        if len(self._ends) < 2:
            return 1
        mean = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        return max(1, min(ceil(mean), MOST_SECONDS_TO_WAIT))


def _raise_killed(engine: Serves) -> None:
    raise KilledError("it was asked to end")


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():  # whoever waited was cancelled
        return
    if error:
        future.set_exception(error)
    else:
        future.set_result(result)
