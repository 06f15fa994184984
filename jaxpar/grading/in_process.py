"""A pool that judges trusted answers within this process, so that none has to be started.

The tests judge hundreds of answers with it, and so does whoever writes an exercise. The verdicts
are those that separate processes would reach, since worker, reader and judge run the same code; but
nothing isolates the answer, and no clock ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax

from jaxpar.contracts.base import Contract, load, with_drawn
from jaxpar.grading import messages, reader_messages
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.judge import judge
from jaxpar.grading.oracle import Truth, truth
from jaxpar.grading.processes import WORKER, Limits, Store
from jaxpar.grading.program_export import Interface, template
from jaxpar.grading.program_reader import ProgramReader, compile_exported
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict
from jaxpar.grading.worker_replies import replies
from jaxpar.inspector.compiled import Compiled
from jaxpar.inspector.mlir import parse

SEED = 20
JUDGEMENTS_BETWEEN_CLEARINGS = 8

OWN_PROGRAMS = reader_messages.ExportOurs | reader_messages.PartitionProgram
"""Requests about programs of ours, which have the same reply each time."""

Answer = Callable[..., Any]
ELSEWHERE = Submission(Path("answer.py"), b"# elsewhere")
"""Stands for the file of an answer that is a function already."""


class InProcessChild:
    """Stands for a child process: takes the messages of the judge, and answers them."""

    def __init__(self, answer: Callable[[Any, list[bytes]], Iterator[Any]]) -> None:
        """Answers each frame with the messages and raw bytes that `answer` yields for it."""
        self._answer = answer
        self._frames: deque[Any] = deque([messages.encode(messages.Ready())])

    def send(self, frame: dict, blobs: list[bytes] | None = None) -> None:
        """Passes a frame through JSON, as a pipe would, and queues the replies to it."""
        arrived = json.loads(json.dumps(frame, allow_nan=False))
        for reply in self._answer(arrived, blobs or []):
            self._frames.append(reply if isinstance(reply, bytes) else messages.encode(reply))

    def receive(self, deadline: Deadline) -> Any:
        """Returns the next reply; the deadline has no effect."""
        return self._frames.popleft()

    def printed(self) -> str:
        """Returns nothing, since what the answer prints is not captured."""
        return ""

    printed_to_its_end = printed


class Compiler:
    """Compiles each program once, also where the answer is one of the contract's mistakes.

    The suite judges each mistake as an answer, and the diagnosis then compares it with all
    mistakes. Programs of the reference and of mistakes are kept, and those of an answer until the
    next answer is judged.

    Attributes:
        keeps: whether the next program belongs to the reference or to a mistake, and is kept.
    """

    def __init__(self) -> None:
        self.keeps = False
        self._kept: dict[tuple[str, Interface], Compiled] = {}
        self._of_answer: dict[tuple[str, Interface], Compiled] = {}
        self._texts: dict[bytes, str] = {}

    def __call__(self, blob: bytes, interface: Interface) -> Compiled:
        """Returns the compiled program; programs that differ only in source lines share one."""
        if blob not in self._texts:
            self._texts[blob] = str(parse(blob))
        key = self._texts[blob], interface
        compiled = self._kept.get(key) or self._of_answer.get(key)
        compiled = compiled or compile_exported(blob, interface, _header)
        (self._kept if self.keeps else self._of_answer)[key] = compiled
        return compiled

    def forget_answer(self) -> None:
        """Drops the programs of the last answer."""
        self._of_answer.clear()
        self._texts.clear()

    def forget(self) -> None:
        """Drops all programs, since a process may have only a limited number of memory maps."""
        self._kept.clear()
        self.forget_answer()


_header = cache(template)


class InProcessPool:
    """A pool for one exercise, whose workers export `function` as the answer.

    Its readers remember what they found in the programs of the reference and of the mistakes, which
    are the same in every judgement.
    """

    def __init__(self, where: str, contract: Contract | None = None) -> None:
        """Uses the contract at `where`, with cases drawn by `SEED`, or `contract` instead."""
        self.where = where
        self.limits, self.cancelled = Limits(), False
        self.store: Store | None = None
        self.function: Answer | None = None
        self.judgements = 0
        self._compiler = Compiler()
        self._reader = ProgramReader(contract or with_drawn(where, SEED), self._compiler)
        self._known: dict[reader_messages.ReaderRequest, reader_messages.ReaderReply] = {}
        self._truths: dict[tuple[int, int], Truth] = {}

    def forget(self) -> None:
        """Drops compiled programs, but not the facts that were found about them."""
        self._compiler.forget()
        jax.clear_caches()
        _return_free_memory()

    def truth(self, contract: Contract, index: int, seed: int) -> Truth:
        """Returns the inputs and right results of a case, which are computed once for each seed."""
        if (index, seed) not in self._truths:
            self._truths[index, seed] = truth(self._reader.contract, index, seed)
        return self._truths[index, seed]

    def begin(self) -> None:
        """Drops the programs of the previous answer, which are no longer needed."""
        self._compiler.forget_answer()

    def take(self, module: str) -> InProcessChild:
        """Returns a worker or a reader."""
        return InProcessChild(self._worker() if module == WORKER else self._read)

    def end(self, child: InProcessChild) -> None:
        """Does nothing, since there is no process to end."""

    def _worker(self) -> Callable[[Any, list[bytes]], Iterator[Any]]:
        jobs: list[messages.WorkerJob] = []  # the job, then that of the drawn cases

        def work(frame: Any, blobs: list[bytes]) -> Iterator[Any]:
            assert self.function
            if jobs:
                jobs.append(jobs[0].with_drawn(messages.decode(messages.DrawnCases, frame)))
            else:
                jobs.append(messages.decode(messages.WorkerJob, frame))
            for message, blob in replies(self.function, jobs[-1]):
                yield message
                if blob is not None:
                    yield blob
            yield messages.Done()

        return work

    def _read(self, frame: Any, blobs: list[bytes]) -> Iterator[Any]:
        request: reader_messages.ReaderJob | reader_messages.ReaderRequest = messages.decode(
            reader_messages.ReaderJob | reader_messages.ReaderRequest, frame
        )
        if isinstance(request, reader_messages.ReaderJob):
            yield reader_messages.Started()
            return
        self._compiler.keeps = getattr(request, "author", "answer") != "answer"
        if isinstance(request, OWN_PROGRAMS):
            if request not in self._known:
                self._known[request], _ = self._reader.answer(request, [])
            yield self._known[request]
        else:
            reply, results = self._reader.answer(request, blobs)
            yield reply
            yield from results


def _return_free_memory() -> None:
    """Returns freed memory to the system; glibc would keep it in the arenas of XLA's threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


_latest: list[InProcessPool] = []  # the pool that judged last, if any


def judged(function: Answer, pool: InProcessPool) -> Verdict:
    """Returns the verdict on a function as an answer; its inputs are the same each time."""
    if _latest and _latest[-1] is not pool:
        _latest.pop().forget()
    _latest[:] = [pool]
    pool.function = function
    verdict = judge(pool.where, ELSEWHERE, pool=pool, seed=SEED, truths=pool.truth)
    pool.judgements += 1
    if pool.judgements % JUDGEMENTS_BETWEEN_CLEARINGS == 0:
        jax.clear_caches()  # they would keep every program ever judged, about 8 MB each time
        _return_free_memory()
    return verdict


def judged_source(source: str, pool: InProcessPool) -> Verdict:
    """Returns the verdict on the function in a source that has the exercise's name."""
    module: dict[str, Any] = {}
    exec(compile(source, ELSEWHERE.path.name, "exec"), module)
    return judged(module[load(pool.where).id], pool)
