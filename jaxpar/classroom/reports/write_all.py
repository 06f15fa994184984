"""Everything that is written of a class, from the one result of each student."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxpar.classroom.class_summary import Tally, tally
from jaxpar.classroom.gradebook import Entries
from jaxpar.classroom.reports import canvas, classroom50, gradescope, junit, pages
from jaxpar.classroom.reports import spreadsheets as class_csv
from jaxpar.grading.files import write_atomically

PAGE = "html/index.html"
FILES = f"class.csv, canvas.csv, junit.xml, gradescope/, classroom50/, {PAGE}"


def write_all(entries: Entries) -> Tally:
    """Writes every format into the folder of results.

    Raises:
        OSError: the folder cannot be written; a file is either as it was or whole.
    """
    folder, title = entries.results.folder, entries.title
    found = tally(entries)
    for path, parts in (
        ("class.csv", class_csv.rows(entries, found.exercises)),
        ("canvas.csv", canvas.rows(entries, title, found.max_score)),
        ("junit.xml", junit.document(entries)),
        (PAGE, pages.class_page(title, found, entries)),
    ):
        write_atomically(folder / path, parts)
    written = set()
    for path, parts in _each(entries, title):
        write_atomically(folder / path, parts)
        written.add(folder / path)
    _remove_others(folder, written)
    return found


def _remove_others(folder: Path, written: set[Path]) -> None:
    """Removes the files of students who have no result any more."""
    for pattern in (_page("*"), _gradescope("*"), _classroom50("*")):
        for path in set(folder.glob(str(pattern))) - written:
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()


def _each(entries: Entries, title: str) -> Iterator[tuple[Path, Iterable[bytes]]]:
    """The files that are a student's own."""
    for entry in entries:
        name, result = entry.name, entry.result
        yield _page(name), pages.student_page(title, entry)
        yield _gradescope(name), _json(gradescope.results(result))
        yield _classroom50(name), _json(classroom50.result(result, os.environ))


def _page(name: str) -> Path:
    return Path(PAGE).parent / pages.STUDENTS / f"{name}.html"


def _gradescope(name: str) -> Path:
    return Path("gradescope", name, "results.json")


def _classroom50(name: str) -> Path:
    return Path("classroom50", name, "result.json")


def _json(data: dict[str, Any]) -> list[bytes]:
    return [json.dumps(data, indent=1).encode(), b"\n"]
