"""Hints, solutions seen and predictions are remembered, and a damaged or full disk is survived."""

from dataclasses import replace
from pathlib import Path

from jaxpar.course.catalog import exercise
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.grading.verdict import Measured, Verdict
from tests.course.fakes import verdict


def test_what_is_remembered_is_found_by_another_process(tmp_path: Path) -> None:
    assert LearnerRecord(tmp_path).remember_hints("scatter", 2) == ""
    assert LearnerRecord(tmp_path).remember_seen("scatter") == ""
    assert LearnerRecord(tmp_path).remember_prediction("scatter", 96) == ""
    other = LearnerRecord(tmp_path)
    assert (other.hints_shown("scatter"), other.seen("scatter")) == (2, True)
    assert (other.asked("scatter"), other.prediction("scatter")) == (True, 96)


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    record = LearnerRecord(tmp_path)
    assert (record.hints_shown("x"), record.seen("x")) == (0, False)
    assert (record.asked("x"), record.prediction("x")) == (False, None)


def test_a_skipped_prediction_is_not_asked_for_again(tmp_path: Path) -> None:
    record = LearnerRecord(tmp_path)
    record.remember_prediction("x", None)
    assert (record.asked("x"), record.prediction("x")) == (True, None)


def reached(value: int, passes: bool = True, challenge: bool = True) -> Verdict:
    measured = Measured("makespan", "limited_schedule(4, 8, 3)", value, 48, challenge)
    return replace(verdict(exercise("limited_schedule"), passes), measured=measured)


def test_the_best_of_a_challenge_only_falls(tmp_path: Path) -> None:
    bests = []
    for value in (48, 38, 40, 31, 48):
        assert LearnerRecord(tmp_path).remember_best(reached(value)) == ""
        bests.append(LearnerRecord(tmp_path).best("limited_schedule"))
    assert bests == [48, 38, 38, 31, 31]


def test_what_fails_or_is_no_challenge_is_no_best(tmp_path: Path) -> None:
    record = LearnerRecord(tmp_path)
    record.remember_best(reached(1, passes=False))
    record.remember_best(reached(1, challenge=False))
    record.remember_best(replace(reached(1), measured=None))
    assert record.best("limited_schedule") is None


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "hints").mkdir()
    (tmp_path / "hints" / "x").write_bytes(b"\xff\xfe")
    assert LearnerRecord(tmp_path).hints_shown("x") == 0


def test_what_cannot_be_written_is_remembered_for_now(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    record = LearnerRecord(tmp_path / "state")
    assert "cannot be written" in record.remember_hints("x", 1)
    assert record.hints_shown("x") == 1
