"""What a learner does every day, in processes of its own and without a terminal.

Nothing here needs more than Windows has: the workflow `platforms` runs it on every system.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxpar.course.catalog import exercise
from jaxpar.course.folder import Course
from tests.course.fakes import RIGHT, WRONG, make_course, write

ROOT = Path(__file__).parents[1]
WAIT_SECONDS = 120
VALUE, PROGRAM = exercise("device_coordinates"), exercise("mean_over_devices")
MEAN = "from jax import lax\n\n\ndef mean_over_devices(x, *, axis):\n    return lax.{}(x, axis)\n"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
JAXPAR = [sys.executable, "-m", "jaxpar.cli"]


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def jaxpar(course: Course, *words: str) -> tuple[int, str]:
    """Returns how a command ended, and what it printed; it prints no errors."""
    ended = subprocess.run(
        [*JAXPAR, *words],
        cwd=course.root,
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_SECONDS,
    )
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "device_coordinates"),
        (["list"], "gather"),
        (["next"], "lessons/01"),
        (["hint"], "Hint 1"),
        (["schedule", "1f1b", "--devices", "2", "--microbatches", "4"], "bubble"),
    ],
)
def test_commands_answer(course: Course, words: list[str], says: str) -> None:
    code, printed = jaxpar(course, *words)
    assert code == 0
    assert says in printed.replace(os.sep, "/")


@pytest.mark.parametrize(
    ("row", "source", "status"),
    [
        (VALUE, RIGHT, "pass"),
        (VALUE, WRONG, "fail"),
        (VALUE, "while True: print(1) or (", "error"),
        (PROGRAM, MEAN.format("pmean"), "pass"),
        (PROGRAM, MEAN.format("psum"), "fail"),
    ],
)
def test_an_answer_is_judged(course: Course, row: object, source: str, status: str) -> None:
    write(course, row, source)
    code, printed = jaxpar(course, "check", row.id, "--json")
    assert json.loads(printed)["status"] == status
    assert code == (0 if status == "pass" else 1)


def test_a_lesson_runs(course: Course) -> None:
    (course.root / "lessons").mkdir()
    lesson = next((ROOT / "lessons").glob("01_*.py"))
    (course.root / "lessons" / lesson.name).write_bytes(lesson.read_bytes())
    code, printed = jaxpar(course, "lesson", "01")
    assert code == 0
    assert "To write, in exercises/01_devices_and_meshes/" in printed


def test_a_step_is_trained(course: Course) -> None:
    sizes = "--layers 1 --d-model 32 --heads 2 --batch 4 --sequence 16"
    code, printed = jaxpar(course, "train", "--mesh", "dp=2", "--steps", "1", *sizes.split())
    assert code == 0
    assert "loss" in printed


@pytest.fixture
def watch(course: Course) -> Iterator[tuple[subprocess.Popen[str], queue.Queue[str]]]:
    """A sitting whose screen is lines, and the lines."""
    with subprocess.Popen(
        [*JAXPAR, "--plain"],
        cwd=course.root,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout
        reading = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout])
        reading.start()
        yield process, lines
        process.kill()
        reading.join()


def test_a_saved_file_is_judged(
    course: Course, watch: tuple[subprocess.Popen[str], queue.Queue[str]]
) -> None:
    process, lines = watch

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in lines.get(timeout=max(0.0, deadline - time.monotonic())):
            pass

    def types(text: str) -> None:
        assert process.stdin
        process.stdin.write(text)
        process.stdin.flush()

    wait_for("Press Enter for the first exercise")
    types("\n")
    wait_for("Open the file, write the function, save")
    for source, verdict in ((WRONG, "fail, 0 of 5 points"), (RIGHT, "pass, 5 of 5 points")):
        write(course, VALUE, source)
        wait_for(verdict)
    types("q\n")
    assert process.wait(WAIT_SECONDS) == 0
