"""Every number of a real cluster in a lesson has a formula that gives it, or a source."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import jupytext
import pytest

from jaxpar.course.catalog import LESSONS, Lesson
from tests.claims.claim import NUMBER, Claim, computed, is_rounded

ROOT = Path(__file__).parents[2]
UNITS = (
    r"[kMGT]?B(?:/s)?|[GT]?FLOPs?(?:/s)?|Gb/s|[KMG]iB|us|ms|s|seconds|minutes|hours|days|bytes|"
    r"GPUs?|H100s?|A100s?|devices|nodes|cards|chips|links|tokens|parameters|layers|sequences|"
    r"examples|times|billion|million|percent|steps|microbatches"
)
QUANTITY = re.compile(rf"(?<![\w.])(?:{NUMBER}(?:e\d+)?)(?: ?%| (?:{UNITS})\b)")

pytestmark = pytest.mark.always  # no import shows that these tests read the lessons


def claims(lesson: Lesson) -> tuple[Claim, ...]:
    return importlib.import_module(f"tests.claims.lesson_{lesson.number}").CLAIMS


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def prose(lesson: Lesson) -> dict[str, str]:
    """The text of each section of a lesson, in one line."""
    cells = jupytext.read(ROOT / lesson.file).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    found = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {head: in_one_line(body) for head, body in zip(found[::2], found[1::2], strict=True)}


def numbers_in_asserts(lesson: Lesson) -> set[str]:
    """The numbers that the asserts of a lesson name, as prose prints them."""
    statements = ast.walk(ast.parse((ROOT / lesson.file).read_text(encoding="utf-8")))
    asserts = [node for node in statements if isinstance(node, ast.Assert)]
    constants = [
        node.value for one in asserts for node in ast.walk(one) if isinstance(node, ast.Constant)
    ]
    return {f"{value:,}" for value in constants if isinstance(value, int | float)}


def on_real_clusters(lesson: Lesson) -> str:
    """What a lesson says of real clusters: problems on paper are given, their answers are not."""
    sections = prose(lesson)
    answers = re.findall(r"</summary>(.*?)</details>", sections["On paper"])
    return " ".join([sections["On real hardware"], *answers])


every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


@every_lesson
def test_each_number_has_a_formula_or_a_source(lesson: Lesson) -> None:
    text = on_real_clusters(lesson)
    left = text
    for claim in claims(lesson):
        left = left.replace(in_one_line(claim.text), " ... ")
    missing = [left[max(0, q.start() - 60) : q.end() + 20] for q in QUANTITY.finditer(left)]
    assert not missing


@every_lesson
def test_each_claim_is_what_the_lesson_says_and_what_its_formula_gives(lesson: Lesson) -> None:
    text, held = " ".join(prose(lesson).values()), numbers_in_asserts(lesson)
    for claim in claims(lesson):
        assert in_one_line(claim.text) in text
        assert claim.computed or claim.source or claim.asserted
        assert not claim.wrong(), claim.text
        assert set(claim.asserted) <= held


@pytest.mark.parametrize(
    ("printed", "value", "right"),
    [
        ("17.6", 17.65, True),
        ("17.6", 17.66, False),
        ("4,000", 3960.0, True),
        ("4,000", 3940.0, False),
        ("1,923", 1923.4, True),
        ("1,923", 1924.0, False),
        ("100", 96.0, True),
        ("8", 8.6, False),
    ],
)
def test_a_number_is_held_to_the_digits_that_are_printed(
    printed: str, value: float, right: bool
) -> None:
    assert is_rounded(printed, value) is right


def test_a_claim_says_which_number_is_wrong() -> None:
    claim = computed("It takes {2.5} ms, {40%} of the step.", 2.49, 44)
    assert claim.text == "It takes 2.5 ms, 40% of the step."
    assert claim.wrong() == ["40 is 44"]
    with pytest.raises(ValueError, match="1 numbers in braces and 2 values"):
        computed("It takes {2.5} ms.", 2.5, 1)
