"""Lines that are too wide for the terminal, broken between words."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.syntax import Syntax
from rich.text import Text

HANG = 8


def wrapped(line: Text, console: Console, width: int) -> list[Text]:
    """The line broken into lines that fit; all but the first are indented, as in code."""
    if line.cell_len <= width:
        return [line]
    plain = line.plain
    indent = min(len(plain) - len(plain.lstrip(" ")), width // 2)
    pieces = list(line[indent:].wrap(console, max(1, width - indent - HANG)))
    for piece in pieces[1:]:
        piece.pad_left(HANG)
    for piece in pieces:
        piece.rstrip()
        piece.pad_left(indent)
    return pieces


@dataclass(frozen=True)
class Code:
    """Python in colours."""

    source: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each as wide as there is room for."""
        text = Syntax("", "python", theme="ansi_dark").highlight(self.source.strip())
        for line in text.split("\n"):
            yield from wrapped(line, console, options.max_width)
