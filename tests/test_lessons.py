"""Every lesson runs, keeps the order of a lesson, shows what the catalog says, and no answer."""

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import pytest

from jaxpar.course.catalog import LESSONS, Lesson

ROOT = Path(__file__).parents[1]
HEADINGS = [
    "The idea in one picture",
    "Predict",
    "Implement",
    "Measure",
    "Compare",
    "On real hardware",
    "Exercises",
    "On paper",
    "Sources",
]

pytestmark = pytest.mark.always  # no import shows that these tests read the lessons
every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


def source(lesson: Lesson) -> str:
    return (ROOT / lesson.file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(
            lesson,
            id=lesson.name,
            marks=[pytest.mark.subject(lesson.file), pytest.mark.full][: 1 + (place >= 2)],
        )
        for place, lesson in enumerate(LESSONS)
    ],
)
def test_it_runs_and_prints_what_the_catalog_says(lesson: Lesson, tmp_path: Path) -> None:
    started = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / lesson.file)],
        cwd=tmp_path,  # so that pictures are written there
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    print(f"{lesson.name}: {time.monotonic() - started:.1f} s")
    assert ran.returncode == 0, ran.stderr
    assert set(lesson.prints) <= set(re.findall(r"^def (\w+)\(", ran.stdout, re.MULTILINE))
    pictures = list((tmp_path / "pictures").glob(f"{lesson.number}_*.svg"))
    assert pictures
    assert all(f"(in colour: pictures/{path.name})" in ran.stdout for path in pictures)
    assert max(map(len, ran.stdout.splitlines())) <= 130


@every_lesson
def test_it_shows_no_answer(lesson: Lesson) -> None:
    answers = {exercise.id for exercise in lesson.asks}
    assert not answers & set(lesson.prints)
    tree = ast.parse(source(lesson))
    assert not answers & {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


@every_lesson
def test_it_keeps_the_order_of_a_lesson(lesson: Lesson) -> None:
    found = re.findall(r"^# ## (.+)$", source(lesson), re.MULTILINE)
    assert [heading for heading in found if heading in HEADINGS] == HEADINGS
    predict = source(lesson).split("# ## Predict")[1].split("# ## ")[0]
    assert "= ask(" in predict


@every_lesson
def test_three_problems_on_paper_have_folded_answers(lesson: Lesson) -> None:
    on_paper = source(lesson).split("# ## On paper")[1].split("# ## ")[0]
    assert re.findall(r"^# (\d)\. ", on_paper, re.MULTILINE) == ["1", "2", "3"]
    assert on_paper.count("<details><summary>Answer</summary>") == 3
    assert on_paper.count("</details>") == 3


@every_lesson
def test_its_minutes_are_those_of_its_words_and_its_code(lesson: Lesson) -> None:
    """100 words a minute, with time to think, and 20 lines of code that brief mode shows."""
    words = code = 0
    for cell in re.split(r"^# %%", source(lesson), flags=re.MULTILINE)[1:]:
        head, *lines = cell.splitlines()
        if "markdown" in head:
            words += sum(len(line.split()) for line in lines if not line.startswith("# |"))
        elif "fold" not in head:
            code += sum(bool(line.strip()) for line in lines)
    assert abs(lesson.minutes - (words / 100 + code / 20)) <= 4


@every_lesson
def test_asterisks_within_words_stand_in_backticks(lesson: Lesson) -> None:
    """In a terminal, Markdown would take `b*s*d` for emphasis, and print bsd."""
    prose = [line for line in source(lesson).splitlines() if line.startswith("# ")]
    text = re.sub(r"`[^`]*`", "", "\n".join(prose))
    assert not re.findall(r"\w+\*\w[^\n]*", text)


@every_lesson
def test_devices_are_simulated_before_jax_is_imported(lesson: Lesson) -> None:
    text = source(lesson)
    assert text.index("\nsimulate_devices(8)\n") < text.index("\nimport jax\n")


@every_lesson
def test_it_opens_as_a_notebook(lesson: Lesson) -> None:
    notebook = jupytext.read(ROOT / lesson.file)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith(f"# Lesson {lesson.number}: ")
    assert {cell.cell_type for cell in notebook.cells} == {"markdown", "code"}
    assert all(cell.source.strip() for cell in notebook.cells)
