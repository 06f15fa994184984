"""Finds the answers in a Jupyter notebook: each cell that begins with `%%exercise ID`.

A class is graded from notebooks as from files. Nothing of a notebook is run here, and no package
that runs notebooks is needed.

Source: the notebook file format (nbformat 4), https://nbformat.readthedocs.io
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MAGIC = re.compile(r"%%exercise[ \t]+(\w+)")


@dataclass(frozen=True)
class ExerciseCell:
    """A cell that answers an exercise.

    Attributes:
        number: its place among all cells of the notebook, from 1.
        exercise: the word after `%%exercise`.
        source: the text of the cell, in which the magic is a comment, so that lines keep numbers.
    """

    number: int
    exercise: str
    source: str


def exercise_cells(notebook: bytes) -> Iterator[ExerciseCell]:
    """Yields the cells of a notebook that begin with `%%exercise`.

    Raises:
        ValueError: the bytes are not a notebook.
    """
    try:
        cells = json.loads(notebook)["cells"]
        texts = [_text(cell) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("not a notebook that Jupyter has saved") from None
    for number, text in enumerate(texts, 1):
        start = text.lstrip()
        if magic := _MAGIC.match(start):
            before = text[: len(text) - len(start)]
            yield ExerciseCell(number, magic[1], f"{before}# {start}")


def _text(cell: dict[str, Any]) -> str:
    """Returns the source of a cell of code, which is a string or a list of lines; else nothing."""
    if cell.get("cell_type") != "code":
        return ""
    return "".join(cell["source"])
