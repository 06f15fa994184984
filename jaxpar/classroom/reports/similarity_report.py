"""The report of answers that are alike: a table for a spreadsheet, and a page to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jaxpar.classroom.reports.frame import own, page, row, short, table
from jaxpar.classroom.reports.spreadsheets import MARK, csv_line
from jaxpar.classroom.similarity import Alike, Pair
from jaxpar.classroom.untrusted_text import markup
from jaxpar.grading.files import write_atomically

TABLE, PAGE = "similarity.csv", "html/similarity.html"
HEADER = ("exercise", "student", "other", "percent", "passages")
MOST_SHOWN = 100
MOST_TOGETHER = 50
MOST_SOURCE = 8000
READ_ME = (
    "Answers that are alike are no proof of anything: short exercises have few right answers, and "
    "students may work together. Read both texts and talk to the students. No points depend on "
    "this page. Names, layout, comments and what everybody was given do not count, nor does a "
    "passage that more than a quarter of the class wrote (and more than ten students), so an "
    "answer that very many copied is not seen here."
)


def write(found: Alike, results: Path, title: str) -> None:
    """Writes both into the folder of results.

    Raises:
        OSError: the folder cannot be written; a file is either as it was or whole.
    """
    write_atomically(results / TABLE, _rows(found))
    write_atomically(results / PAGE, page(f"{title}: alike", _body(found, title)))


def _rows(found: Alike) -> Iterator[bytes]:
    yield (MARK + csv_line(HEADER)).encode()
    for pair in found.pairs:
        cells = [pair.exercise, *pair.students, pair.percent, pair.passages]
        yield csv_line(cells).encode()


def _body(found: Alike, title: str) -> Iterator[str]:
    yield f"<h1>Answers that are alike: {short(title)}</h1>"
    yield f'<p class="note">{READ_ME}</p>'
    for exercise, student in found.skipped:
        yield f"<p>{own(exercise)} of {short(student)} could not be read, nor compared.</p>"
    if not found.pairs:
        yield "<p>None.</p>"
        return
    yield "<h2>Two students, all exercises</h2>"
    together = found.together()[:MOST_TOGETHER]
    yield from table(("student", "other", "exercises", "passages"), map(_both, together), (2, 3))
    yield "<h2>Exercise by exercise</h2>"
    numbers = (3, 4)
    rows = (row(_cells(pair, place), numbers) for place, pair in enumerate(found.pairs))
    yield from table(HEADER, rows, numbers, sortable=True)
    yield "<h2>Texts</h2>"
    for place, pair in enumerate(found.pairs[:MOST_SHOWN]):
        yield from _texts(pair, place)


def _both(item: tuple[tuple[str, str], list[Pair]]) -> str:
    (one, other), pairs = item
    passages = sum(pair.passages for pair in pairs)
    return row((short(one), short(other), str(len(pairs)), str(passages)), (2, 3))


def _cells(pair: Pair, place: int) -> list[str]:
    name = own(pair.exercise)
    link = f'<a href="#pair{place}">{name}</a>' if place < MOST_SHOWN else name
    return [link, *map(short, pair.students), f"{pair.percent}", f"{pair.passages}"]


def _texts(pair: Pair, place: int) -> Iterator[str]:
    yield f'<h3 id="pair{place}">{own(pair.exercise)}: {pair.percent} percent</h3>'
    shown = (f"<pre>{markup(text, MOST_SOURCE)}</pre>" for text in pair.texts)
    yield from table([short(student) for student in pair.students], [row(tuple(shown))])
