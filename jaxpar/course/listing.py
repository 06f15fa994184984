"""The list of exercises as plain lines, and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from jaxpar.course.catalog import Exercise, Lesson, lesson
from jaxpar.course.command import command
from jaxpar.course.exercise_list import ExerciseList
from jaxpar.course.progress import Standing

STYLES = {"todo": "dim", "changed": "yellow", "pass": "green", "fail": "bold red"}
HEADINGS = ("exercise", "pts", "min", "status", "needs")
BAR = 26


def bar(rows: Sequence[Standing]) -> str:
    """Returns a bar of how much is solved, such as `[######----] 3 of 13 solved`."""
    solved = sum(not row.open for row in rows)
    filled = BAR * solved // len(rows)
    return f"[{'#' * filled}{'-' * (BAR - filled)}] {solved} of {len(rows)} solved"


def status_words(row: Standing) -> str:
    """The status, whether the solution was seen first, and the best number of a challenge."""
    best = "" if row.best is None else f"best {row.best:,}"
    notes = ", ".join(filter(None, ["seen" if row.seen else "", best]))
    return f"{row.status} ({notes})" if notes else row.status


def exercise_table(rows: Sequence[Standing], current: str = "") -> Table:
    """Every exercise under its lesson."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for heading in HEADINGS:
        justify = "right" if heading in ("pts", "min") else "left"
        table.add_column(heading, justify=justify, no_wrap=heading != "needs")
    for row in rows:
        exercise = row.exercise
        if lesson(exercise.lesson).asks[0] == exercise:
            title = f"{exercise.lesson} {lesson(exercise.lesson).title}"
            table.add_row(Text(title, style="bold"))
        table.add_row(
            f"{'>' if exercise.id == current else ' '} {exercise.id}",
            str(exercise.points),
            str(exercise.minutes),
            Text(status_words(row), style=STYLES[row.status]),
            ", ".join(exercise.needs),
        )
    return table


def cursor_lines(listing: ExerciseList, current: Exercise) -> Iterator[Text]:
    """Every line of the list with a cursor; one that is too long ends at the terminal's edge."""
    for line in listing.lines:
        if isinstance(line, Lesson):
            yield Text(f"{line.number} {line.title}", "bold", no_wrap=True, overflow="ellipsis")
            continue
        here = "reverse" if line.exercise == listing.place else ""
        mark = ">" if line.exercise == current else ""
        text = Text(_line(mark, line), here, no_wrap=True, overflow="ellipsis")
        text.highlight_words([f" {status_words(line)} "], STYLES[line.status])
        yield text


def plain_table(rows: Sequence[Standing]) -> Iterator[str]:
    """A line of headings, then one line for each exercise."""
    yield headings()
    for row in rows:
        yield _line(row.exercise.lesson, row)


def headings() -> str:
    """What stands above the columns of a line."""
    return _plain_line("", *HEADINGS)


def _line(front: str, row: Standing) -> str:
    exercise = row.exercise
    numbers = str(exercise.points), str(exercise.minutes)
    return _plain_line(front, exercise.id, *numbers, status_words(row), ", ".join(exercise.needs))


def _plain_line(lesson: str, id: str, points: str, minutes: str, status: str, needs: str) -> str:
    return f"{lesson:<2} {id:<29} {points:>3} {minutes:>3}  {status:<11}  {needs}".rstrip()


def where_to_go(rows: Sequence[Standing], here: Standing | None) -> list[str]:
    """The whole list as lines, and what to do in the exercise at hand."""
    return [*plain_table(rows), bar(rows), "", *to_solve(here)]


def to_solve(row: Standing | None) -> list[str]:
    """Returns what to read, what to write and what to type for an exercise."""
    if row is None:
        return ["Every exercise is solved."]
    exercise = row.exercise
    return [
        f"Next: {exercise.id}, {exercise.title} (lesson {exercise.lesson})",
        f"  read   {lesson(exercise.lesson).file}",
        f"  write  {exercise.file}",
        f"  type   {command()} check {exercise.id}",
    ]
