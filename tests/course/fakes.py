"""A course folder, and a fake judge that decides by words in the file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.folder import Course, original
from jaxpar.grading.processes import Cancelled
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Measured, PropertyVerdict, Verdict

RIGHT = """import numpy


def device_coordinates(rank, sizes):
    return tuple(int(place) for place in numpy.unravel_index(rank, sizes))
"""
WRONG = RIGHT.replace("rank, sizes))", "0, sizes))")

stub_of = cache(original)


def make_course(root: Path) -> Course:
    """A course folder with every stub and no lesson."""
    course = Course(root)
    for row in EXERCISES:
        write(course, row, stub_of(row))
    return course


def write(course: Course, row: Exercise, source: bytes | str) -> None:
    """Saves the learner's file."""
    path = course.file(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source.encode() if isinstance(source, str) else source)


def answer(row: Exercise, word: str) -> str:
    """An answer that the fake judge passes if it says `right`."""
    return f"def {row.id}():\n    return '{word}'\n"


def verdict(row: Exercise, passes: bool, seconds: float = 1.0) -> Verdict:
    """A verdict with two properties."""
    properties = (
        PropertyVerdict("values", "pass", 7, 7, "right on tp=4"),
        PropertyVerdict("communication", "pass", 3, 3, "1 permute", "1 permute", "1 permute"),
    )
    if not passes:
        properties = (
            PropertyVerdict("values", "fail", 0, 7, "device 0 is wrong", "1.5", "2.5"),
            PropertyVerdict("communication", "not-judged", 0, 3, "not judged: values are wrong"),
        )
    return Verdict(
        exercise=row.id,
        status="pass" if passes else "fail",
        score=10 if passes else 0,
        max_score=10,
        properties=properties,
        diagnosis="" if passes else "The root is ignored.",
        seconds=seconds,
        seed=7,
        measured=Measured("wire_bytes", "tp=4", 96, 96) if row.kind == "program" else None,
    )


@dataclass
class FakeJudge:
    """A judge that passes files with `right` in them; at `slow`, it waits to be cancelled."""

    cancels: int = 0
    started: threading.Event = field(default_factory=threading.Event)
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def warm(self) -> None:
        """Does nothing, since there is no process to start."""

    def judge(self, row: Exercise, submission: Submission, seed: int | None) -> Verdict:
        """Returns a verdict that depends on the words in the file."""
        self._cancelled.clear()
        self.started.set()
        if b"crash" in submission.source:
            raise RuntimeError("out of order")
        if b"slow" in submission.source:
            assert self._cancelled.wait(10)
            raise Cancelled
        return verdict(row, b"right" in submission.source)

    def cancel(self) -> None:
        """Ends the wait at a slow file."""
        self.cancels += 1
        self._cancelled.set()

    @contextmanager
    def open(self) -> Iterator[FakeJudge]:
        """Yields itself, as `open_judge` yields a judge."""
        yield self
