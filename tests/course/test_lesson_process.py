"""Lessons in a process of their own, and what comes after them."""

import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from jaxpar.course.catalog import EXERCISES, lesson
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.lesson import LEFT
from jaxpar.course.lesson_process import read_lesson, what_next


def test_after_a_lesson_its_first_open_exercise_is_at_hand(course: Course) -> None:
    record = LearnerRecord(course.state)
    assert what_next(course, lesson("01"))[0] == "Next, type: jaxpar"
    assert EXERCISES[0].id in what_next(course, lesson("01"))[1]
    assert "ring_reduce_scatter" in what_next(course, lesson("03"))[1]
    assert record.place() == "ring_reduce_scatter"
    record.remember_place("tree_broadcast")
    assert "tree_broadcast" in what_next(course, lesson("03"))[1]  # its reader stays there


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a process")
def test_ctrl_c_before_the_first_page_ends_in_good_order(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.send_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    row = lesson("01")
    course.file(row).parent.mkdir()
    course.file(row).write_text("# %% [markdown]\n# text\n")
    code, printed = read_lesson(course, row, captured=True)
    assert code == LEFT
    assert re.fullmatch(r"To come back: \S*jaxpar lesson 01\n", printed)
    assert not LearnerRecord(course.state).lesson_run("01")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_reading_time_comes_first(course: Course, capfd: pytest.CaptureFixture[str]) -> None:
    row = lesson("01")
    course.file(row).parent.mkdir()
    course.file(row).write_text("# %% [markdown]\n# text\n")
    read_lesson(course, row, captured=False)
    first = capfd.readouterr().out.splitlines()[0]
    assert first.startswith(f"About {row.minutes} minutes")
