"""What a screen looks like in a small terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from jaxpar.course.catalog import EXERCISES, exercise
from jaxpar.course.events import JudgementEnded, Typed
from jaxpar.course.session import Session
from jaxpar.course.terminal_fit import fit_to_terminal
from tests.course.fakes import answer, verdict
from tests.course.sittings import save

PROGRAM = exercise("mean_over_devices")
MESSAGE = "on tp=8, device tp=0, element [0] is 2.83193; it must be 0.353992 (all 9600 differ)"


def shown(session: Session, width: int, height: int) -> list[str]:
    """The lines of the screen; the session learns whether there is another page."""
    console = Console(file=io.StringIO(), width=width, height=height, highlight=False)
    renderable, session.more = fit_to_terminal(session, console)
    lines = console.render_lines(renderable)
    assert len(lines) < height
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def judged(session: Session, passes: bool) -> None:
    """A sitting with a verdict that has as many lines as any."""
    save(session, PROGRAM, answer(PROGRAM, "answer"))
    assert session.job
    found = verdict(PROGRAM, passes)
    first = found.properties[0] if passes else replace(found.properties[0], message=MESSAGE)
    rows = (first, *(replace(found.properties[1], name=name) for name in ("gradient", "memory")))
    printed = "\n".join(f"shape {place}" for place in range(30))
    diagnosis = "" if passes else "The sum over the devices is not divided by their number."
    found = replace(found, properties=rows, diagnosis=diagnosis, printed=printed)
    session.handle(JudgementEnded(session.job.number, found))
    session.handle(Typed("100\n"))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20)])
def test_a_failure_keeps_what_helps_and_drops_the_rest(
    session: Session, width: int, height: int
) -> None:
    judged(session, passes=False)
    hints = session.contract.hints
    for session.hints in range(len(hints) + 1):
        text = " ".join(" ".join(shown(session, width, height)).split())
        for words in ("0 of 10 points", "values fail 0/7", f"values: {MESSAGE}", "not divided by"):
            assert words in text
        assert "shape 29" in text or session.more
        assert "shape 5" not in text
    assert hints[-1] in text


def test_a_pass_loses_its_passed_rows_before_its_words(session: Session) -> None:
    judged(session, passes=True)
    session.hints = 1
    text = " ".join(" ".join(shown(session, 80, 18)).split())
    assert session.contract.minimal in text
    assert "not what you predicted" in text
    assert "gradient" not in text
    assert "gradient" in " ".join(shown(session, 80, 60))


def test_what_is_too_long_comes_in_pages(session: Session) -> None:
    judged(session, passes=True)
    session.handle(Typed("solution\n"))
    whole = shown(session, 80, 200)
    assert not session.more
    seen = shown(session, 80, 16)
    while session.more:
        session.handle(Typed("\n"))
        seen += shown(session, 80, 16)
    assert session.view == "solution"
    assert {line for line in whole if line} <= set(seen)
    session.handle(Typed("\n"))
    assert session.view == "exercise"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (60, 12)])
def test_the_list_shows_the_lines_around_its_cursor(
    session: Session, width: int, height: int
) -> None:
    session.handle(Typed("l"))
    for row in EXERCISES:
        lines = shown(session, width, height)
        assert len(lines) == height - 1
        assert any(f" {row.id} " in f"{line} " for line in lines)
        assert any(f"{row.id}: " in line for line in lines)
        session.handle(Typed("j"))
    assert session.listing.place == EXERCISES[-1]
