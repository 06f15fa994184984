"""Judges hand-ins, several at a time, each file once, and writes one result per student."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxpar.classroom import journal, seeds
from jaxpar.classroom import records as record
from jaxpar.classroom.handins import MISSING, Handin, read_handin
from jaxpar.classroom.journal import EvidenceStore, Journal, Key
from jaxpar.classroom.results import Results
from jaxpar.contracts.base import load
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import OUT_OF_CPU, Cancelled, Limits, Pool, Start
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict

LIMITS = Limits(wall_seconds=120, cpu_seconds=30)
MOST_RETRIES = 2
KNOWN_GOOD = "jaxpar.contracts.collectives:mean_over_devices"
KNOWN_GOOD_ANSWER = b"""from jax import lax

def mean_over_devices(x, *, axis):
    return lax.psum(x, axis) / lax.axis_size(axis)
"""


@dataclass(frozen=True)
class Assignment:
    """An exercise of the course, as far as grading needs it."""

    id: str
    where: str
    points: int


@dataclass(frozen=True)
class Course:
    """What is the same for all hand-ins.

    Attributes:
        assignments: the exercises.
        secret: of the course; seeds are made of it.
        level: of isolation, as each result says.
        starts: for each job, how its children start.
        fresh: files are run again, whatever is in the journal.
        only_changed: a file that was judged before keeps its verdict, whatever has changed here.
    """

    assignments: tuple[Assignment, ...]
    secret: bytes
    level: int
    starts: tuple[Start, ...]
    fresh: bool = False
    only_changed: bool = False


@dataclass
class Task:
    """One file to judge, and whose it is."""

    student: Student
    assignment: Assignment
    submission: Submission
    alone: bool = False


@dataclass
class Student:
    """A hand-in whose records come in one by one; `level` is the weakest that one was made on."""

    handin: Handin
    before: dict[str, dict[str, Any]]
    level: int
    records: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Graded:
    """What is told while a class is graded: one record, new or from the journal."""

    student: str
    record: dict[str, Any]
    known: bool
    moved: bool


class Grader:
    """One run over a class."""

    def __init__(self, course: Course, results: Results, tell: Callable[[Graded], None]) -> None:
        """Grades nothing yet; `tell` is called from several threads, one at a time."""
        self._course, self._results, self._tell = course, results, tell
        self._journal = Journal(results.folder / "journal")
        self._environment = journal.environment()
        for assignment in course.assignments:  # two threads that import the same module may fail
            load(assignment.where, hidden=True)
        self._contracts = {a.id: journal.contract_hash(a.where) for a in course.assignments}
        self._tasks: queue.Queue[Task | None] = queue.Queue(maxsize=2 * len(course.starts))
        self._later: list[Task] = []
        self._trouble: list[BaseException] = []
        self._lock = threading.Lock()
        self._pools = [self._pool(start) for start in course.starts]

    def grade(self, folders: Iterable[Path]) -> None:
        """Grades hand-ins; ends early with the first trouble that is not a submission's.

        Raises:
            OSError: results cannot be written; what was graded until then is kept.
        """
        self._journal.tidy()
        self._results.tidy()
        threads = self._begin_threads(self._pools)
        try:
            for folder in folders:
                self._begin(folder)
            self._join(threads)
            if self._later and not self._trouble:  # once more, with nothing beside it
                threads = self._begin_threads(self._pools[:1])
                for task in self._later:
                    self._tasks.put(replace(task, alone=True))
                self._join(threads)
        except BaseException as error:
            self._stop(error)
            self._join(threads)
        if self._trouble:
            raise self._trouble[0]

    def _begin_threads(self, pools: list[Pool]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._serve, args=(pool,)) for pool in pools]
        for thread in threads:
            thread.start()
        return threads

    def _join(self, threads: list[threading.Thread]) -> None:
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            thread.join()

    def _pool(self, start: Start) -> Pool:
        folder = self._results.folder / "journal" / "evidence"
        runs_on = f"{self._environment} {self._course.level}"
        store = EvidenceStore(folder, runs_on, fresh=self._course.fresh)
        return Pool(LIMITS, start, store)

    def _begin(self, folder: Path) -> None:
        """Reads a hand-in; what must be judged is queued, the rest is said at once."""
        wanted = [assignment.id for assignment in self._course.assignments]
        handin = read_handin(folder, wanted)
        before = self._results.before(handin.student)
        student = Student(handin, before, self._course.level)
        tasks = []
        for assignment in self._course.assignments:
            submission = handin.files.get(assignment.id)
            if submission is None:
                message = handin.refused.get(assignment.id, MISSING)
                missing = record.missing(assignment.id, assignment.points, message)
                self._file(student, missing, known=True)
            else:
                tasks.append(Task(student, assignment, submission))
        for task in tasks:
            if self._trouble:
                return
            self._tasks.put(task)

    def _serve(self, pool: Pool) -> None:
        """Judges tasks until there are no more; children belong to this thread."""
        with pool:
            while (task := self._tasks.get()) is not None:
                if self._trouble:
                    continue
                try:
                    self._answer(task, pool)
                except Cancelled:
                    continue
                except BaseException as error:
                    self._stop(error)

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._trouble.append(error)
        for pool in self._pools:
            pool.cancel()

    def _answer(self, task: Task, pool: Pool) -> None:
        self._journal.keep(task.submission)
        key = self._key(task)
        found = None if self._course.fresh else self._known(task, key)
        if found is not None:
            self._file(task.student, found, known=True)
            return
        verdict = self._judge(task, key, pool)
        by_the_clock = verdict.status == "timeout" and OUT_OF_CPU not in verdict.diagnosis
        # Threads and memory are shared, too: what another submission may have caused is repeated.
        by_another = by_the_clock or verdict.status in ("killed", "infrastructure")
        if by_another and not task.alone and len(self._pools) > 1:
            with self._lock:
                self._later.append(task)
            return
        made = record.to_record(verdict) | {
            name: getattr(key, name)
            for name in ("submission_hash", "contract_hash", "environment", "seed_id")
        }
        if verdict.status != "infrastructure":
            self._journal.put(key, made)
        self._file(task.student, made, known=False)

    def _known(self, task: Task, key: Key) -> dict[str, Any] | None:
        before = task.student.before.get(task.assignment.id, {})
        unchanged = before.get("submission_hash") == key.submission_hash
        if self._course.only_changed and unchanged and before["status"] != "infrastructure":
            level = self._results.level(task.student.handin.student)
            task.student.level = max(task.student.level, level)
            return before
        return self._journal.get(key)

    def _judge(self, task: Task, key: Key, pool: Pool) -> Verdict:
        seed = seeds.seed(self._course.secret, key.exercise, key.submission_hash)
        verdict = _judge_once(task, pool, seed)
        for _ in range(MOST_RETRIES):
            if verdict.status not in ("killed", "infrastructure"):
                break
            if verdict.status == "killed" and _works(pool):
                break  # the machine is well: it was the submission
            verdict = _judge_once(task, pool, seed)
        else:
            if verdict.status == "killed" and not _works(pool):
                verdict = replace(verdict, status="infrastructure")
        return verdict

    def _key(self, task: Task) -> Key:
        digest, exercise = task.submission.digest, task.assignment.id
        return Key(
            submission_hash=digest,
            exercise=exercise,
            contract_hash=self._contracts[exercise],
            environment=self._environment,
            seed_id=seeds.seed_id(self._course.secret, exercise, digest),
            level=self._course.level,
        )

    def _file(self, student: Student, made: dict[str, Any], *, known: bool) -> None:
        """Keeps a record; the last one of a student's makes the result."""
        with self._lock:
            student.records[made["exercise"]] = made
            complete = len(student.records) == len(self._course.assignments)
            before = student.before.get(made["exercise"])
            moved = before is not None and record.moved(before, made)
            self._tell(Graded(student.handin.student, made, known, moved))
        if complete:
            ordered = [student.records[assignment.id] for assignment in self._course.assignments]
            self._results.write(student.handin, ordered, student.level)


def _judge_once(task: Task, pool: Pool, seed: int) -> Verdict:
    """What the judge says; where it breaks, one file is not judged, and the run goes on."""
    wanted = task.assignment
    try:
        return judge(wanted.where, task.submission, pool=pool, seed=seed, hidden=True)
    except (Cancelled, OSError):
        raise
    except Exception as error:
        message = f"the grader itself failed: {type(error).__name__}"
        return Verdict(wanted.id, "infrastructure", 0, wanted.points, (), message, 0, seed)


def _works(pool: Pool) -> bool:
    """Whether a known-good program goes through a fresh pair of processes here and now."""
    submission = Submission(Path("mean_over_devices.py"), KNOWN_GOOD_ANSWER)
    with Pool(pool.limits, pool.start) as fresh:
        return judge(KNOWN_GOOD, submission, pool=fresh, seed=1).status == "pass"
