"""Has one file judged, and remembers its verdict.

Watch mode, `jaxpar check` and `pytest exercises` all judge through this file, so that they agree
and none repeats what another has judged.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jaxpar.course.catalog import Exercise, Kind
from jaxpar.course.folder import Course
from jaxpar.grading.cache import VerdictCache
from jaxpar.grading.lifetime import importing
from jaxpar.grading.submission import Submission, SubmissionError, is_stub, read_submission
from jaxpar.grading.verdict import Verdict

if TYPE_CHECKING:
    from jaxpar.grading.processes import Pool


@runtime_checkable
class Judge(Protocol):
    """A judge of exercises; every method but `cancel` belongs to the thread that opened it."""

    def warm(self) -> None:
        """Prepares the next judgement, so that it is quick."""
        ...

    def judge(self, row: Exercise, submission: Submission, seed: int | None) -> Verdict:
        """Returns the verdict on one file; raises Cancelled if the judgement is cancelled."""
        ...

    def cancel(self) -> None:
        """Stops the running judgement, from any thread."""
        ...


@dataclass
class PoolJudge:
    """The judge of the course: a pool of child processes.

    A sitting has one seed for each exercise. So a file that is saved again is tried with the same
    cases, of which the library's programs and right results are known already, and a case that
    failed comes back until it is mended.
    """

    pool: Pool
    kind: Kind = "program"  # of the exercise that was judged last
    _seeds: dict[str, int] = field(default_factory=dict)

    def warm(self) -> None:
        """Starts spare processes, for the same exercise again; this one imports meanwhile."""
        self.pool.warm(self.kind)
        with importing():
            import jaxpar.grading.judge  # noqa: F401

    def judge(self, row: Exercise, submission: Submission, seed: int | None) -> Verdict:
        """Judges against the contract of the exercise."""
        self.kind = row.kind
        self.warm()
        from jaxpar.grading.judge import SEED_BITS, judge

        if seed is None:
            seed = self._seeds.setdefault(row.where, secrets.randbits(SEED_BITS))
        return judge(row.where, submission, pool=self.pool, seed=seed)

    def cancel(self) -> None:
        """Kills the children of the running judgement."""
        self.pool.cancel()


@contextmanager
def open_judge(timeout: int | None = None) -> Iterator[Judge]:
    """Yields a judge whose child processes end with this block.

    Args:
        timeout: the seconds that an answer may take, if not as many as usual.
    """
    from jaxpar.grading.processes import Limits, Pool

    limits = Limits() if timeout is None else Limits(timeout, cpu_seconds=4 * timeout)
    with Pool(limits) as pool:
        yield PoolJudge(pool)


@dataclass
class Verdicts:
    """Verdicts of a course: on disk, and in memory where the disk cannot be written."""

    folder: Path
    _unwritten: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def get(self, where: str, submission: Submission) -> Verdict | None:
        """The verdict on exactly these bytes, if there is one."""
        unwritten = self._unwritten.get((where, submission.digest))
        return unwritten or VerdictCache(self.folder).get(where, submission)

    def put(self, where: str, submission: Submission, verdict: Verdict) -> None:
        """Remembers a verdict; raises OSError where it cannot be written."""
        try:
            VerdictCache(self.folder).put(where, submission, verdict)
        except OSError:
            self._unwritten[where, submission.digest] = verdict
            raise


def check(
    row: Exercise,
    path: Path,
    judge: Judge,
    verdicts: Verdicts | None,
    seed: int | None = None,
    *,
    again: bool = False,
) -> Verdict:
    """Returns the verdict on a file: the remembered one, if there is one and no seed is given.

    Args:
        row: the exercise.
        path: the file.
        judge: what judges it.
        verdicts: those that are remembered; None if none are to be.
        seed: draws the inputs; such a verdict is not remembered.
        again: whether it is judged even if a verdict is remembered.
    """
    try:
        submission = read_submission(path)
    except SubmissionError as error:
        return Verdict(row.id, "not-submitted", 0, row.points, (), str(error), 0.0, 0)
    if verdicts and seed is None and not again:
        remembered = verdicts.get(row.where, submission)
        if remembered:
            return remembered
    verdict = judge.judge(row, submission, seed)
    if verdicts and seed is None:
        with suppress(OSError):  # a verdict that cannot be written is shown all the same
            verdicts.put(row.where, submission, verdict)
    return verdict


def check_all(
    course: Course, judge: Judge, verdicts: Verdicts
) -> Iterator[tuple[Exercise, Verdict]]:
    """Yields the verdict on each file in which something is written, in the course's order."""
    for row in course.exercises:
        path, remembered = course.file(row), None
        try:
            submission = read_submission(path)
            written = not is_stub(submission, row.id)
            remembered = verdicts.get(row.where, submission)
        except SubmissionError:
            written = path.exists()
        if written:
            yield row, remembered or check(row, path, judge, verdicts)
            if not remembered:
                judge.warm()  # the next one may be judged, too
