"""Judges hand-ins, several at a time, each file once, and writes a result for each student.

A file whose judgement is in the journal is not judged again. Each thread judges one file at a time
with its own worker and reader, which run in a sandbox.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxpar.classroom import journal, seeds
from jaxpar.classroom.handins import Handin, Work, read_handin
from jaxpar.classroom.journal import EvidenceStore, Journal, JudgementKey
from jaxpar.classroom.records import not_submitted, to_record, unread, verdict_moved
from jaxpar.classroom.results import Results
from jaxpar.contracts.base import load
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import OUT_OF_CPU, Cancelled, Limits, Pool, Start
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict

LIMITS = Limits(wall_seconds=120, cpu_seconds=30)
MOST_RETRIES = 2
KNOWN_GOOD = "jaxpar.contracts.collectives.mean_over_devices"
KNOWN_GOOD_ANSWER = b"""from jax import lax

def mean_over_devices(x, *, axis):
    return lax.psum(x, axis) / lax.axis_size(axis)
"""


@dataclass(frozen=True)
class GradedExercise:
    """An exercise of the course, as far as grading needs it."""

    id: str
    where: str
    points: int


@dataclass(frozen=True)
class GradingSettings:
    """What is the same for all hand-ins.

    Attributes:
        exercises: the exercises to grade.
        secret: the secret of the course, of which seeds are made.
        level: the level of isolation, which each result names.
        starts: how child processes start, one function for each file judged at the same time.
        fresh: whether all files are run again, whatever is in the journal.
        only_changed: whether a file that was judged before keeps its verdict, even if contracts or
            the library have changed.
    """

    exercises: tuple[GradedExercise, ...]
    secret: bytes
    level: int
    starts: tuple[Start, ...]
    fresh: bool = False
    only_changed: bool = False


@dataclass
class JudgingTask:
    """One file to judge, and its student; `alone` if nothing else is judged at the same time."""

    student: StudentRecords
    exercise: GradedExercise
    submission: Submission
    alone: bool = False


@dataclass
class StudentRecords:
    """A hand-in whose records come in one by one.

    Attributes:
        handin: what the student handed in.
        before: the records of an earlier run, by exercise.
        level: the weakest level of isolation on which one of the records was made.
        records: the records of this run, by exercise.
    """

    handin: Handin
    before: dict[str, dict[str, Any]]
    level: int
    records: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class RecordNotice:
    """What the grader reports about each record while it grades a class.

    Attributes:
        student: the name of the student's folder.
        record: the record.
        known: whether the record was known without judging anything.
        moved: whether the same file had another verdict before.
    """

    student: str
    record: dict[str, Any]
    known: bool
    moved: bool


class Grader:
    """One run over a class."""

    def __init__(
        self, settings: GradingSettings, results: Results, tell: Callable[[RecordNotice], None]
    ) -> None:
        """Grades nothing yet; `tell` is called from several threads, one at a time."""
        self._settings, self._results, self._tell = settings, results, tell
        self._journal = Journal(results.folder / "journal")
        self._environment = journal.environment()
        for exercise in settings.exercises:  # Two threads that import the same module may fail.
            load(exercise.where)
        self._contracts = {e.id: journal.contract_hash(e.where) for e in settings.exercises}
        self._tasks: queue.Queue[JudgingTask | None] = queue.Queue(2 * len(settings.starts))
        self._later: list[JudgingTask] = []
        self._trouble: list[BaseException] = []
        self._lock = threading.Lock()
        self._pools = [self._pool(start) for start in settings.starts]

    def grade(self, works: Iterable[Work]) -> None:
        """Grades hand-ins; ends early at the first trouble that is not a submission's.

        Raises:
            OSError: results cannot be written; what was graded until then is kept.
        """
        self._journal.remove_half_written()
        self._results.remove_half_written()
        with ThreadPoolExecutor(len(self._pools)) as threads:
            serving = [threads.submit(self._serve, pool) for pool in self._pools]
            try:
                for work in works:
                    self._begin(work)
                self._wait(serving)
                if self._later and not self._trouble:  # Once more, one at a time.
                    serving = [threads.submit(self._serve, self._pools[0])]
                    for task in self._later:
                        self._tasks.put(replace(task, alone=True))
                    self._wait(serving)
            except BaseException as error:
                self._stop(error)
                self._wait(serving)
        if self._trouble:
            raise self._trouble[0]

    def _wait(self, serving: list[Future[None]]) -> None:
        """Tells threads that there are no more tasks, and waits until they have ended.

        Ctrl-C may interrupt this, and it is called again. `Thread.join` does not allow that: on
        Python 3.11 the second call returns at once, and the interpreter would end, and XLA abort
        it, while the thread still judges.
        """
        for _ in serving:
            self._tasks.put(None)
        for future in serving:
            future.result()

    def _pool(self, start: Start) -> Pool:
        folder = self._results.folder / "journal" / "evidence"
        runs_on = f"{self._environment} {self._settings.level}"
        store = EvidenceStore(folder, runs_on, fresh=self._settings.fresh)
        return Pool(LIMITS, start, store)

    def _begin(self, work: Work) -> None:
        """Reads a hand-in, and queues its files; what cannot be judged gets its record at once."""
        wanted = [exercise.id for exercise in self._settings.exercises]
        handin = read_handin(work, wanted)
        before = self._results.records(handin.student)
        student = StudentRecords(handin, before, self._settings.level)
        tasks = []
        for exercise in self._settings.exercises:
            id, points = exercise.id, exercise.points
            if id in handin.files:
                tasks.append(JudgingTask(student, exercise, handin.files[id]))
            elif id in handin.unreadable:
                self._file(student, unread(id, points, handin.unreadable[id]), known=False)
            else:
                self._file(student, not_submitted(id, points, handin.refused[id]), known=True)
        for task in tasks:
            if self._trouble:
                return
            self._tasks.put(task)

    def _serve(self, pool: Pool) -> None:
        """Judges tasks until there are no more; the child processes belong to this thread."""
        with pool:
            while (task := self._tasks.get()) is not None:
                if self._trouble:
                    continue
                try:
                    self._judge_and_file(task, pool)
                except Cancelled:
                    continue
                except BaseException as error:
                    self._stop(error)

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._trouble.append(error)
        for pool in self._pools:
            pool.cancel()

    def _judge_and_file(self, task: JudgingTask, pool: Pool) -> None:
        self._journal.keep_source(task.submission)
        key = self._key(task)
        known = None if self._settings.fresh else self._known(task, key)
        if known is not None:
            self._file(task.student, known, known=True)
            return
        verdict = self._judge(task, key, pool)
        by_the_clock = verdict.status == "timeout" and OUT_OF_CPU not in verdict.diagnosis
        # Submissions share threads and memory, too. What another one may have caused is repeated.
        maybe_by_another = by_the_clock or verdict.status in ("killed", "infrastructure")
        if maybe_by_another and not task.alone and len(self._pools) > 1:
            with self._lock:
                self._later.append(task)
            return
        record = to_record(verdict) | {
            name: getattr(key, name)
            for name in ("submission_hash", "contract_hash", "environment", "seed_id")
        }
        if verdict.status != "infrastructure":
            self._journal.put(key, record)
        self._file(task.student, record, known=False)

    def _known(self, task: JudgingTask, key: JudgementKey) -> dict[str, Any] | None:
        """Returns the record of an earlier judgement if it still holds."""
        before = task.student.before.get(task.exercise.id, {})
        unchanged = before.get("submission_hash") == key.submission_hash
        if self._settings.only_changed and unchanged and before["status"] != "infrastructure":
            level = self._results.level(task.student.handin.student)
            task.student.level = max(task.student.level, level)
            return before
        return self._journal.get(key)

    def _judge(self, task: JudgingTask, key: JudgementKey, pool: Pool) -> Verdict:
        """Judges a file, again where it is not sure that the submission is at fault."""
        seed = seeds.seed(self._settings.secret, key.exercise, key.submission_hash)
        hidden_seed = seeds.hidden_seed(self._settings.secret, key.exercise)
        verdict = _judge_once(task, pool, seed, hidden_seed)
        for _ in range(MOST_RETRIES):
            if verdict.status not in ("killed", "infrastructure"):
                break
            if verdict.status == "killed" and _works(pool):
                break  # The machine works, so the submission was at fault.
            verdict = _judge_once(task, pool, seed, hidden_seed)
        else:
            if verdict.status == "killed" and not _works(pool):
                verdict = replace(verdict, status="infrastructure")
        return verdict

    def _key(self, task: JudgingTask) -> JudgementKey:
        digest, exercise = task.submission.digest, task.exercise.id
        return JudgementKey(
            submission_hash=digest,
            exercise=exercise,
            contract_hash=self._contracts[exercise],
            environment=self._environment,
            seed_id=seeds.seed_id(self._settings.secret, exercise, digest),
            level=self._settings.level,
        )

    def _file(self, student: StudentRecords, record: dict[str, Any], *, known: bool) -> None:
        """Adds a record to a student's; with the last of them, writes the student's result."""
        with self._lock:
            student.records[record["exercise"]] = record
            complete = len(student.records) == len(self._settings.exercises)
            before = student.before.get(record["exercise"])
            moved = before is not None and verdict_moved(before, record)
            self._tell(RecordNotice(student.handin.student, record, known, moved))
        if complete:
            ordered = [student.records[exercise.id] for exercise in self._settings.exercises]
            self._results.write(student.handin, ordered, student.level)


def _judge_once(task: JudgingTask, pool: Pool, seed: int, hidden_seed: int) -> Verdict:
    """Returns what the judge says; if the judge breaks, this file is not judged."""
    wanted = task.exercise
    try:
        return judge(wanted.where, task.submission, pool=pool, seed=seed, hidden_seed=hidden_seed)
    except (Cancelled, OSError):
        raise
    except Exception as error:
        message = f"the grader itself failed: {type(error).__name__}"
        return Verdict(wanted.id, "infrastructure", 0, wanted.points, (), message, 0, seed)


def _works(pool: Pool) -> bool:
    """Tells whether a known-good program goes through a fresh pair of processes here and now."""
    submission = Submission(Path("mean_over_devices.py"), KNOWN_GOOD_ANSWER)
    with Pool(pool.limits, pool.start) as fresh:
        return judge(KNOWN_GOOD, submission, pool=fresh, seed=1).status == "pass"
