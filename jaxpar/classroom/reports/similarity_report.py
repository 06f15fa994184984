"""The report of answers that are alike: a table for a spreadsheet, and a page to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jaxpar.classroom.reports.pages import render
from jaxpar.classroom.reports.spreadsheets import BYTE_ORDER_MARK, csv_line
from jaxpar.classroom.similarity import AlikeAnswers
from jaxpar.files import write_atomically

TABLE, PAGE = "similarity.csv", "html/similarity.html"
HEADER = ("exercise", "student", "other", "percent", "passages")
MOST_SHOWN = 100
MOST_TOGETHER = 50


def write_similarity_report(found: AlikeAnswers, results: Path, title: str) -> None:
    """Writes the table and the page into the folder of results.

    Raises:
        OSError: the folder cannot be written; each file is either as it was or whole.
    """
    write_atomically(results / TABLE, _table(found))
    page = render(
        "similarity.html",
        title=title,
        found=found,
        together=found.by_students()[:MOST_TOGETHER],
        header=HEADER,
        most_shown=MOST_SHOWN,
    )
    write_atomically(results / PAGE, page)


def _table(found: AlikeAnswers) -> Iterator[bytes]:
    yield (BYTE_ORDER_MARK + csv_line(HEADER)).encode()
    for pair in found.pairs:
        yield csv_line([pair.exercise, *pair.students, pair.percent, pair.passages]).encode()
