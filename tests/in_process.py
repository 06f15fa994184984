"""The judge with its two children in this process: hundreds of answers, no start of a process."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax

from jaxpar.contracts.base import Contract, exercise_id, load
from jaxpar.grading import oracle, program, program_judge, reading, specs, worker
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import WORKER, Limits
from jaxpar.grading.reading import Loaded, Reader
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict
from jaxpar.inspector.compiled import Compiled
from jaxpar.inspector.mlir import parse

SEED = 20
FILE = Path("answer.py")
JUDGEMENTS_KEPT = 8


class InProcess:
    """What a child process is to the judge: frames in, frames out."""

    def __init__(self, answer: Callable[[dict, list[bytes]], Iterator[Any]]) -> None:
        self._answer = answer
        self._frames: deque[Any] = deque([{"ready": True}])

    def send(self, value: dict, blobs: list[bytes] | None = None) -> None:
        sent = json.loads(json.dumps(value, allow_nan=False))
        self._frames.extend(self._answer(sent, blobs or []))

    def receive(self, deadline: float) -> Any:
        return self._frames.popleft()

    def printed(self) -> str:
        return ""

    printed_to_its_end = printed


class RememberingReader(Reader):
    """Compiles the same program once, whoever wrote it: a mistake is an answer and a diagnosis."""

    def __init__(self, contract: Contract) -> None:
        super().__init__(contract)
        self._compiled: dict[str, Compiled] = {}

    def compile(self, program: Loaded) -> Compiled:
        text = str(parse(program.blob))  # without source lines
        if text not in self._compiled:
            self._compiled[text] = super().compile(program)
        return self._compiled[text]

    def forget(self) -> None:
        """Drops compiled programs: a process may map only so many pieces of memory."""
        self._compiled.clear()
        for loaded in self.loaded.values():
            loaded.compiled = None


class InProcessPool:
    """A pool whose workers export one function, and whose readers remember the contract's own.

    The programs of the reference and of the mistakes are the same in every judgement.
    """

    limits = Limits()
    store = None
    cancelled = False

    def __init__(self, where: str, contract: Contract | None = None) -> None:
        """Reads by the contract of an exercise, hidden cases and all, or by another one."""
        self.where = where
        self.function: Callable | None = None
        self.judgements = 0
        self._reader = RememberingReader(contract or load(where, hidden=True))
        self._known: dict[str, dict] = {}

    def forget(self) -> None:
        """Drops compiled programs; what was found about them stays."""
        self._reader.forget()
        jax.clear_caches()

    def begin(self) -> None:
        """Nothing was cancelled."""

    def take(self, module: str) -> InProcess:
        job: dict = {}  # cases that are hidden come in a second frame

        def work(frame: dict, blobs: list[bytes]) -> Iterator[Any]:
            job.update(frame)
            return self._export(job)

        return InProcess(work if module == WORKER else self._read)

    def end(self, child: InProcess) -> None:
        """Nothing to end."""

    def _export(self, job: dict) -> Iterator[Any]:
        if "calls" in job:
            replies = worker._values(self.function, job)
        elif job["kind"] == "specs":
            replies = worker._specs(self.function, job, specs)
        else:
            replies = worker._programs(self.function, job, program)
        for frames in replies:
            yield from frames
        yield {"done": True}

    def _read(self, request: dict, blobs: list[bytes]) -> Iterator[Any]:
        if "where" in request:
            yield {"started": True}
        elif "mistake" in request or "specs" in request:
            key = request.get("key") or json.dumps(request)
            if key not in self._known:
                self._known[key], _ = self._reader.answer(request, [])
            yield self._known[key]
        else:
            header, results = self._reader.answer(request, blobs)
            yield header
            yield from results


template = cache(program.template)
_latest: list[InProcessPool] = []  # the pool that judged last, if any


@cache
def _truth(where: str, index: int) -> oracle.Truth:
    return oracle.truth(load(where, hidden=True), index, SEED)


def judged(function: Callable, pool: InProcessPool, *, hidden: bool = False) -> Verdict:
    """The verdict on a function as the answer to an exercise; inputs are the same each time."""
    if _latest and _latest[-1] is not pool:
        _latest.pop().forget()
    _latest[:] = [pool]
    pool.function = function
    with (
        patch.object(program_judge, "truth", lambda _, index, seed: _truth(pool.where, index)),
        patch.object(reading, "template", template),
    ):
        submission = Submission(FILE, b"# elsewhere")
        verdict = judge(pool.where, submission, pool=pool, seed=SEED, hidden=hidden)
    pool.judgements += 1
    if pool.judgements % JUDGEMENTS_KEPT == 0:
        jax.clear_caches()  # they would keep every program ever judged, about 8 MB each time
    return verdict


def judged_source(source: str, pool: InProcessPool, *, hidden: bool = False) -> Verdict:
    """The verdict on the function of that name in a source."""
    module: dict = {}
    exec(compile(source, FILE.name, "exec"), module)
    return judged(module[exercise_id(pool.where)], pool, hidden=hidden)
