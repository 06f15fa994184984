"""Judges exercises under pytest: one item for each property, one judgement for each exercise.

`exercises/conftest.py` loads this plugin. The verdicts are those of watch mode and `jaxpar check`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.check import Judge, Verdicts, check, open_judge
from jaxpar.course.folder import exercise_of, find_course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.grading.submission import SubmissionError, is_stub, read_submission
from jaxpar.grading.verdict import Verdict
from jaxpar.grading.writers import failure_lines

POINTS = "jaxpar_points"
_children = ExitStack()
_judges: list[Judge] = []


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Takes the file of an exercise, and keeps it from being imported as a test module."""
    others = yield
    row = exercise_of(file_path)
    if row is None:
        return others
    return [ExerciseFile.from_parent(parent, path=file_path, exercise=row)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps the items of one exercise in one process, so that it is judged only once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the points earned."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    points = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == POINTS and report.when == "call"
    ]
    if points:
        earned, most = (sum(column) for column in zip(*points, strict=True))
        terminalreporter.write_line(f"{earned} of {most} points")


def pytest_unconfigure() -> None:
    """Ends the child processes of the judge."""
    _judges.clear()
    _children.close()


class ExerciseFile(pytest.File):
    """The answer to one exercise; judged when the first of its items runs."""

    def __init__(self, *, exercise: Exercise, **kwargs: Any) -> None:
        """Judges nothing yet."""
        super().__init__(**kwargs)
        self.exercise = exercise
        self.said = False  # one line is enough for a file that cannot be judged
        self._verdict: Verdict | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each property that is judged."""
        for name, points in load(self.exercise.where).points().items():
            item = PropertyItem.from_parent(self, name=name, points=points)
            if self.config.pluginmanager.has_plugin("xdist"):  # other runs do not know this mark
                item.add_marker(pytest.mark.xdist_group(self.exercise.id))
            yield item

    def problem(self) -> str:
        """Returns why there is nothing to judge, or an empty text."""
        try:
            untouched = is_stub(read_submission(self.path), self.exercise.id)
        except SubmissionError as error:
            return str(error)
        return f"not written yet: {load(self.exercise.where).task}" if untouched else ""

    def verdict(self) -> Verdict:
        """The one verdict that the items share."""
        if self._verdict is None:
            try:
                course = find_course(self.path.parent)
            except BadUseError:
                course = None
            verdicts = Verdicts(course.verdicts) if course else None
            if not _judges:
                _judges.append(_children.enter_context(open_judge()))
            self._verdict = check(self.exercise, self.path, _judges[0], verdicts)
            if course:
                LearnerRecord(course.state).remember_best(self._verdict)
        return self._verdict


class FailureText:
    """A failure without a traceback: shown in full, and by its first line in pytest's summary."""

    def __init__(self, text: str) -> None:
        """Shows `text`."""
        self.text = text
        self.reprcrash = SimpleNamespace(message=text)

    def __str__(self) -> str:
        """What remains where only text can be sent."""
        return self.text

    def toterminal(self, writer: Any) -> None:
        """Prints the text."""
        writer.line(self.text)


class PropertyFailedError(Exception):
    """A property does not pass; the message says why."""


class PropertyItem(pytest.Item):
    """One property of one answer."""

    parent: ExerciseFile

    def __init__(self, *, points: int, **kwargs: Any) -> None:
        """Remembers what the property is worth."""
        super().__init__(**kwargs)
        self.points = points

    def runtest(self) -> None:
        """Fails with the words of the verdict."""
        problem = self.parent.problem()
        if problem:
            self.user_properties.append((POINTS, (0, self.points)))
            if self.parent.said:
                pytest.skip(problem)
            self.parent.said = True
            raise PropertyFailedError(problem)
        verdict = self.parent.verdict()
        row = next((row for row in verdict.properties if row.name == self.name), None)
        self.user_properties.append((POINTS, (row.score if row else 0, self.points)))
        if row is None:
            raise PropertyFailedError(verdict.diagnosis)
        if row.status == "not-judged":
            raise PropertyFailedError(row.message)
        if row.status == "fail":
            raise PropertyFailedError("\n".join(failure_lines(verdict, row)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo, style: Any = None) -> Any:
        """The message alone; a traceback only where the judge itself failed."""
        if isinstance(excinfo.value, PropertyFailedError):
            return FailureText(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Returns what pytest prints above a failure."""
        return self.path, None, f"{self.parent.exercise.id}: {self.name}"
