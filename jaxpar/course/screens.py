"""What a session looks like: three parts, each as text that a terminal can colour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.segment import SegmentLines
from rich.syntax import Syntax
from rich.text import Text

from jaxpar.course.catalog import used_by
from jaxpar.course.command import command
from jaxpar.course.judged import describe
from jaxpar.course.listing import bar, exercise_table, plain_table
from jaxpar.course.session import WORDS, Session
from jaxpar.course.solution import solution
from jaxpar.grading.writers import plain_lines, render


@dataclass(frozen=True)
class Screen:
    """Where the learner is, what there is to see, and what can be typed."""

    head: list[RenderableType]
    body: list[RenderableType]
    foot: list[RenderableType]
    cut: bool = False  # what does not fit may be left out of the middle


def screen(session: Session, plain: bool) -> Screen:
    """The screen of a session; `plain` leaves out tables and colours."""
    body: list[RenderableType] = list(_views(session, plain))
    if session.notice:
        body += ["", _text(session.notice, "yellow")]
    foot = _text(_keys(session), "dim")
    return Screen(list(_head(session)), body, [foot], cut=session.view == "exercise")


def _head(session: Session) -> Iterator[RenderableType]:
    row, lesson = session.current, session.lesson
    title = Text(f"   Lesson {lesson.number}: {lesson.title}")
    yield _text(bar(session.rows), "bold") + title
    yield ""
    if session.view != "lesson":
        yield _text(f"{row.id}: {row.title} ({row.points} points)", "bold cyan")
        yield _text(f"file: {row.file}", "")


def _views(session: Session, plain: bool) -> Iterator[RenderableType]:
    match session.view:
        case "lesson":
            yield from _lesson(session)
        case "list" if plain:
            yield from (_text(line, "") for line in plain_table(session.rows))
        case "list":
            yield exercise_table(session.rows, session.current.id)
        case "solution":
            yield from _solution(session, plain)
        case "predict":
            yield from _question(session)
        case "reset?":
            yield _text("Put the stub back? A copy of your file is kept. Type y for yes.", "bold")
        case "give up?":
            yield _text(
                'Show the solution before you have solved it? It is marked "seen". '
                "Type y for yes.", "bold",
            )  # fmt: skip
        case _:
            yield from _exercise(session, plain)


def _lesson(session: Session) -> Iterator[RenderableType]:
    lesson = session.lesson
    yield _text(f"Read the lesson first, about {lesson.minutes} minutes:", "bold")
    yield _text(f"  open  {lesson.file}  in your editor", "")
    yield _text(f"  run   {command()} lesson {lesson.number}  in another terminal", "")
    yield ""
    yield _text(f"It shows {', '.join(lesson.prints)}.", "")
    yield _text(f"Then you write {', '.join(row.id for row in lesson.asks)}.", "")
    yield ""
    yield _text(f"Press Enter for the first exercise: {session.current.id}.", "bold")


def _exercise(session: Session, plain: bool) -> Iterator[RenderableType]:
    if session.problem:
        yield _text(session.problem, "bold red")
    elif not session.started:
        yield _text(f"To do: {session.contract.task}.", "")
        yield _text("Open the file, write the function, save: it is judged at once.", "")
        yield _text(f"In another terminal: {command()} check {session.current.id}", "dim")
    elif session.job:
        yield _text("Judging ...", "")
    elif session.verdict:
        predicted = session.memory.prediction(session.current.id)
        if plain:
            yield from (_text(line, "") for line in plain_lines(session.verdict, predicted))
        else:
            yield render(session.verdict, predicted)
        if session.verdict.passed:
            yield from _afterwards(session)
    yield from _hints(session)


def _hints(session: Session) -> Iterator[RenderableType]:
    hints = session.contract.hints if session.hints else ()
    for number, hint in enumerate(hints[: session.hints], start=1):
        yield ""
        yield _text(f"Hint {number} of {len(hints)}: {hint}", "cyan")


def _afterwards(session: Session) -> Iterator[RenderableType]:
    later = ", ".join(row.id for row in used_by(session.current.id))
    yield ""
    yield _text(f"Why this is the least: {session.contract.minimal}", "")
    if later:
        yield _text(f"What builds on it: {later}.", "")
    yield _text(f"Harder, if you like: {session.contract.harder}", "")
    yield ""
    yield _text("Type n for the next exercise, s to compare with the library's answer.", "bold")


def _question(session: Session) -> Iterator[RenderableType]:
    yield _text("Predict before it is measured.", "bold")
    yield _text(f"On one device: {describe(session.contract.cases[0])}.", "")
    yield _text("How many bytes does each device send in one call? (backward not counted)", "")
    yield _text("Type a number or a sum, such as 3/4 * 128 or 2 KiB; Enter alone skips.", "dim")
    yield _text(f"> {session.typed}", "bold")
    yield from _hints(session)


def _solution(session: Session, plain: bool) -> Iterator[RenderableType]:
    source, file = solution(session.contract)
    yield _text(f"The library's own, in {file}:", "bold")
    yield ""
    yield (
        _text(source, "") if plain else Syntax(source, "python", theme="ansi_dark", word_wrap=True)
    )


def _keys(session: Session) -> str:
    if session.view == "predict":
        return "Enter: judge    h and Enter: hint    q and Enter: quit"
    keys = "  ".join(f"{word[0]} {word}" for word in WORDS)
    return keys if session.view == "exercise" else f"Enter go on  {keys}"


def _text(text: str, style: str) -> Text:
    return Text(text, style=style)


def group(shown: Screen) -> RenderableType:
    """The whole screen."""
    return Group(*shown.head, "", *shown.body, "", *shown.foot)


def fitted(shown: Screen, console: Console) -> RenderableType:
    """The screen, without its middle if the terminal is too low: the verdict stays in view."""
    lines = console.render_lines(group(shown), pad=False)
    room = console.height - 2  # below it: one line for what is left out, one for the cursor
    top = len(console.render_lines(Group(*shown.head))) + 2
    if not shown.cut or len(lines) <= room + 1 or room <= top:
        return group(shown)
    left_out = f"... {len(lines) - room} lines are left out: make the window higher"
    bottom = lines[len(lines) - room + top :]
    return Group(
        SegmentLines(lines[:top], True), _text(left_out, "dim"), SegmentLines(bottom, True)
    )
