"""The loop as a state machine: events in, screen and wanted judgement out."""

import errno
from pathlib import Path

import pytest

from jaxpar.course import session as session_module
from jaxpar.course.catalog import EXERCISES, BadUseError, Exercise, exercise
from jaxpar.course.checking import Verdicts
from jaxpar.course.events import Judged, Saved, Trouble, Typed
from jaxpar.course.folder import Course
from jaxpar.course.memory import Memory
from jaxpar.course.session import Session
from tests.course.fakes import answer, stub_of, verdict, write

VALUE, PROGRAM = exercise("device_coordinates"), exercise("add_rank")


def start(course: Course) -> Session:
    return Session(course, Verdicts(course.verdicts), Memory(course.state))


def save(session: Session, row: Exercise, source: str | bytes) -> None:
    write(session.course, row, source)
    session.handle(Saved((row,)))


def type_keys(session: Session, *texts: str) -> None:
    for text in texts:
        session.handle(Typed(text))


def finish(session: Session, passes: bool) -> None:
    """What the judging thread does: keeps the verdict, then posts it."""
    job = session.job
    assert job
    result = verdict(job.exercise, passes)
    session.verdicts.put(job.exercise.where, job.submission, result)
    session.handle(Judged(job.number, result))


def turn_to(session: Session, row: Exercise) -> None:
    """Makes an exercise the current one by a save that changes nothing."""
    session.handle(Saved((row,)))
    assert session.current == row


@pytest.fixture
def session(course: Course) -> Session:
    session = start(course)
    type_keys(session, "\n")
    return session


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
    session.handle(Judged(old.number, verdict(VALUE, False)))
    assert session.verdict is None  # the verdict on bytes that are gone
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


def test_a_prediction_comes_before_the_first_judgement(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    assert (session.view, session.job) == ("predict", None)
    type_keys(session, "9", "7", "\x7f", "6", "\n")
    assert session.memory.prediction(PROGRAM.id) == 96
    assert session.view == "exercise"
    finish(session, passes=True)
    save(session, PROGRAM, answer(PROGRAM, "right again"))
    assert session.view == "exercise"
    assert session.job  # it is asked for once


def test_enter_skips_the_prediction(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    type_keys(session, "\n")
    assert session.job
    assert session.memory.prediction(PROGRAM.id) is None


def test_a_prediction_that_is_no_number_is_asked_for_again(session: Session) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    type_keys(session, "a lot\n")
    assert "a number of bytes" in session.notice
    assert session.view == "predict"
    type_keys(session, "quit\n")
    assert session.done


def test_saving_another_exercise_turns_to_it(session: Session) -> None:
    row = exercise("local_shape")
    save(session, row, answer(row, "wrong"))
    assert session.current == row
    assert session.job
    session.handle(Saved((VALUE, PROGRAM)))  # several at once: not somebody who edits one
    assert session.current == row


@pytest.mark.parametrize("typed", [["h"], ["hint\n"], list("hint\n")])
def test_hints_come_one_by_one_by_key_and_by_word(session: Session, typed: list[str]) -> None:
    count = len(session.contract.hints)
    for expected in (*range(1, count + 1), count):
        type_keys(session, *typed)
        assert session.hints == expected
    assert session.memory.hints_shown(VALUE.id) == count
    assert session.current == VALUE  # the n of hint is no `next`


@pytest.mark.parametrize("typed", [["q"], ["quit\n"], ["QUIT\n"], list("quit\n")])
def test_quit(session: Session, typed: list[str]) -> None:
    type_keys(session, *typed)
    assert session.done


def test_other_words_are_answered(session: Session) -> None:
    type_keys(session, "hello\n")
    assert "the words are hint, list" in session.notice
    assert session.hints == 0


def test_next_goes_round_what_is_open(session: Session) -> None:
    seen = [session.current]
    for _ in EXERCISES[1:]:
        type_keys(session, "n")
        seen.append(session.current)
    assert tuple(seen) == EXERCISES
    type_keys(session, "n")
    assert session.current == VALUE


def test_next_shows_a_new_lesson_first(session: Session) -> None:
    turn_to(session, PROGRAM)
    type_keys(session, "next\n")
    assert (session.view, session.current.lesson) == ("lesson", "02")


def test_list_and_back(session: Session) -> None:
    type_keys(session, "l")
    assert session.view == "list"
    type_keys(session, "\n")
    assert session.view == "exercise"


def test_reset_asks_then_keeps_a_backup(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "wrong"))
    type_keys(session, "r", "n")
    assert session.notice == "nothing was changed"
    assert session.started
    type_keys(session, *"reset\n", "y")
    assert "your file is kept as" in session.notice
    assert (session.started, session.job) == (False, None)
    assert session.course.file(VALUE).read_bytes() == stub_of(VALUE)


def test_reset_that_fails_says_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(course: Course, row: Exercise) -> Path:
        raise BadUseError("reset: no backup could be written")

    monkeypatch.setattr(session_module, "reset", refuse)
    save(session, VALUE, answer(VALUE, "wrong"))
    type_keys(session, "r", "y")
    assert "no backup" in session.notice
    assert session.started


def test_the_solution_comes_after_passing(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "right"))
    finish(session, passes=True)
    type_keys(session, "s")
    assert session.view == "solution"
    assert not session.memory.seen(VALUE.id)


def test_the_solution_before_passing_needs_every_hint_and_is_marked(session: Session) -> None:
    type_keys(session, "s")
    assert "after the last hint" in session.notice
    type_keys(session, "h", "h", "h", "s")
    assert session.view == "give up?"
    type_keys(session, "\n")
    assert session.view == "exercise"
    type_keys(session, "s", "y")
    assert session.view == "solution"
    assert session.rows[0].seen


def test_a_judge_that_failed_is_one_line_and_the_loop_goes_on(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "crash"))
    assert session.job
    session.handle(Judged(session.job.number, None, "the judge failed"))
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

    monkeypatch.setattr("jaxpar.course.memory.write_atomically", full)
    monkeypatch.setattr("jaxpar.grading.cache.write_atomically", full)
    type_keys(session, "h")
    assert "No space left" in session.notice
    assert session.hints == 1
    save(session, VALUE, answer(VALUE, "right"))
    assert session.job
    with pytest.raises(OSError, match="No space left"):
        finish(session, passes=True)
    session.handle(Judged(session.job.number, verdict(VALUE, True)))
    assert session.rows[0].status == "pass"


def test_when_all_is_solved_there_is_no_next(session: Session) -> None:
    for row in EXERCISES:
        save(session, row, answer(row, "right"))
        if session.view == "predict":
            type_keys(session, "\n")
        finish(session, passes=True)
    type_keys(session, "n")
    assert "no other exercise" in session.notice
    again = start(session.course)
    assert again.current == EXERCISES[0]
    assert "no other exercise" in again.notice
