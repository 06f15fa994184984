"""The list of a sitting: its cursor, its filters and its search."""

from dataclasses import replace

import pytest

from jaxpar.course.catalog import EXERCISES, exercise
from jaxpar.course.exercise_list import ExerciseList
from jaxpar.course.keyboard import DOWN, END, ENTER, ESCAPE, HOME, PAGE_DOWN, PAGE_UP, UP
from jaxpar.course.progress import Standing, Status
from jaxpar.course.session import Session
from tests.course.fakes import answer, stub_of
from tests.course.sittings import PROGRAM, VALUE, finish, save, type_keys

STATUSES: dict[int, Status] = {0: "pass", 3: "fail", 5: "changed", 7: "pass"}


@pytest.fixture
def listing() -> ExerciseList:
    rows = [Standing(row, STATUSES.get(n, "todo"), False) for n, row in enumerate(EXERCISES)]
    return ExerciseList(rows, EXERCISES[4], page=6)


def type_in(listing: ExerciseList, *keys: str) -> list[str | None]:
    return [listing.type(key) for key in keys]


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (["j"], 5), ([DOWN, DOWN], 6), (["k"], 3), ([UP, "k"], 2),
        ([PAGE_DOWN], 10), ([" "], 10), ([PAGE_DOWN, PAGE_UP], 4), ([PAGE_UP], 0),
        ([END], -1), (["G", "j"], -1), (["G", "g"], 0), ([HOME, "k"], 0),
    ],
)  # fmt: skip
def test_the_cursor_moves_and_stops_at_both_ends(
    listing: ExerciseList, keys: list[str], place: int
) -> None:
    assert type_in(listing, *keys) == [None] * len(keys)
    assert listing.place == EXERCISES[place]


@pytest.mark.parametrize(
    ("key", "shown", "place"), [("w", [3], 3), ("s", [0, 7], 7), ("t", None, 4), ("a", None, 4)]
)
def test_a_filter_keeps_the_cursor_on_what_is_near(
    listing: ExerciseList, key: str, shown: list[int] | None, place: int
) -> None:
    listing.type(key)
    assert listing.place == EXERCISES[place]
    if shown:
        assert [row.exercise for row in listing.shown] == [EXERCISES[n] for n in shown]
    listing.type("a")
    assert len(listing.shown) == len(EXERCISES)
    assert listing.place == EXERCISES[place]


def test_a_search_takes_every_key_until_enter(listing: ExerciseList) -> None:
    assert type_in(listing, "/", *"Ringx", "\x7f", "q", "\x7f") == [None] * 9
    assert listing.search == "ring"
    ids = [row.exercise.id for row in listing.shown]
    assert "ring_reduce_scatter" in ids and "scatter" not in ids
    assert listing.type(ENTER) is None
    assert listing.type(ENTER) == "open"
    assert listing.place.id in ids
    type_in(listing, "/", "x", "y", ESCAPE)
    assert (listing.search, len(listing.shown)) == ("", len(EXERCISES))


def test_where_nothing_is_found_nothing_can_be_opened(listing: ExerciseList) -> None:
    type_in(listing, "/", *"no such thing", ENTER)
    assert listing.lines == []
    assert type_in(listing, ENTER, "r", "j") == [None, None, None]
    assert listing.type("q") == "leave"


def test_lessons_stand_above_their_exercises(listing: ExerciseList) -> None:
    assert len(listing.lines) > len(EXERCISES)
    listing.type("w")
    heading, row = listing.lines
    assert row == listing.selected
    assert replace(EXERCISES[3]).lesson == getattr(heading, "number", "")


@pytest.mark.parametrize("key", ["q", ESCAPE])
def test_it_opens_where_the_learner_is_and_is_left(session: Session, key: str) -> None:
    type_keys(session, "n", "n", "l")
    assert session.listing.place == PROGRAM
    type_keys(session, "k", key)
    assert (session.view, session.current, session.done) == ("exercise", PROGRAM, False)


def test_a_stub_is_put_back_in_place(session: Session) -> None:
    row = exercise("local_shape")
    save(session, row, answer(row, "wrong"))
    finish(session, passes=False)
    type_keys(session, "l", "k", "r", "x")
    assert (session.view, session.notice) == ("list", "nothing was changed")
    type_keys(session, "j", "r")
    assert (session.view, session.to_reset) == ("reset?", row)
    type_keys(session, "y")
    assert session.view == "list"
    assert session.listing.place == row
    assert session.listing.selected and session.listing.selected.status == "todo"
    assert session.course.file(row).read_bytes() == stub_of(row)
    assert session.current == row and not session.started


def test_every_changed_file_is_judged_on_demand(session: Session) -> None:
    other = exercise("gather")
    save(session, VALUE, answer(VALUE, "right"))
    finish(session, passes=True)
    for row, word in ((PROGRAM, "right"), (other, "wrong")):
        session.course.file(row).write_text(answer(row, word))
    type_keys(session, "c")
    assert session.view == "list"
    assert session.job and session.job.exercise == PROGRAM
    finish(session, passes=True)
    assert session.job and session.job.exercise == other
    save(session, VALUE, answer(VALUE, "wrong"))  # it is judged first, and nothing is forgotten
    assert session.job and session.job.exercise == VALUE
    finish(session, passes=False)
    assert session.job and session.job.exercise == other
    finish(session, passes=False)
    assert session.job is None
    todo = len(EXERCISES) - 3
    assert session.notice == f"1 pass, 2 fail, {todo} to do"
    type_keys(session, "c")
    assert (session.job, session.notice) == (None, f"1 pass, 2 fail, {todo} to do")
