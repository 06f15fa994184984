"""Progress is what the verdicts on the present files say, and nothing else."""

from pathlib import Path

import pytest

from jaxpar.course.catalog import EXERCISES
from jaxpar.course.check import Verdicts
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.progress import at_hand, progress, status
from jaxpar.grading.submission import Submission, is_stub, read_submission
from tests.course.fakes import answer, verdict, write

ROW = EXERCISES[2]


@pytest.fixture
def verdicts(course: Course) -> Verdicts:
    return Verdicts(course.verdicts)


def judge(course: Course, verdicts: Verdicts, passes: bool) -> None:
    verdicts.put(ROW.where, read_submission(course.file(ROW)), verdict(ROW, passes))


def test_a_stub_is_to_do(course: Course, verdicts: Verdicts) -> None:
    assert {row.status for row in progress(course, verdicts)} == {"todo"}


def test_an_edited_file_is_changed_until_it_is_judged(course: Course, verdicts: Verdicts) -> None:
    write(course, ROW, answer(ROW, "right"))
    assert status(course, verdicts, ROW) == "changed"
    judge(course, verdicts, passes=False)
    assert status(course, verdicts, ROW) == "fail"


def test_a_pass_ends_with_the_next_edit(course: Course, verdicts: Verdicts) -> None:
    write(course, ROW, answer(ROW, "right"))
    judge(course, verdicts, passes=True)
    assert status(course, verdicts, ROW) == "pass"
    write(course, ROW, answer(ROW, "right") + "\n")
    assert status(course, verdicts, ROW) == "changed"


def test_a_forged_or_damaged_verdict_is_not_believed(course: Course, verdicts: Verdicts) -> None:
    write(course, ROW, answer(ROW, "right"))
    judge(course, verdicts, passes=True)
    (kept,) = course.verdicts.iterdir()
    write(course, ROW, answer(ROW, "wrong"))
    judge(course, verdicts, passes=False)
    (other,) = set(course.verdicts.iterdir()) - {kept}
    other.write_bytes(kept.read_bytes())
    assert status(course, verdicts, ROW) == "changed"
    other.write_bytes(b"{")
    assert status(course, verdicts, ROW) == "changed"


@pytest.mark.parametrize("source", [b"", b"\xff\xfe"])
def test_a_file_that_cannot_be_judged_is_changed(
    course: Course, verdicts: Verdicts, source: bytes
) -> None:
    write(course, ROW, source)
    assert status(course, verdicts, ROW) == "changed"


def test_a_missing_file_is_to_do(course: Course, verdicts: Verdicts) -> None:
    course.file(ROW).unlink()
    assert status(course, verdicts, ROW) == "todo"


def test_a_solution_seen_is_marked(course: Course, verdicts: Verdicts) -> None:
    LearnerRecord(course.state).remember_seen(ROW.id)
    assert [row.exercise for row in progress(course, verdicts) if row.seen] == [ROW]


def test_at_hand_is_where_the_learner_was_or_what_is_open_after_it(
    course: Course, verdicts: Verdicts
) -> None:
    record = LearnerRecord(course.state)
    assert at_hand(progress(course, verdicts), record).exercise == EXERCISES[0]
    record.remember_place(ROW.id)
    assert at_hand(progress(course, verdicts), record).exercise == ROW
    write(course, ROW, answer(ROW, "right"))
    judge(course, verdicts, passes=True)
    assert at_hand(progress(course, verdicts), record).exercise == EXERCISES[3]
    record.remember_place("an exercise that is gone")
    assert at_hand(progress(course, verdicts), record).exercise == EXERCISES[0]


@pytest.mark.parametrize(
    ("source", "untouched"),
    [
        ("def f(x):\n    raise NotImplementedError('do it')\n", True),
        ("def f(x):\n    '''Text.'''\n    raise NotImplementedError('do it')\n", True),
        ("def g(x):\n    return x\ndef f(x):\n    raise NotImplementedError('do it')\n", True),
        ("def f(x):\r\n    raise NotImplementedError('do it')\r\n", True),
        ("def f(x):\n    x = g(x)\n    raise NotImplementedError('do it')\n", False),
        ("def f(x):\n    raise ValueError('no')\n", False),
        ("def f(x):\n    '''Text.'''\n", False),
        ("def g(x):\n    raise NotImplementedError('do it')\n", False),
        ("def f(x:\n", False),
        ("f = lambda x: x\n", False),
    ],
)
def test_a_stub_is_known_by_its_body(source: str, untouched: bool) -> None:
    assert is_stub(Submission(Path(), source.encode()), "f") is untouched
