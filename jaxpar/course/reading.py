"""Running a lesson in a process of its own, and remembering that it was run."""

from __future__ import annotations

import signal
import subprocess
import sys

from jaxpar.course.catalog import BadUseError, Lesson
from jaxpar.course.command import command
from jaxpar.course.folder import Course
from jaxpar.course.memory import Memory


def read_lesson(course: Course, row: Lesson, captured: bool) -> tuple[int, str]:
    """Runs a lesson; returns how it ended, and what it printed if that is wanted.

    Raises:
        BadUseError: its file is missing.
    """
    path = course.file(row)
    if not path.is_file():
        raise BadUseError(f"lesson: {path} is missing; `{command()} init` puts it back")
    pipe = subprocess.PIPE if captured else None
    reader = [sys.executable, "-m", "jaxpar.course.lesson", str(path)]
    with subprocess.Popen(reader, stdout=pipe, stderr=pipe, text=True) as lesson:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the lesson ends itself
        try:
            printed = "".join(part or "" for part in lesson.communicate())
        finally:
            signal.signal(signal.SIGINT, before)
    if lesson.returncode == 0:
        Memory(course.state).remember_lesson(row.number)
    return lesson.returncode, printed
