"""The variants of exercises that a course folder has."""

from dataclasses import replace
from pathlib import Path

import pytest

from jaxpar.course.catalog import LESSONS, BadUseError
from jaxpar.course.folder import Course, exercise_of
from jaxpar.course.variants import FILE, variants_file

ASKED = [row for lesson in LESSONS[1:3] for row in lesson.asks]


def test_variants_are_told_to_the_course(tmp_path: Path) -> None:
    row = ASKED[0]
    (tmp_path / Path(row.file).parent).mkdir(parents=True)
    assert Course(tmp_path).exercise(row.id).variant == 0
    assert variants_file([row]) == {}
    ((name, data),) = variants_file([replace(row, variant=1)]).items()
    (tmp_path / name).write_bytes(data)
    assert Course(tmp_path).exercise(row.id).where == f"{row.where}@1"
    assert {r.variant for r in Course(tmp_path).exercises if r.id == row.id} == {1}
    found = exercise_of(tmp_path / row.file)
    assert found is not None
    assert found.variant == 1


@pytest.mark.parametrize("text", ["", "[]", '{"scatter": "x"}', "\xff"])
def test_broken_variants_are_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    with pytest.raises(BadUseError, match="put back the file"):
        Course(tmp_path).exercise(ASKED[0].id)
