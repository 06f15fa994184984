"""`jaxpar run`: a learner's function in their own terminal, with real values."""

from typing import Any

import pytest

from jaxpar.course.catalog import exercise
from jaxpar.course.folder import Course
from tests.course.fakes import RIGHT, write

ROW, PROGRAM = exercise("device_coordinates"), exercise("add_rank")


def test_run_calls_the_function_and_says_what_is_wrong(course: Course, run: Any) -> None:
    write(course, ROW, RIGHT)
    ended = run("run", ROW.id)
    assert ended.code == 0
    assert "device_coordinates(3, (8,)) = (3,)" in ended.out
    write(course, ROW, "def device_coordinates(rank, sizes):\n    return nothing\n")
    ended = run("run")
    assert ended.code == 1
    assert "line 2, in device_coordinates" in ended.out
    assert "jaxpar/" not in ended.out
    course.file(ROW).unlink()
    ended = run("run", ROW.id)
    assert ended.code == 2
    assert ended.err.startswith("run: ") and "there is no such file" in ended.err


def test_breakpoint_stops_at_values(
    course: Course, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("sys.breakpointhook", lambda: seen.append("here"))
    source = "def add_rank(x, *, axis):\n    breakpoint()\n    print(x)\n    return x\n"
    write(course, PROGRAM, source)
    ended = run("run", PROGRAM.id)
    assert seen == ["here"]
    assert "cpu:0 at mesh coordinates (tp,) = (0,):" in ended.out.lower()
