"""Finding a course folder and making one."""

from pathlib import Path

import pytest

from jaxpar.course import folder
from jaxpar.course.backups import reset
from jaxpar.course.catalog import EXERCISES, LESSONS, BadUseError
from jaxpar.course.folder import Course, exercise_of, find_course, make_course
from tests.course.fakes import stub_of, write

SOLVED = b"# solved by whoever built it\n"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a course as an older wheel had them inside the package, with answers."""
    package = tmp_path / "jaxpar"
    files = [lesson.file for lesson in LESSONS] + ["exercises/conftest.py"]
    for name in [*files, *(row.file for row in EXERCISES)]:
        path = package / "_course" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SOLVED)
    monkeypatch.setattr(folder, "PACKAGE", package)
    return package


def test_a_course_is_found_from_a_folder_inside_it(course: Course) -> None:
    assert find_course(course.file(EXERCISES[0]).parent) == course


def test_a_file_belongs_to_an_exercise_by_its_place() -> None:
    row = EXERCISES[0]
    assert exercise_of(Path("/somewhere") / row.file) == row
    assert exercise_of(Path("/somewhere/exercises/conftest.py")) is None
    assert exercise_of(Path(f"/somewhere/exercises/{row.id}.py")) is None


def test_a_wheel_makes_a_whole_course_without_its_answers(wheel: Path, tmp_path: Path) -> None:
    written, kept = make_course(tmp_path / "mine")
    assert not kept
    course = find_course(tmp_path / "mine")
    assert all(course.file(row).is_file() for row in LESSONS)
    assert all(course.file(row).read_bytes() == stub_of(row) for row in EXERCISES)
    assert len(written) == len(LESSONS) + len(EXERCISES) + 1
    assert "exercises/conftest.py" in written
    row = EXERCISES[0]
    write(course, row, "my answer")
    reset(course, row)
    assert course.file(row).read_bytes() == stub_of(row)


def test_a_file_of_the_learner_is_never_overwritten(wheel: Path, tmp_path: Path) -> None:
    row = EXERCISES[0]
    mine = tmp_path / "mine" / row.file
    mine.parent.mkdir(parents=True)
    mine.write_text("my answer")
    written, kept = make_course(tmp_path / "mine")
    assert kept == [row.file]
    assert row.file not in written
    assert mine.read_text() == "my answer"


def test_a_folder_that_cannot_be_made_is_one_clear_line(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUseError, match="init: cannot write"):
        make_course(tmp_path / "file" / "course")
