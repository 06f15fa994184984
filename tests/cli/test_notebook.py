"""`jaxpar notebook` writes a lesson as a notebook."""

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jaxpar.course.folder import Course

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lessons(course: Course) -> Course:
    shutil.copytree(ROOT / "lessons", course.root / "lessons")
    return course


def test_it_goes_into_the_course_or_where_it_is_wanted(lessons: Course, run: Any) -> None:
    ended = run("notebook", "2")
    path = lessons.root / "notebooks" / "02_collectives.ipynb"
    assert ended.code == 0
    assert ended.out.splitlines()[0] == f"{path} is written."
    assert run("notebook", "2", "--colab", "--out", "colab.ipynb").code == 0
    begins = [nbformat.read(one, as_version=4).cells[0].source for one in (path, "colab.ipynb")]
    assert begins[0].startswith("# Lesson 02")
    assert begins[1].startswith("On Colab: ")


def test_what_is_there_is_kept_as_a_copy(lessons: Course, run: Any) -> None:
    Path("mine.ipynb").write_text("my answers")
    ended = run("notebook", "2", "--out", "mine.ipynb", "--json")
    assert ended.json["notebook"] == "mine.ipynb"
    assert Path(ended.json["backup"]).read_text() == "my answers"
    assert "kept as" not in run("notebook", "2", "--out", "mine.ipynb").out
    Path("mine.ipynb").write_text("more answers")
    assert "mine.2.ipynb" in run("notebook", "2", "--out", "mine.ipynb").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["99"], "there is no lesson '99'"),
        (["2", "--out", "lessons"], "notebook: cannot write lessons (Is a directory)"),
        (["2", "--out", "lessons/01_devices_and_meshes.py/a"], "notebook: cannot write"),
    ],
)
def test_bad_use_is_one_line(lessons: Course, run: Any, words: list[str], says: str) -> None:
    ended = run("notebook", *words)
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err.splitlines()) == 1


def test_outside_a_course_it_says_so(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert "no course in /" in run("notebook", "2").err
