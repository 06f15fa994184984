"""Writes every report of a class from the one result of each student."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxpar.classroom.class_summary import ClassSummary, summarize
from jaxpar.classroom.gradebook import Gradebook
from jaxpar.classroom.journal import Journal
from jaxpar.classroom.reports import classroom50, gradescope, junit, pages, spreadsheets
from jaxpar.files import write_atomically

CLASS_PAGE = "html/index.html"
STUDENT_PAGE = f"html/{pages.STUDENTS}/{{}}.html"
GRADESCOPE = "gradescope/{}/results.json"
CLASSROOM50 = "classroom50/{}/result.json"
FILES = f"class.csv, canvas.csv, junit.xml, gradescope/, classroom50/, {CLASS_PAGE}"


def write_all(gradebook: Gradebook) -> ClassSummary:
    """Writes every report into the folder of results.

    Raises:
        OSError: the folder cannot be written; each file is either as it was or whole.
    """
    folder, title = gradebook.results.folder, gradebook.title
    summary = summarize(gradebook)
    for path, parts in (
        ("class.csv", spreadsheets.class_csv(gradebook, summary.exercises)),
        ("canvas.csv", spreadsheets.canvas_csv(gradebook, title, summary.max_score)),
        ("junit.xml", junit.document(gradebook)),
        (CLASS_PAGE, pages.class_page(title, summary, gradebook)),
    ):
        write_atomically(folder / path, parts)
    written = set()
    for path, parts in _reports_of_students(gradebook, title):
        write_atomically(folder / path, parts)
        written.add(folder / path)
    _remove_others(folder, written)
    return summary


def _reports_of_students(
    gradebook: Gradebook, title: str
) -> Iterator[tuple[str, bytes | Iterable[bytes]]]:
    """Yields the files that are about one student each."""
    journal = Journal(gradebook.results.folder / "journal")
    for entry in gradebook:
        name, result = entry.file_name, entry.result
        yield STUDENT_PAGE.format(name), pages.student_page(title, entry, journal)
        yield GRADESCOPE.format(name), _json(gradescope.results(result))
        yield CLASSROOM50.format(name), _json(classroom50.result(result, os.environ))


def _remove_others(folder: Path, written: set[Path]) -> None:
    """Removes the reports on students who have no result any more."""
    for pattern in (STUDENT_PAGE, GRADESCOPE, CLASSROOM50):
        for path in set(folder.glob(pattern.format("*"))) - written:
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, indent=1).encode() + b"\n"
