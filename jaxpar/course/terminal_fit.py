"""Fits a screen into a terminal of any size: first by leaving parts out, then by pages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, SegmentLines
from rich.text import Text

from jaxpar.course.screens import Brevity, screen
from jaxpar.course.session import Session

WHOLE_VIEWS = ("list", "solution")  # where nothing may be left out
Lines = list[list[Segment]]


def fit_to_terminal(session: Session, console: Console) -> tuple[RenderableType, bool]:
    """Returns as much of the screen as there is room for, and whether another page follows."""
    room = console.height - 1  # the last line is for the cursor
    above, body, below = _parts(session, Brevity.NOTHING, console)
    for brevity in list(Brevity)[1:] if session.view not in WHOLE_VIEWS else ():
        if len(above) + len(body) + len(below) <= room:
            break
        above, body, below = _parts(session, brevity, console)
    space = room - len(above) - len(below)
    if session.view == "list":
        body = _around_cursor(session, body, space)
    if len(body) <= space:
        return SegmentLines([*above, *body, *below], new_lines=True), False
    space = max(1, space - 1)
    start = min(session.page, (len(body) - 1) // space) * space
    end = min(start + space, len(body))
    more = end < len(body)
    place = f"lines {start + 1} to {end} of {len(body)}{'; Enter shows more' if more else ''}"
    shown = [*above, *body[start:end], *_lines([Text(place, "dim")], console), *below]
    return SegmentLines(shown, new_lines=True), more


def _around_cursor(session: Session, body: Lines, space: int) -> Lines:
    """As many lines of the list as there is room for, with the selected one among them."""
    listing = session.listing
    listing.page = max(1, space - 1)
    cursor = listing.lines.index(listing.selected) if listing.selected else 0
    start = max(0, min(cursor - space // 2, len(body) - space))
    return body[start : start + space]


def _parts(session: Session, brevity: Brevity, console: Console) -> tuple[Lines, Lines, Lines]:
    """The lines above the body, those of the body, and those below it."""
    shown = screen(session, plain=False, brevity=brevity)
    above = _lines([*shown.head, ""], console)
    below = _lines([*shown.said, "", *shown.foot], console)
    parts = (above, _lines(shown.body, console), below)
    if brevity < Brevity.BLANK_LINES:
        return parts
    above, body, below = ([line for line in part if not _is_blank(line)] for part in parts)
    return above, body, below


def _lines(part: Sequence[RenderableType], console: Console) -> Lines:
    return console.render_lines(Group(*part), pad=False)


def _is_blank(line: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in line)
