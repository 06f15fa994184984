"""The screen of a session: its parts, each as text that a terminal can colour.

It only reads the session. `watch` prints the parts, and `terminal_fit` asks for shorter ones where
the terminal is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from rich.console import RenderableType
from rich.text import Text

from jaxpar.contracts.case_in_words import describe_case
from jaxpar.course.catalog import used_by
from jaxpar.course.command import command
from jaxpar.course.links import with_links
from jaxpar.course.listing import bar, cursor_lines, headings, plain_table
from jaxpar.course.prediction import outcome
from jaxpar.course.session import Session
from jaxpar.course.solution import solution
from jaxpar.course.typed_words import WORDS
from jaxpar.course.wrapping import Code, Entries
from jaxpar.grading.terminal_writer import render
from jaxpar.grading.verdict import Verdict
from jaxpar.grading.writers import plain_lines

LAST_LINES = 2
KEYS = {"check": "c check all"}
LIST_KEYS = "j k move  Enter open  / find  t todo  w wrong  s solved  a all  r reset  q back"


class Brevity(IntEnum):
    """What is left out where there is no room; each level also leaves out those before it."""

    NOTHING, BLANK_LINES, PASSED, OUTPUT, HARDER, LATER, OLD_HINTS, HEADING = range(8)


@dataclass(frozen=True)
class Screen:
    """A screen in four parts.

    Attributes:
        head: where the learner is.
        body: what there is to see: an exercise with its verdict, or another view.
        said: the hints, the notice about the last event, and the line that is being typed.
        foot: what can be typed.
    """

    head: Sequence[RenderableType]
    body: Sequence[RenderableType]
    said: Sequence[RenderableType]
    foot: Sequence[RenderableType]


def screen(session: Session, plain: bool, brevity: Brevity = Brevity.NOTHING) -> Screen:
    """The screen of a session; `plain` leaves out tables and colours."""
    keys = Text(_keys(session, plain), "dim")
    if not plain:
        keys = Entries(keys)
    return Screen(
        list(_head(session, plain, brevity)),
        list(_views(session, plain, brevity)),
        list(_said(session, plain, brevity)),
        [] if plain and session.job else [keys],
    )


def _head(session: Session, plain: bool, brevity: Brevity) -> Iterator[RenderableType]:
    row, lesson = session.current, session.lesson
    full = brevity < Brevity.HEADING
    name = f"Lesson {lesson.number}: {lesson.title}" if full else row.id
    yield Text(bar(session.rows), "bold") + Text(f"   {name}")
    if session.view == "list" and not plain:
        yield Text(headings(), "underline")
    elif full and session.view not in ("lesson", "list"):
        yield ""
        yield Text(f"{row.id}: {row.title} ({row.points} points)", "bold cyan")
        yield with_links(Text(f"file: {row.file}"), session.course.root)


def _views(session: Session, plain: bool, brevity: Brevity) -> Iterator[RenderableType]:
    match session.view:
        case "lesson":
            yield from _lesson(session)
        case "list" if plain:
            yield from (Text(line) for line in plain_table(session.rows))
        case "list":
            yield from cursor_lines(session.listing, session.current)
        case "solution":
            yield from _solution(session, plain)
        case "predict":
            yield from _question(session)
        case "reset?":
            stub = f"the stub of {session.to_reset.id}"
            yield Text(f"Put {stub} back? A copy of your file is kept. Type y for yes.", "bold")
        case "give up?":
            yield Text(
                'Show the solution before you have solved it? It is marked "seen". '
                "Type y for yes.", "bold",
            )  # fmt: skip
        case _:
            yield from _exercise(session, plain, brevity)


def _lesson(session: Session) -> Iterator[RenderableType]:
    lesson = session.lesson
    yield Text(f"Read the lesson first, about {lesson.minutes} minutes:", "bold")
    opened = Text(f"  open  {lesson.file}  in your editor")
    yield with_links(opened, session.course.root)
    yield Text(f"  run   {command()} lesson {lesson.number}  in another terminal")
    yield ""
    yield Text(f"It shows {', '.join(lesson.prints)}.")
    yield Text(f"Then you write {', '.join(row.id for row in lesson.asks)}.")
    yield ""
    first = "the first exercise: " if session.current == lesson.asks[0] else ""
    yield Text(f"Press Enter for {first}{session.current.id}.", "bold")


def _exercise(session: Session, plain: bool, brevity: Brevity) -> Iterator[RenderableType]:
    if session.problem:
        yield Text(session.problem, "bold red")
    elif not session.started:
        yield Text(f"To do: {session.contract.task}.")
        when = "press Enter: it is judged" if session.manual else "save: it is judged at once"
        yield Text(f"Open the file, write the function, {when}.")
        yield Text(f"Or, in another terminal: {command()} check {session.current.id}", "dim")
    elif session.job:
        yield Text("Judging ...")
    elif session.manual and not session.verdict:
        yield Text("Press Enter to have it judged as it is now.", "bold")
    elif session.verdict:
        yield from _verdict(session, session.verdict, plain, brevity)
        if session.verdict.passed:
            yield from _afterwards(session, brevity)


def _verdict(
    session: Session, verdict: Verdict, plain: bool, brevity: Brevity
) -> Iterator[RenderableType]:
    predicted = session.record.prediction(session.current.id)
    if brevity >= Brevity.PASSED:
        left = tuple(row for row in verdict.properties if row.status != "pass")
        verdict = replace(verdict, properties=left)
    if brevity >= Brevity.OUTPUT:
        verdict = replace(verdict, printed=_last_lines(verdict.printed))
    if plain:
        yield from (Text(line) for line in plain_lines(verdict, predicted, session.best))
    else:
        yield render(verdict, predicted, session.best)
    if line := outcome(predicted, verdict.measured):
        yield Text(line)


def _last_lines(printed: str) -> str:
    lines = printed.splitlines()
    return "\n".join(["...", *lines[-LAST_LINES:]] if len(lines) > LAST_LINES else lines)


def _afterwards(session: Session, brevity: Brevity) -> Iterator[RenderableType]:
    contract = session.contract
    least = "Why it is so" if contract.kind == "value" else "Why this is the least"
    later = ", ".join(row.id for row in used_by(session.current.id))
    yield ""
    yield Text(f"{least}: {contract.minimal}")
    if later and brevity < Brevity.LATER:
        yield Text(f"What builds on it: {later}.")
    if brevity < Brevity.HARDER:
        yield Text(f"Harder, if you like: {contract.harder}")
    yield ""
    yield Text("Type n for the next exercise, s to compare with the library's answer.", "bold")


def _question(session: Session) -> Iterator[RenderableType]:
    yield Text("It runs. Predict before you see what it sends.", "bold")
    yield Text(f"On one device: {describe_case(session.contract.cases[0])}.")
    yield Text("How many bytes does each device send in one call? (backward not counted)")
    yield Text("Type a number or a calculation, such as 3/4 * 128 or 2 KiB.", "dim")


def _solution(session: Session, plain: bool) -> Iterator[RenderableType]:
    source, file = solution(session.contract)
    yield Text(f"The library's own, in {file}:", "bold")
    yield ""
    yield Text(source) if plain else Code(source)


def _said(session: Session, plain: bool, brevity: Brevity) -> Iterator[RenderableType]:
    """Yields hints, the notice about the last event, and the line that is being typed."""
    if session.hints and session.view in ("exercise", "predict"):
        hints = session.contract.hints
        first = session.hints - 1 if brevity >= Brevity.OLD_HINTS else 0
        for number in range(first, session.hints):
            yield ""
            yield Text(f"Hint {number + 1} of {len(hints)}: {hints[number]}", "cyan")
    if session.notice:
        yield ""
        yield Text(session.notice, "yellow")
    if session.view == "predict" or (session.view == "list" and plain):
        yield ""
        yield Text(f"> {session.words.line}", "bold")
    elif session.view == "list":
        yield ""
        yield Text("   ".join(_about_list(session)))


def _about_list(session: Session) -> Iterator[str]:
    """Yields what is judged now, what is searched for, and what the selected exercise is."""
    listing = session.listing
    if session.job:
        more = f", {len(session.waiting)} more wait" if session.waiting else ""
        yield f"judging {session.job.exercise.id}{more}"
    if listing.searching or listing.search:
        yield f"/{listing.search}{'_' if listing.searching else ''}"
    if not listing.shown:
        yield f"nothing is {listing.filter}" if listing.filter != "all" else "nothing is found"
    elif listing.selected:
        row = listing.selected.exercise
        yield f"{row.id}: {row.title}"


def _keys(session: Session, plain: bool) -> str:
    match session.view:
        case "predict":
            return "Enter alone skips.  h hint  l list  n next  v values  r reset  q quit"
        case "list" if plain:
            return "Enter goes on; a name, or its beginning, and Enter goes to that exercise"
        case "list" if session.listing.searching:
            return "Enter keeps what is found; Esc shows all again"
        case "list":
            return LIST_KEYS
        case "reset?" | "give up?":
            return ""
    keys = "  ".join(KEYS.get(word, f"{word[0]} {word}") for word in WORDS)
    keys = f"A letter, then Enter: {keys}" if plain else keys
    return keys if session.view == "exercise" else f"Enter goes on.  {keys}"
