"""Runs a lesson in a process of its own, and remembers that it was run."""

from __future__ import annotations

import signal
import subprocess
import sys

from jaxpar.course.catalog import BadUseError, Lesson
from jaxpar.course.check import Verdicts
from jaxpar.course.command import command
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.progress import at_hand, progress


def read_lesson(
    course: Course, row: Lesson, *, captured: bool, brief: bool = False
) -> tuple[int, str]:
    """Runs a lesson; returns how it ended, and what it printed if that is wanted.

    Raises:
        BadUseError: its file is missing.
    """
    path = course.file(row)
    if not path.is_file():
        raise BadUseError(f"lesson: {path} is missing; `{command()} init` puts it back")
    if not captured:
        about = f"About {row.minutes} minutes, with the predictions and the problems on paper.\n"
        print(about, flush=True)
    pipe = subprocess.PIPE if captured else None
    reader = [sys.executable, "-m", "jaxpar.course.lesson", str(path), *["--brief"] * brief]
    _hold_interrupts(True)  # the lesson inherits this, until it can handle Ctrl-C
    with subprocess.Popen(reader, stdout=pipe, stderr=pipe, text=True) as lesson:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the lesson ends itself
        _hold_interrupts(False)
        try:
            printed = "".join(part or "" for part in lesson.communicate())
        finally:
            signal.signal(signal.SIGINT, before)
    if lesson.returncode == 0:
        LearnerRecord(course.state).remember_lesson(row.number)
    return lesson.returncode, printed


def what_next(course: Course, row: Lesson) -> list[str]:
    """Returns what to type after a lesson.

    Unless the exercise at hand is one of the lesson's, its first open one is now at hand.
    """
    record, rows = LearnerRecord(course.state), progress(course, Verdicts(course.verdicts))
    here = at_hand(rows, record).exercise
    asked = next((one for one in rows if one.open and one.exercise in row.asks), None)
    if asked and here not in row.asks:
        here = asked.exercise
        record.remember_place(here.id)
    return [f"Next, type: {command()}", f"It opens {here.id}: {here.title}."]


def _hold_interrupts(hold: bool) -> None:
    """Holds Ctrl-C back, or lets it through: JAX breaks if its import is interrupted."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK if hold else signal.SIG_UNBLOCK, {signal.SIGINT})
