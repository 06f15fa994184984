"""The table of lessons and exercises agrees with the contracts, the library and itself."""

import re
from pathlib import Path

import pytest

from jaxpar.course import catalog
from jaxpar.course.catalog import EXERCISES, LESSONS, BadUseError, exercise, lesson, used_by

LIBRARY = Path(__file__).parents[2] / "jaxpar"
each_exercise = pytest.mark.parametrize("row", EXERCISES, ids=lambda row: row.id)


def test_every_exercise_belongs_to_a_lesson_and_they_stand_in_its_order() -> None:
    numbers = [row.number for row in LESSONS]
    assert numbers == sorted(set(numbers))
    assert [row.lesson for row in EXERCISES] == [row.number for row in LESSONS for _ in row.asks]
    assert all(row.asks for row in LESSONS)
    assert len({row.id for row in EXERCISES}) == len(EXERCISES)


@each_exercise
def test_an_exercise_needs_what_comes_before_it(row: catalog.Exercise) -> None:
    ids = [other.id for other in EXERCISES]
    assert all(ids.index(needed) < ids.index(row.id) for needed in row.needs)


@pytest.mark.parametrize("row", LESSONS, ids=lambda row: row.number)
def test_a_lesson_prints_library_functions_and_asks_for_others(row: catalog.Lesson) -> None:
    sources = (path.read_text(encoding="utf-8") for path in LIBRARY.rglob("*.py"))
    functions = {name for text in sources for name in re.findall(r"^def (\w+)", text, re.M)}
    assert set(row.prints) <= functions
    assert not set(row.prints) & {asked.id for asked in EXERCISES}
    assert all(needed < row.number for needed in row.needs)


def test_a_lesson_is_found_by_number_and_by_name() -> None:
    assert lesson("2") == lesson("02") == lesson("collectives") == lesson("02_collectives")
    with pytest.raises(BadUseError, match=r"no lesson '60'; use one of 01, 02, 03"):
        lesson("60")
    with pytest.raises(BadUseError, match="lesson 24, capstone, is planned"):
        lesson("24")


def test_an_unknown_exercise_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadUseError, match="'tree_brodcast'; did you mean tree_broadcast"):
        exercise("tree_brodcast")
    for unknown in ("x", "", "r"):  # two names begin with "r"
        with pytest.raises(BadUseError, match="jaxpar list"):
            exercise(unknown)


def test_the_beginning_of_a_name_is_enough_and_a_path_is_understood() -> None:
    assert exercise("tree").id == "tree_broadcast"
    with pytest.raises(BadUseError, match=r"gather\.py'; did you mean gather"):
        exercise("exercises/02_collectives/gather.py")


def test_what_builds_on_an_exercise() -> None:
    assert [row.id for row in used_by("tree_broadcast")] == ["recursive_doubling_all_reduce"]
