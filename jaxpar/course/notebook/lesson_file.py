"""A lesson as a notebook: its prose and its cells, and a cell for each of its exercises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from jaxpar import __version__
from jaxpar.course.backups import back_up
from jaxpar.course.catalog import BadUseError, Lesson
from jaxpar.course.command import command
from jaxpar.course.folder import Course, original
from jaxpar.files import write_atomically

FOLD = "fold"
"""The tag of cells that only draw or check."""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
HOW = """\
Each of the next cells holds the stub of an exercise. Write the function and run the cell: it is
saved in `exercises/{name}/` and judged. A cell stands alone, so import in it what it uses.

Behind the name you may write

- `--predict 8400`: the bytes that each device will send, before you see what it sends;
- `--hint`: to be shown the next hint with the verdict;
- `--solution`: to be shown the library's own answer, once yours passes."""
COLAB = """\
On Colab: upload `{wheel}` in the Files pane, run the next cell, and choose *Runtime*, *Restart
session*. Then run the cell after it, and all others. Colab keeps this notebook, but no files beside
it: `!jaxpar classroom collect` packs your answers."""
BEGIN = """\
import os
from pathlib import Path

from jaxpar.course.folder import make_course
from jaxpar.mesh import simulate_devices

folder = Path.home() / "jaxpar"
make_course(folder)  # what is there already is kept
os.chdir(folder)
simulate_devices(8)"""


def write_notebook(course: Course, row: Lesson, path: Path, *, colab: bool) -> Path | None:
    """Writes a lesson as a notebook; returns the backup of another one that was there.

    Args:
        course: the course folder.
        row: the lesson.
        path: where the notebook goes.
        colab: whether it begins with cells that install jaxpar and make a course folder.

    Raises:
        BadUseError: the lesson is missing, or the notebook or the backup cannot be written.
    """
    data = _notebook(course, row, colab=colab)
    try:
        before = path.read_bytes() if path.exists() else data
        backup = back_up(course, path.name, before, "notebook") if before != data else None
        write_atomically(path, data, public=True)
    except OSError as error:
        raise BadUseError(
            f"notebook: cannot write {path} ({error.strerror}); what is there is as it was"
        ) from None
    return backup


def _notebook(course: Course, row: Lesson, *, colab: bool) -> bytes:
    path = course.file(row)
    if not path.is_file():
        raise BadUseError(f"notebook: {path} is missing; `{command()} init` puts it back")
    cells = list(map(_folded, jupytext.read(path).cells))
    listing = f'exercises("{row.number}")'
    behind = next((n for n, cell in enumerate(cells, 1) if cell.source == listing), len(cells))
    cells[behind:behind] = _exercises(course, row)
    notebook = new_notebook(
        cells=[*(_for_colab() if colab else ()), *cells], metadata={"kernelspec": KERNEL}
    )
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"  # so that the same lesson makes the same file
    return f"{nbformat.writes(notebook)}\n".encode()


def _folded(cell: NotebookNode) -> NotebookNode:
    """A cell of a lesson, of which only the output is shown at first if it only draws or checks."""
    folds = FOLD in cell.metadata.get("tags", ())
    cell.metadata = {"tags": [FOLD], "jupyter": {"source_hidden": True}} if folds else {}
    return cell


def _exercises(course: Course, row: Lesson) -> Iterator[NotebookNode]:
    yield new_markdown_cell(HOW.format(name=row.name))
    yield new_code_cell("%load_ext jaxpar.notebook")
    for asked in row.asks:
        stub = original(course.exercise(asked.id)).decode()
        yield new_code_cell(f"%%exercise {asked.id}\n{stub.rstrip()}")


def _for_colab() -> Iterator[NotebookNode]:
    wheel = f"jaxpar-{__version__}-py3-none-any.whl"
    yield new_markdown_cell(COLAB.format(wheel=wheel))
    yield new_code_cell(f"%pip install --quiet {wheel}")
    yield new_code_cell(BEGIN)
