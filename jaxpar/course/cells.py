"""The cells of a lesson, which is a script in percent format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

MARK = "# %%"
Kind = Literal["markdown", "code", "fold"]
KINDS: dict[str, Kind] = {"": "code", " [markdown]": "markdown", ' tags=["fold"]': "fold"}


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        kind: `markdown`, `code`, or `fold` for code that only draws or checks.
        start: the number of lines before it.
        lines: its lines, without its mark.
    """

    kind: Kind
    start: int
    lines: tuple[str, ...]

    @property
    def source(self) -> str:
        """The code of a cell, or its prose without the comment signs."""
        if self.kind == "markdown":
            return "\n".join(line.removeprefix("#").removeprefix(" ") for line in self.lines)
        return "\n".join(self.lines)

    def run(self, path: Path, namespace: dict[str, Any]) -> None:
        """Runs a cell of code; errors and the inspector get the line numbers of the file."""
        exec(compile("\n" * self.start + self.source, path, "exec"), namespace)


def read_cells(path: Path) -> Iterator[Cell]:
    """Yields the cells of a lesson."""
    lines = path.read_text(encoding="utf-8").splitlines()
    marks = [place for place, line in enumerate(lines) if line.startswith(MARK)]
    for mark, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        kind = KINDS[lines[mark].removeprefix(MARK).rstrip()]
        yield Cell(kind, mark + 1, tuple(lines[mark + 1 : end]))


def namespace_of(path: Path) -> dict[str, Any]:
    """The names that a lesson begins with, as a script."""
    return {"__name__": "__main__", "__file__": str(path)}
