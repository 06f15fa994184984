"""What `%%exercise` and `check` do: write the file, have it judged, and remember what happened.

A notebook is a sitting like one in the terminal: place, best numbers, hints and predictions are
remembered in the course folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jaxpar.contracts.base import Contract, load
from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.check import Judge, Verdicts, open_judge
from jaxpar.course.check import check as check_file
from jaxpar.course.command import command
from jaxpar.course.folder import Course, find_course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.notebook.background import BackgroundJudge
from jaxpar.course.notebook.cell_file import write_answer
from jaxpar.course.notebook.result import Result
from jaxpar.course.prediction import outcome, parse_bytes
from jaxpar.course.solution import next_hint, solution
from jaxpar.grading.verdict import Verdict, in_bytes


@dataclass(frozen=True)
class Wishes:
    """What is wanted beside a verdict.

    Attributes:
        hint: whether to show the next hint, unless the answer passes.
        solution: whether to show the library's own answer, once this one passes.
        prediction: the bytes that each device will send, as the learner writes them, or nothing.
    """

    hint: bool = False
    solution: bool = False
    prediction: str = ""


NOTHING_ELSE = Wishes()


def check(id: str, source: str | None = None, wishes: Wishes = NOTHING_ELSE) -> Result:
    """Judges an exercise of the course folder around the working directory.

    Args:
        id: the exercise.
        source: what is written into its file first; if None, the file is judged as it is.
        wishes: what is wanted beside the verdict.

    Raises:
        BadUseError: there is no such exercise or no course folder, the file cannot be written,
            or the prediction is no number.
        KeyboardInterrupt: the judgement was stopped; what was to be written is written.
    """
    return sitting_in(find_course(Path.cwd())).check(id, source, wishes)


@cache
def sitting_in(course: Course) -> Sitting:
    """The sitting of this process in a course folder; its judge prepares for the first answer."""
    sitting = Sitting(course)
    sitting.judge.warm()
    return sitting


class Sitting:
    """The exercises of one course folder, judged from a notebook."""

    def __init__(
        self,
        course: Course,
        open_judge: Callable[[], AbstractContextManager[Judge]] = open_judge,
    ) -> None:
        """Judges nothing yet."""
        self.judge = BackgroundJudge(open_judge)
        self._course = course
        self._verdicts, self._record = Verdicts(course.verdicts), LearnerRecord(course.state)

    def check(self, id: str, source: str | None, wishes: Wishes) -> Result:
        """Judges an exercise, as the function `check` says."""
        row, record = self._course.exercise(id), self._record
        notes = self._predict(row, wishes.prediction)
        if source is not None:
            notes += write_answer(self._course, row, source, record)
        notes.append(record.remember_place(row.id))
        verdict = check_file(row, self._course.file(row), self.judge, self._verdicts)
        predicted, best = record.prediction(row.id), record.best(row.id)
        told = outcome(predicted, verdict.measured)
        if wishes.prediction and verdict.passed and not told:
            told = "What each device sends is not measured in this exercise."
        notes += [told, record.remember_best(verdict)]
        notes += self._help(load(row.where), verdict, wishes)
        answer = solution(load(row.where)) if self._may_see(verdict, wishes) else None
        return Result(verdict, predicted, best, tuple(filter(None, notes)), answer)

    def _predict(self, row: Exercise, text: str) -> list[str]:
        """Records the first prediction for an exercise; returns what there is to say of it."""
        if not text:
            return []
        try:
            count = parse_bytes(text)
        except ValueError as error:
            reason = str(error).partition("; press Enter")[0]
            raise BadUseError(reason) from None
        first = self._record.prediction(row.id)
        if first is None:
            return [self._record.remember_prediction(row.id, count)]
        return [f"Your first prediction counts: {in_bytes(first)}."] if first != count else []

    def _help(self, contract: Contract, verdict: Verdict, wishes: Wishes) -> Iterator[str]:
        """Yields the next hint, and how to come to the solution, where they are wanted."""
        if wishes.hint and not verdict.passed:
            number, trouble = next_hint(self._record, contract)
            yield f"Hint {number} of {len(contract.hints)}: {contract.hints[number - 1]}"
            yield trouble
        if wishes.solution and not self._may_see(verdict, wishes):
            yield (
                "The solution is shown once the answer passes, or after "
                f"`{command()} solution {contract.id} --give-up`."
            )

    def _may_see(self, verdict: Verdict, wishes: Wishes) -> bool:
        return wishes.solution and (verdict.passed or self._record.seen(verdict.exercise))
