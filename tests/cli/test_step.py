"""`jaxpar step`: a learner's function, or the library's own, collective by collective."""

from pathlib import Path
from typing import Any

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.answer_steps import ELSEWHERE, RIGHT, SHAPES
from jaxpar.course.catalog import exercise
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from tests.course.fakes import write

ROW = exercise("ring_reduce_scatter")
RING = """from jax import lax


def ring_reduce_scatter(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    to_next = [(j, (j + BY) % n) for j in range(n)]
    partial = x[(i - 1) % n]
    for k in range(2, LAST):
        partial = lax.ppermute(partial, axis, to_next) + x[(i - k) % n]
    return partial
"""
CALLS = """

def scatter(x, *, axis, root):
    return next_chunk(x, axis=axis, root=root)
"""


def ring(by: str = "1", last: str = "n + 1") -> str:
    return RING.replace("BY", by).replace("LAST", last)


def test_a_right_answer(course: Course, run: Any, tmp_path: Path) -> None:
    write(course, ROW, ring())
    ended = run("step", ROW.id, "--svg", str(tmp_path / "steps.svg"))
    assert ended.code == 0
    rows = [line.split()[1:] for line in ended.out.splitlines() if line.startswith("received")]
    assert rows == [["d", "a", "b", "c"], ["cd", "ad", "ab", "bc"], ["bcd", "acd", "abd", "abc"]]
    assert ended.out.endswith(f"{RIGHT}\n")
    assert (tmp_path / "steps.svg").read_text().count("<polygon") == 12


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (ring(last="n + 2"), "after step 4 device 0 has a twice"),
        (ring(last="n"), "the result on device 0 lacks b"),
        (ring(by="n - 1"), ELSEWHERE),
    ],
)
def test_a_wrong_answer(course: Course, run: Any, source: str, sentence: str) -> None:
    file = course.root / "mine.py"
    file.write_text(source)
    ended = run("step", ROW.id, "--file", str(file), "--devices", "4")
    assert ended.code == 0
    assert f"Wrong: {sentence}." in ended.out


def test_parts_of_the_right_devices_may_be_the_wrong_elements(course: Course, run: Any) -> None:
    row = exercise("scatter")
    wrong = load(row.where).mistake("next_chunk").function
    write(course, row, f"from {wrong.__module__} import {wrong.__name__}\n" + CALLS)
    assert ELSEWHERE in run("step", row.id).out


def test_an_exception_is_shown_with_their_lines(course: Course, run: Any) -> None:
    write(course, ROW, "def ring_reduce_scatter(x, *, axis):\n    return nothing\n")
    ended = run("step", ROW.id)
    assert ended.code == 1
    assert "line 2, in ring_reduce_scatter" in ended.out and "jaxpar/" not in ended.out
    write(course, ROW, "def ring_reduce_scatter(x, *, axis):\n    pass\n")
    assert "returns nothing" in run("step", ROW.id).out


def test_the_solution_is_drawn_where_it_may_be_seen(course: Course, run: Any) -> None:
    ended = run("step", ROW.id, "--solution")
    assert ended.code == 2 and "make it pass first" in ended.err
    LearnerRecord(course.state).remember_seen(ROW.id)
    ended = run("step", ROW.id, "--solution", "--devices", "3")
    assert ended.code == 0 and "abc" in ended.out and ended.out.endswith(f"{RIGHT}\n")


@pytest.mark.parametrize("id", SHAPES)
@pytest.mark.parametrize("devices", ["4", "8"])
def test_every_exercise_that_can_be_drawn(course: Course, run: Any, id: str, devices: str) -> None:
    LearnerRecord(course.state).remember_seen(id)
    ended = run("step", id, "--solution", "--devices", devices)
    assert ended.code == 0
    assert max(map(len, ended.out.splitlines())) <= 80
    assert ended.out.endswith(f"{RIGHT}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["masked_mean"], "step: masked_mean is none of the exercises"),
        (["swap_layout", "--devices", "5"], "step: swap_layout goes over two axes, fsdp and tp"),
        (["recursive_doubling_all_reduce", "--devices", "6"], "step: mesh axis tp has size 6"),
        ([ROW.id, "--file", "no.py"], "step: no.py: there is no such file"),
        ([ROW.id, "--file", "no.py", "--solution"], "step: both --file and --solution"),
    ],
)
def test_bad_use(course: Course, run: Any, words: list[str], message: str) -> None:
    ended = run("step", *words)
    assert ended.code == 2
    assert ended.err.startswith(message)
