"""A pool that judges in one process: hundreds of answers of our own, and no start of a process.

It is for functions that are trusted: the suite, reports, and whoever writes an exercise. The
verdicts are those of the processes, since worker, reader and judge are the same code; but nothing
isolates the answer and no clock ends it.
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

from jaxpar.contracts.base import Contract, load
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
    """What a child process is to the judge: messages in, messages out."""

    def __init__(self, answer: Callable[[Any, list[bytes]], Iterator[Any]]) -> None:
        """Answers each frame as `answer` does, which yields messages and raw bytes."""
        self._answer = answer
        self._frames: deque[Any] = deque([messages.encode(messages.Ready())])

    def send(self, frame: dict, blobs: list[bytes] | None = None) -> None:
        """Takes a frame as it would arrive, and keeps the replies."""
        arrived = json.loads(json.dumps(frame, allow_nan=False))
        for reply in self._answer(arrived, blobs or []):
            self._frames.append(reply if isinstance(reply, bytes) else messages.encode(reply))

    def receive(self, deadline: Deadline) -> Any:
        """The next reply, whatever the time."""
        return self._frames.popleft()

    def printed(self) -> str:
        """Nothing is kept of what the answer prints."""
        return ""

    printed_to_its_end = printed


class Compiler:
    """Compiles the same program once, whoever wrote it: a mistake is an answer and a diagnosis.

    Programs of the reference and of mistakes are kept, those of an answer until the next one comes.

    Attributes:
        keeps: whether what is compiled now is to be kept.
    """

    def __init__(self) -> None:
        self.keeps = False
        self._kept: dict[tuple[str, Interface], Compiled] = {}
        self._of_answer: dict[tuple[str, Interface], Compiled] = {}
        self._texts: dict[bytes, str] = {}

    def __call__(self, blob: bytes, interface: Interface) -> Compiled:
        """The compiled program; two that differ in source lines alone are one."""
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
        """Drops all programs: a process may map only so many pieces of memory."""
        self._kept.clear()
        self.forget_answer()


_header = cache(template)


class InProcessPool:
    """A pool whose workers export one function, and whose readers remember the contract's own.

    The programs of the reference and of the mistakes are the same in every judgement.
    """

    def __init__(self, where: str, contract: Contract | None = None) -> None:
        """Reads by the contract of an exercise, hidden cases and all, or by another one."""
        self.where = where
        self.limits, self.cancelled = Limits(), False
        self.store: Store | None = None
        self.function: Answer | None = None
        self.judgements = 0
        self._compiler = Compiler()
        self._reader = ProgramReader(contract or load(where, hidden=True), self._compiler)
        self._known: dict[reader_messages.ReaderRequest, reader_messages.ReaderReply] = {}
        self._truths: dict[tuple[int, int], Truth] = {}

    def forget(self) -> None:
        """Drops compiled programs; what was found about them stays."""
        self._compiler.forget()
        jax.clear_caches()
        _return_free_memory()

    def truth(self, contract: Contract, index: int, seed: int) -> Truth:
        """Inputs and right results of a case, computed once for each seed."""
        if (index, seed) not in self._truths:
            self._truths[index, seed] = truth(self._reader.contract, index, seed)
        return self._truths[index, seed]

    def begin(self) -> None:
        """The programs of the answer before are not needed any more."""
        self._compiler.forget_answer()

    def take(self, module: str) -> InProcessChild:
        """A worker or a reader."""
        return InProcessChild(self._worker() if module == WORKER else self._read)

    def end(self, child: InProcessChild) -> None:
        """Nothing ends."""

    def _worker(self) -> Callable[[Any, list[bytes]], Iterator[Any]]:
        jobs: list[messages.WorkerJob] = []  # the first; hidden cases come in a second frame

        def work(frame: Any, blobs: list[bytes]) -> Iterator[Any]:
            assert self.function
            if jobs:
                jobs.append(jobs[0].with_hidden(messages.decode(messages.HiddenCases, frame)))
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
    """Gives back what was freed: glibc keeps it, scattered over the arenas of XLA's threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


_latest: list[InProcessPool] = []  # the pool that judged last, if any


def judged(function: Answer, pool: InProcessPool, *, hidden: bool = False) -> Verdict:
    """The verdict on a function as the answer to an exercise; inputs are the same each time."""
    if _latest and _latest[-1] is not pool:
        _latest.pop().forget()
    _latest[:] = [pool]
    pool.function = function
    verdict = judge(pool.where, ELSEWHERE, pool=pool, seed=SEED, hidden=hidden, truths=pool.truth)
    pool.judgements += 1
    if pool.judgements % JUDGEMENTS_BETWEEN_CLEARINGS == 0:
        jax.clear_caches()  # they would keep every program ever judged, about 8 MB each time
        _return_free_memory()
    return verdict


def judged_source(source: str, pool: InProcessPool, *, hidden: bool = False) -> Verdict:
    """The verdict on the function of that name in a source."""
    module: dict[str, Any] = {}
    exec(compile(source, ELSEWHERE.path.name, "exec"), module)
    return judged(module[load(pool.where).id], pool, hidden=hidden)
