"""Stands for the judge's worker where no process can be started: the answer runs in this one.

A page runs the answers of the person who looks at it, so nothing isolates them.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from jaxpar.grading import messages, plain_replies
from jaxpar.grading.channel import printable
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.imports import LIBRARIES, learner_builtins, refused_text
from jaxpar.grading.processes import KEPT_OUTPUT_BYTES, Limits, Store

ABSENT = tuple(name.partition(".")[0] for name in LIBRARIES)
Load = Callable[[messages.WorkerJob], Callable[..., Any]]
"""Makes the function of an answer, each time a new one, which has forgotten all earlier calls."""


class PageWorker:
    """Takes the messages of the judge, and answers them; has the methods of `Child`."""

    def __init__(self, load: Load) -> None:
        """Answers about the function that `load` makes of a job."""
        self._load = load
        self._frames: deque[Any] = deque([messages.encode(messages.Ready())])
        self._output = io.StringIO()

    def send(self, frame: dict, blobs: list[bytes] | None = None) -> None:
        """Does the job in a frame, which passes through JSON as in a pipe, and queues replies."""
        job: messages.WorkerJob = messages.decode(
            messages.WorkerJob, json.loads(json.dumps(frame, allow_nan=False))
        )
        with contextlib.redirect_stdout(self._output), contextlib.redirect_stderr(self._output):
            self._frames += map(messages.encode, self._replies(job))

    def receive(self, deadline: Deadline) -> Any:
        """The next reply; the page itself ends what takes too long."""
        return self._frames.popleft()

    def printed(self) -> str:
        """The beginning of what the answer printed."""
        return printable(self._output.getvalue()[:KEPT_OUTPUT_BYTES])

    printed_to_its_end = printed

    def _replies(self, job: messages.WorkerJob) -> Iterator[messages.WorkerReply]:
        if refused := refused_text(job.source, job.imports):
            yield messages.ExportFailure(("load", 0), "text", refused)
        else:
            try:
                function = self._load(job)
            except BaseException as error:
                yield plain_replies.load_failure(error, job.filename)
            else:
                yield from plain_replies.values(function, job)
        yield messages.Done()


class PagePool:
    """What the judge takes its workers from; it needs no reader for plain data."""

    def __init__(self, load: Load) -> None:
        """Takes answers from `load`."""
        self.limits, self.cancelled = Limits(), False
        self.store: Store | None = None
        self._load = load

    def begin(self) -> None:
        """Does nothing, since nothing is kept of an earlier judgement."""

    def take(self, module: str) -> PageWorker:
        """Returns a fresh worker."""
        return PageWorker(self._load)

    def end(self, child: PageWorker) -> None:
        """Does nothing, since there is no process to end."""


def function_of(job: messages.WorkerJob) -> Callable[..., Any]:
    """Runs the file of an answer, and returns the function of its exercise.

    Raises:
        NameError: the file has no such function; and whatever the file raises.
    """
    source, filename = job.source, job.filename
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = ModuleType("answer")
    module.__dict__["__file__"] = filename
    module.__dict__["__builtins__"] = _builtins(job)
    sys.modules["answer"] = module  # dataclasses look their module up
    exec(compile(source, filename, "exec"), module.__dict__)
    function = getattr(module, job.exercise, None)
    if not callable(function):
        raise NameError(f"the file defines no function named {job.exercise}")
    return function


def _builtins(job: messages.WorkerJob) -> dict[str, Any]:
    """The builtins of an answer, which say what a page has not."""
    names = learner_builtins(job.imports)
    guarded = names["__import__"]

    def imported(name: str, *args: Any, **kwargs: Any) -> ModuleType:
        package = name.partition(".")[0]
        if package in ABSENT:
            raise ImportError(
                f"there is no {package} in a page; use Python's own numbers, or check the answer "
                f"on your machine with `jaxpar check {job.exercise}`"
            )
        return guarded(name, *args, **kwargs)

    return names | {"__import__": imported}
