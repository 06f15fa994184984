"""The loop as a state machine: events in, screen and wanted judgement out."""

import errno
from pathlib import Path

import pytest

from jaxpar.course.catalog import EXERCISES, exercise
from jaxpar.course.events import JudgementEnded, Saved, Trouble
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.session import Session
from tests.course.fakes import answer, verdict
from tests.course.sittings import PROGRAM, VALUE, finish, save, start, type_keys


def test_the_lesson_comes_before_its_first_exercise(course: Course) -> None:
    session = start(course)
    assert (session.view, session.current) == ("lesson", VALUE)
    type_keys(session, "\n")
    assert (session.view, session.started, session.job) == ("exercise", False, None)


def test_a_save_begins_the_exercise_and_is_judged(course: Course) -> None:
    session = start(course)
    save(session, VALUE, answer(VALUE, "wrong"))
    assert session.view == "exercise"
    assert session.job
    assert session.job.submission.text == answer(VALUE, "wrong")
    finish(session, passes=False)
    assert session.job is None
    assert session.verdict
    assert not session.verdict.passed
    assert session.rows[0].status == "fail"


def test_an_edit_during_judging_wants_the_new_bytes(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "slow"))
    old = session.job
    save(session, VALUE, answer(VALUE, "right"))
    assert old
    assert session.job
    assert session.job.number > old.number
    session.handle(JudgementEnded(old.number, verdict(VALUE, False)))
    assert session.verdict is None  # that verdict was on an older version of the file
    finish(session, passes=True)
    assert session.verdict
    assert session.rows[0].status == "pass"


def test_a_save_without_a_change_is_not_judged_again(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "wrong"))
    finish(session, passes=False)
    save(session, VALUE, answer(VALUE, "wrong"))
    assert session.job is None
    assert session.verdict


def test_known_bytes_have_their_verdict_at_once(course: Course, session: Session) -> None:
    save(session, VALUE, answer(VALUE, "wrong"))
    finish(session, passes=False)
    again = start(course)
    assert again.verdict == session.verdict
    assert again.job is None


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (b"x = '\xff'", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_judged_is_one_line(
    session: Session, source: bytes | None, line: str
) -> None:
    save(session, VALUE, answer(VALUE, "slow"))
    if source is None:
        session.course.file(VALUE).unlink()
        session.handle(Saved((VALUE,)))
    else:
        save(session, VALUE, source)
    assert line in session.problem
    assert "\n" not in session.problem
    assert session.job is None
    save(session, VALUE, answer(VALUE, "slow"))
    assert session.problem == ""
    assert session.job


def test_crlf_is_said_and_judged(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "right").replace("\n", "\r\n"))
    assert "CRLF" in session.notice
    finish(session, passes=True)
    assert "CRLF" in session.notice
    save(session, VALUE, answer(VALUE, "right"))
    assert session.notice == ""


def test_a_prediction_comes_before_what_a_program_sends(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    assert session.view == "exercise"
    finish(session, passes=True)
    assert session.view == "predict"
    type_keys(session, "9", "7", "\x7f", "6", "\n")
    assert session.record.prediction(PROGRAM.id) == 96
    assert session.view == "exercise"
    save(session, PROGRAM, answer(PROGRAM, "right again"))
    finish(session, passes=True)
    assert session.view == "exercise"  # it is asked for once


def test_a_program_that_does_not_run_is_judged_without_a_prediction(session: Session) -> None:
    save(session, PROGRAM, "def add_rank(:\n")
    finish(session, passes=False, runs=False)
    assert session.view == "exercise"
    assert session.verdict
    assert not session.record.asked(PROGRAM.id)


def test_enter_skips_the_prediction(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    finish(session, passes=True)
    type_keys(session, "\n")
    assert session.view == "exercise"
    assert session.record.prediction(PROGRAM.id) is None
    assert session.record.asked(PROGRAM.id)


def test_a_prediction_that_is_no_number_is_asked_for_again(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    finish(session, passes=True)
    type_keys(session, "a lot\n")
    assert "a number of bytes" in session.notice
    assert session.view == "predict"


def test_a_question_lets_words_and_saves_through_and_comes_back(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    finish(session, passes=True)
    type_keys(session, "h\n")
    assert (session.view, session.hints) == ("predict", 1)
    type_keys(session, "list\n")
    assert session.view == "list"
    type_keys(session, "\n")
    assert session.view == "predict"
    save(session, PROGRAM, answer(PROGRAM, "wrong"))
    assert (session.view, session.verdict) == ("exercise", None)
    finish(session, passes=False)
    assert session.view == "predict"
    save(session, VALUE, answer(VALUE, "wrong"))
    assert (session.current, session.view) == (VALUE, "exercise")
    type_keys(session, "add_rank\n")
    assert (session.current, session.view) == (PROGRAM, "predict")
    type_keys(session, "quit\n")
    assert session.done


def test_a_sitting_begins_where_the_last_one_ended(course: Course, session: Session) -> None:
    save(session, VALUE, answer(VALUE, "wrong"))
    finish(session, passes=False)
    type_keys(session, "n", "n")
    assert start(course).current == PROGRAM
    save(session, PROGRAM, answer(PROGRAM, "right"))
    finish(session, passes=True)
    assert start(course).current == exercise("mean_over_devices")


def test_a_lesson_that_was_run_is_not_shown_again(course: Course) -> None:
    LearnerRecord(course.state).remember_lesson("01")
    assert start(course).view == "exercise"


def test_saving_another_exercise_turns_to_it(session: Session) -> None:
    row = exercise("local_shape")
    save(session, row, answer(row, "wrong"))
    assert session.current == row
    assert session.job
    session.handle(Saved((VALUE, PROGRAM)))  # a learner does not save several files at once
    assert session.current == row


def test_a_judge_that_failed_is_one_line_and_the_loop_goes_on(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "crash"))
    assert session.job
    session.handle(JudgementEnded(session.job.number, None, "the judge failed"))
    assert (session.notice, session.verdict, session.job) == ("the judge failed", None, None)
    session.handle(Trouble("saves are no longer noticed"))
    assert "noticed" in session.notice
    save(session, VALUE, answer(VALUE, "right"))
    finish(session, passes=True)
    assert session.rows[0].status == "pass"


def test_a_full_disk_loses_nothing_of_this_sitting(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("jaxpar.course.learner_record.write_atomically", full)
    monkeypatch.setattr("jaxpar.grading.cache.write_atomically", full)
    type_keys(session, "h")
    assert "No space left" in session.notice
    assert session.hints == 1
    save(session, VALUE, answer(VALUE, "right"))
    assert session.job
    with pytest.raises(OSError, match="No space left"):
        finish(session, passes=True)
    session.handle(JudgementEnded(session.job.number, verdict(VALUE, True)))
    assert session.rows[0].status == "pass"


def test_when_all_is_solved_there_is_no_next(session: Session) -> None:
    for row in EXERCISES:
        save(session, row, answer(row, "right"))
        finish(session, passes=True)
        if session.view == "predict":
            type_keys(session, "\n")
    type_keys(session, "n")
    assert "no other exercise" in session.notice
    again = start(session.course)
    assert again.current == EXERCISES[-1]
    assert "no other exercise" in again.notice
