"""What was solved on the site comes into a course folder, and nothing that is there is lost."""

from pathlib import Path

import pytest

from jaxpar.course.catalog import BadUseError, exercise
from jaxpar.course.folder import Course, make_course
from jaxpar.course.solved_on_site import bring, read_text
from jaxpar.explore.progress import pack

ANSWER = "def bubble_fraction(stages, microbatches, chunks):\n    return 0.5\n"
ROW = exercise("bubble_fraction")


@pytest.fixture
def course(tmp_path: Path) -> Course:
    make_course(tmp_path)
    return Course(tmp_path)


def test_an_answer_takes_the_place_of_the_stub(course: Course) -> None:
    assert bring(course, pack({ROW.id: ANSWER})) == [f"{ROW.file}: written"]
    assert course.file(ROW).read_text() == ANSWER
    assert not (course.state / "backups").exists()
    assert bring(course, pack({ROW.id: ANSWER})) == [f"{ROW.file}: is so already"]


def test_another_answer_is_kept(course: Course) -> None:
    course.file(ROW).write_text("mine")
    (line,) = bring(course, pack({ROW.id: ANSWER}))
    kept = course.root / line.split(" kept as ")[1]
    assert kept.read_text() == "mine"
    assert course.file(ROW).read_text() == ANSWER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no progress of this version"),
        (pack({ROW.id: ANSWER})[:-9], "its checksum is not"),
        (pack({"nonsense": "x"}), "no exercise"),
    ],
)
def test_a_text_that_is_not_whole_changes_nothing(course: Course, text: str, message: str) -> None:
    before = course.file(ROW).read_bytes()
    with pytest.raises(BadUseError, match=message):
        bring(course, text)
    assert course.file(ROW).read_bytes() == before


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadUseError, match="paste the text into it"):
        read_text(tmp_path / "none.txt")
