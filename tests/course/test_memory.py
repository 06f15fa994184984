"""Hints, solutions seen and predictions are remembered, and a damaged or full disk is survived."""

from pathlib import Path

from jaxpar.course.memory import Memory


def test_what_is_remembered_is_found_by_another_process(tmp_path: Path) -> None:
    assert Memory(tmp_path).remember_hints("scatter", 2) == ""
    assert Memory(tmp_path).remember_seen("scatter") == ""
    assert Memory(tmp_path).remember_prediction("scatter", 96) == ""
    other = Memory(tmp_path)
    assert (other.hints_shown("scatter"), other.seen("scatter")) == (2, True)
    assert (other.asked("scatter"), other.prediction("scatter")) == (True, 96)


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    assert (memory.hints_shown("x"), memory.seen("x")) == (0, False)
    assert (memory.asked("x"), memory.prediction("x")) == (False, None)


def test_a_skipped_prediction_is_not_asked_for_again(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.remember_prediction("x", None)
    assert (memory.asked("x"), memory.prediction("x")) == (True, None)


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "hints").mkdir()
    (tmp_path / "hints" / "x").write_bytes(b"\xff\xfe")
    assert Memory(tmp_path).hints_shown("x") == 0


def test_what_cannot_be_written_is_remembered_for_now(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    memory = Memory(tmp_path / "state")
    assert "cannot be written" in memory.remember_hints("x", 1)
    assert memory.hints_shown("x") == 1
