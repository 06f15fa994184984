"""What can happen in a sitting, and what a sitting asks for.

A sitting is one run of watch mode. The keyboard, the watcher of files, the judging thread and the
terminal post events; `session` handles them, and says which job it wants judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpar.course.catalog import Exercise
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict


@dataclass(frozen=True)
class Saved:
    """The files of these exercises were saved."""

    exercises: tuple[Exercise, ...]


@dataclass(frozen=True)
class Typed:
    """One key, or one line with its end."""

    text: str


@dataclass(frozen=True)
class JudgementEnded:
    """A judgement ended; `problem` says what could not be done, if anything."""

    job: int
    verdict: Verdict | None
    problem: str = ""


@dataclass(frozen=True)
class Resized:
    """The terminal has another size."""


@dataclass(frozen=True)
class Trouble:
    """Something that the learner should know, in one line."""

    line: str


Event = Saved | Typed | JudgementEnded | Resized | Trouble


@dataclass(frozen=True)
class Job:
    """A file that is to be judged, with a number by which its verdict is recognized."""

    number: int
    exercise: Exercise
    submission: Submission
