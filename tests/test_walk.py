"""A walk through the terminal as a user takes it, in a small one and in a large one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxpar.course.catalog import EXERCISES
from jaxpar.course.folder import Course
from tests.course.fakes import RIGHT, WRONG, make_course, write

pytest.importorskip("pty")
from tests.terminal import ROOT, Terminal

ROW, SECOND = EXERCISES[:2]
SIZES = {"80x24": (80, 24), "160x50": (160, 50)}
CONFLICT = "<<<<<<< HEAD\n" + RIGHT + "=======\n" + WRONG + ">>>>>>> theirs\n"
VALUES = RIGHT.replace("    return", "    print('rank', rank)\n    return", 1)
Open = Callable[..., Terminal]


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def terminal(request: pytest.FixtureRequest, course: Course) -> Iterator[Open]:
    """Opens a command in a terminal of one of the sizes."""
    opened: list[Terminal] = []

    def open_terminal(*words: str) -> Terminal:
        columns, rows = request.param
        opened.append(Terminal(course.root, *words, columns=columns, rows=rows))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.kill()


def test_the_list(course: Course, terminal: Open) -> None:
    write(course, ROW, RIGHT)
    sitting = terminal()
    sitting.wait_for("pass, 5 of 5 points")
    sitting.type("l")
    assert "> device_coordinates" in re.sub(" +", " ", sitting.wait_for("q back"))
    for keys, title in (
        ("j", SECOND.title),
        ("k", ROW.title),
        ("\x1b[B", SECOND.title),
        ("\x1b[A", ROW.title),
        ("G", EXERCISES[-1].title),
        ("g", ROW.title),
        ("\x1b[6~\x1b[5~", ROW.title),
    ):
        sitting.type(keys)
        sitting.wait_for(f": {title}")
        sitting.wait_for("q back")
    for key, there, gone in (
        ("s", "device_coordinates", "gather"),
        ("t", "local_shape", "device_coordinates "),
        ("w", "nothing is wrong", "gather"),
        ("a", "device_coordinates", "nothing is wrong"),
    ):
        sitting.type(key)
        shown = sitting.wait_for("q back")
        assert there in shown and gone not in shown, key
    sitting.type("/gather")
    sitting.wait_for("/gather_")
    sitting.wait_for("Esc shows all again")
    sitting.type("\n")
    sitting.wait_for("q back")
    sitting.type("\x1b")
    sitting.wait_for("h hint")
    sitting.type("q")
    assert sitting.ends() == 0


def test_files_that_git_or_python_cannot_read(course: Course, terminal: Open) -> None:
    write(course, ROW, CONFLICT)
    sitting = terminal()
    shown = sitting.wait_for("<<<<<<<")
    assert "git" in shown and "line 1" in shown
    write(course, ROW, "def device_coordinates(rank, sizes):\n    return (rank\n")
    assert "return (rank" in sitting.wait_for("line 2")
    sitting.type("q")
    assert sitting.ends() == 0


def test_values_and_checks_on_demand(course: Course, terminal: Open) -> None:
    write(course, ROW, VALUES)
    sitting = terminal("--manual")
    sitting.wait_for("h hint")
    sitting.type("v")
    assert "rank " in sitting.wait_for("Enter goes back")
    sitting.type("\n")
    sitting.wait_for("h hint")
    sitting.type("c")
    sitting.wait_for(f"1 pass, {len(EXERCISES) - 1} to do")
    sitting.type("qq")
    assert sitting.ends() == 0
    run = terminal("run", ROW.id)
    assert run.ends() == 0
    every = terminal("check", "--all")
    every.wait_for(f"1 pass, 0 fail, {len(EXERCISES) - 1} to do: 5 of")
    assert every.ends() == 0


def test_a_lesson_is_read_back_and_forth(course: Course, terminal: Open) -> None:
    shutil.copytree(ROOT / "lessons", course.root / "lessons")
    lesson = terminal("lesson", "01")
    lesson.wait_for("Enter goes on, q ends")
    lesson.type("\n")
    lesson.wait_for("b goes back")
    lesson.type("b")
    assert "Lesson 01" in lesson.wait_for("q ends")
    lesson.type("\x1b[6~")
    lesson.wait_for("b goes back")
    lesson.type("q")
    lesson.wait_for("To come back: ")
    assert lesson.ends() == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["list"], 0, "gather"),
        (["next"], 0, "Next: device_coordinates"),
        (["lesson", "24"], 2, "is planned and not written yet"),
        (["lesson", "99"], 2, "99"),
        (["check", "--file", "/dev/zero"], 2, "check: /dev/zero: "),
        (["check", "--file", "exercises"], 2, "check: exercises: "),
        (["schedule", "1f1b", "--devices", "4", "--microbatches", "8"], 0, "bubble"),
        (["schedule", "1f1b", "--svg", "absent/picture.svg"], 2, "there is no folder absent"),
        (["train", "--mesh", "xp=2"], 2, "train: "),
    ],
)
def test_one_command(terminal: Open, words: list[str], code: int, says: str) -> None:
    command = terminal(*words)
    command.wait_for(says)
    assert command.ends() == code


def test_a_folder_below_gets_a_path_that_works(course: Course, terminal: Open) -> None:
    command = terminal("init", "my/course")
    shown = command.wait_for("Next, type: ")
    assert command.ends() == 0
    (line,) = re.findall(r"cd (\S+) &&", shown)
    assert (course.root / line / "exercises").is_dir()


def test_a_reader_of_a_pipe_may_leave(course: Course) -> None:
    shutil.copytree(ROOT / "lessons", course.root / "lessons")
    environment: Any = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    command = f"{sys.executable} -m jaxpar.cli lesson 01 | head -n 2"
    ended = subprocess.run(
        command, shell=True, cwd=course.root, env=environment, capture_output=True, text=True
    )
    assert len(ended.stdout.splitlines()) == 2
    assert "Traceback" not in ended.stderr and "Error" not in ended.stderr
