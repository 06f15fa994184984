"""What can be typed in a sitting, as keys and as words."""

from pathlib import Path

import pytest

from jaxpar.course import session as session_module
from jaxpar.course.catalog import EXERCISES, BadUseError, Exercise, exercise
from jaxpar.course.folder import Course
from jaxpar.course.keyboard import DOWN, END_OF_INPUT, ESCAPE, PAGE_DOWN, UP
from jaxpar.course.session import Session
from tests.course.fakes import answer, stub_of
from tests.course.sittings import PROGRAM, VALUE, finish, save, turn_to, type_keys


@pytest.mark.parametrize("typed", [["h"], ["hint\n"], list("hint\n")])
def test_hints_come_one_by_one_by_key_and_by_word(session: Session, typed: list[str]) -> None:
    count = len(session.contract.hints)
    for expected in (*range(1, count + 1), count):
        type_keys(session, *typed)
        assert session.hints == expected
    assert "no more hints" in session.notice
    assert session.record.hints_shown(VALUE.id) == count
    assert session.current == VALUE  # the n in hint is not taken for `next`


@pytest.mark.parametrize("typed", [["q"], ["quit\n"], ["QUIT\n"], list("quit\n")])
def test_quit(session: Session, typed: list[str]) -> None:
    type_keys(session, *typed)
    assert session.done


@pytest.mark.parametrize("typed", ["l", "r"])
def test_the_end_of_input_ends_every_question(session: Session, typed: str) -> None:
    type_keys(session, typed, "1", END_OF_INPUT)
    assert session.done


def test_other_words_are_answered(session: Session) -> None:
    type_keys(session, "g")
    assert "the words are hint, list" in session.notice
    type_keys(session, "device_cordinates\n")
    assert "did you mean device_coordinates?" in session.notice
    assert (session.hints, session.current) == (0, VALUE)


@pytest.mark.parametrize(
    "typed", [["l", "/", *"gath\n\n"], ["l", "gath\n"], list("list\n/gath\n\n"), ["gather\n"]]
)
def test_an_exercise_is_reached_by_its_name(session: Session, typed: list[str]) -> None:
    type_keys(session, *typed)
    assert session.current == exercise("gather")


def test_next_goes_round_what_is_open(session: Session) -> None:
    seen = [session.current]
    for _ in EXERCISES[1:]:
        type_keys(session, "n")
        if session.view == "lesson":
            type_keys(session, "n")  # its exercise is the next one, and is not left out
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
    assert (session.view, session.current) == ("exercise", VALUE)


def test_enter_turns_the_pages_before_it_goes_on(session: Session) -> None:
    save(session, VALUE, answer(VALUE, "right"))
    finish(session, passes=True)
    type_keys(session, "s")
    session.more = True
    type_keys(session, "\n", PAGE_DOWN, UP, DOWN)
    assert (session.view, session.page) == ("solution", 2)
    session.more = False
    type_keys(session, DOWN)
    assert session.page == 2
    type_keys(session, "\n")
    assert (session.view, session.page) == ("exercise", 0)
    type_keys(session, "s", ESCAPE)
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
    assert not session.record.seen(VALUE.id)


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
