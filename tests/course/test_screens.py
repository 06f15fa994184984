"""What the screens say, as plain lines and as tables."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from jaxpar.course.catalog import EXERCISES, exercise
from jaxpar.course.events import JudgementEnded, Saved, Typed
from jaxpar.course.folder import Course
from jaxpar.course.screens import screen
from jaxpar.course.session import Session
from jaxpar.grading.verdict import Measured
from tests.course.fakes import answer, verdict
from tests.course.sittings import PROGRAM, VALUE, save, start

CHALLENGE = exercise("limited_schedule")
plain_or_not = pytest.mark.parametrize("plain", [True, False], ids=["plain", "tables"])


@pytest.fixture
def session(course: Course) -> Session:
    return start(course)


def text(session: Session, plain: bool, **console: bool) -> str:
    file, shown = io.StringIO(), screen(session, plain)
    lines = (*shown.head, *shown.body, *shown.said, *shown.foot)
    Console(file=file, width=100, highlight=False, **console).print(*lines, sep="\n")
    return file.getvalue()


def judge(
    session: Session, passes: bool, predicted: int = 100, word: str = "answer", **changes: Any
) -> None:
    save(session, session.current, answer(session.current, word))
    assert session.job
    found = replace(verdict(session.current, passes), **changes)
    session.handle(JudgementEnded(session.job.number, found))
    if session.view == "predict":
        session.handle(Typed(f"{predicted}\n"))


@plain_or_not
def test_the_lesson_says_how_to_open_it(session: Session, plain: bool) -> None:
    shown = text(session, plain)
    assert "lessons/01_devices_and_meshes.py" in shown
    assert "jaxpar lesson 01" in shown
    assert f"0 of {len(EXERCISES)} solved" in shown
    assert f"Press Enter for the first exercise: {VALUE.id}." in shown
    session.current = PROGRAM
    assert f"Press Enter for {PROGRAM.id}." in text(session, plain)


@plain_or_not
def test_an_untouched_exercise_says_what_to_do(session: Session, plain: bool) -> None:
    session.handle(Typed("\n"))
    shown = text(session, plain)
    assert VALUE.file in shown
    assert session.contract.task in shown
    assert "h hint  l list  n next  v values  c check all  r reset  s solution  q quit" in shown
    assert ("A letter, then Enter: h hint" in shown) == plain


@plain_or_not
def test_a_failure_shows_expected_got_and_the_diagnosis(session: Session, plain: bool) -> None:
    judge(session, passes=False)
    shown = text(session, plain)
    assert "values: device 0 is wrong" in shown
    assert "expected  1.5" in shown
    assert "got       2.5" in shown
    assert "The root is ignored." in shown
    assert "Why it is so" not in shown


@plain_or_not
def test_a_pass_shows_why_what_next_and_what_is_harder(session: Session, plain: bool) -> None:
    session.handle(Saved((PROGRAM,)))
    judge(session, passes=True)
    shown = " ".join(text(session, plain).split())
    contract = session.contract
    assert contract.minimal in shown
    assert contract.harder in shown
    assert "What builds on it: mean_over_devices." in shown
    assert f"Why this is the least: {contract.minimal}" in shown
    assert "predicted 100 bytes measured 96 bytes library 96 bytes" in shown
    assert "That is not what you predicted." in shown


def test_a_right_prediction_is_said(session: Session) -> None:
    session.handle(Saved((PROGRAM,)))
    judge(session, passes=True, predicted=96)
    assert "As you predicted." in text(session, True)


@plain_or_not
def test_a_challenge_is_shown_with_the_best_before_it(session: Session, plain: bool) -> None:
    session.handle(Saved((CHALLENGE,)))
    for value, best in ((48, ""), (31, "your best 48"), (38, "your best 31")):
        measured = Measured("makespan", "limited_schedule(4, 8, 3)", value, 48, challenge=True)
        judge(session, passes=True, word=f"right {value}", measured=measured)
        shown = " ".join(text(session, plain).split())
        assert f"measured {value} library 48 {best}".strip() in shown
        assert ("Your best now: 31." in shown) == (value == 31)
    session.handle(Typed("list\n"))
    assert "(best 31)" in text(session, plain)


def test_plain_numbers_have_no_least(session: Session) -> None:
    judge(session, passes=True)
    assert f"Why it is so: {session.contract.minimal}" in text(session, True)


@plain_or_not
def test_a_prediction_is_asked_for_with_the_call_in_view(session: Session, plain: bool) -> None:
    save(session, PROGRAM, answer(PROGRAM, "right"))
    assert session.job
    session.handle(JudgementEnded(session.job.number, verdict(PROGRAM, passes=True)))
    session.handle(Typed("4"))
    shown = text(session, plain)
    assert "How many bytes does each device send" in shown
    assert f"mesh {session.contract.cases[0].mesh}: x " in shown
    assert "> 4" in shown


@plain_or_not
def test_the_list_has_every_exercise(session: Session, plain: bool) -> None:
    session.handle(Typed("list\n"))
    shown = text(session, plain)
    assert all(row.id in shown for row in EXERCISES)


@plain_or_not
def test_the_solution_is_the_source_of_the_library(session: Session, plain: bool) -> None:
    judge(session, passes=True)
    session.handle(Typed("s"))
    shown = text(session, plain)
    assert "jaxpar/mesh.py" in shown
    assert "def device_coordinates(" in shown


def test_hints_questions_and_problems_are_shown(session: Session) -> None:
    session.handle(Typed("h"))
    assert f"Hint 1 of {len(session.contract.hints)}" in text(session, True)
    session.handle(Typed("r"))
    assert "A copy of your file is kept." in text(session, True)
    session.handle(Typed("n"))
    session.course.file(VALUE).unlink()
    session.handle(Saved((VALUE,)))
    assert "there is no such file" in " ".join(text(session, True).split())


def test_brackets_in_a_message_are_no_markup(session: Session) -> None:
    session.notice = "x [bold] and [/] and [4, 16]"
    assert "x [bold] and [/] and [4, 16]" in text(session, False)


def test_no_color_is_obeyed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    judge(session, passes=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in text(session, False, force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in text(session, False, force_terminal=True)
