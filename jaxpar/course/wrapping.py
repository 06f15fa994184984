"""Lines that are too wide for the terminal: prose broken between words, code between tokens."""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.syntax import Syntax
from rich.text import Text

HANG = 8
MARK = "# "
GAP = re.compile(r" {2,}")
WORD = re.compile(r"(?<=\s)\S")


@dataclass
class Breaks:
    """Where a line may be broken.

    Attributes:
        places: the positions at which a new line may begin.
        comment: where a comment begins, if there is one; each of its lines has a mark.
    """

    places: list[int] = field(default_factory=list)
    comment: int | None = None


def wrapped(line: Text, width: int, breaks: Breaks | None = None) -> list[Text]:
    """The line broken into lines that fit; all but the first are indented, as in code.

    Args:
        line: one line.
        width: how many columns there are.
        breaks: where it may be broken; between words unless given.
    """
    line = line.copy()
    line.rstrip()
    if line.cell_len <= width:
        return [line]
    plain = line.plain
    indent = min(len(plain) - len(plain.lstrip(" ")), width // 2)
    breaks = breaks or Breaks([word.start() for word in WORD.finditer(plain)])
    start, pieces = indent, []
    while start < len(plain):
        in_comment = breaks.comment is not None and start > breaks.comment
        before = " " * (indent + HANG * bool(pieces)) + MARK * in_comment
        end = _end(plain, start, max(1, width - len(before)), breaks.places)
        piece = line[start:end]
        piece.rstrip()
        pieces.append(Text.assemble((before, piece.style), piece))
        start = end
    return pieces


def _end(plain: str, start: int, room: int, places: Sequence[int]) -> int:
    """Where a piece that begins at `start` ends: at the last place that fits, or at the edge."""
    if cell_len(plain[start:]) <= room:
        return len(plain)
    fitting = [p for p in places if start < p and cell_len(plain[start:p].rstrip()) <= room]
    if fitting:
        return fitting[-1]
    edge = start + 1
    while cell_len(plain[start : edge + 1]) <= room:
        edge += 1
    return edge


@dataclass(frozen=True)
class Entries:
    """One line of entries with two spaces between them, none of which is broken."""

    line: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line, or several if there is no room for it."""
        places = [space.end() for space in GAP.finditer(self.line.plain)]
        yield from wrapped(self.line, options.max_width, Breaks(places))


@dataclass(frozen=True)
class Code:
    """Python in colours."""

    source: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each as wide as there is room for."""
        source = self.source.strip()
        breaks = between_tokens(source)
        text = Syntax("", "python", theme="ansi_dark").highlight(source)
        for number, line in enumerate(text.split("\n"), 1):
            yield from wrapped(line, options.max_width, breaks.get(number))


def between_tokens(source: str) -> dict[int, Breaks]:
    """Where the lines of a source may be broken, by their numbers from 1.

    That is before a token that follows a space or an opening bracket, and between the words of a
    comment, but nowhere inside a string. Lines in which no token begins are not in the result.
    """
    found: dict[int, Breaks] = defaultdict(Breaks)
    lines = source.splitlines()
    inside = 0  # f-strings, which are several tokens since Python 3.12
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            (number, column), name = token.start, tokenize.tok_name[token.type]
            if not inside and token.string.strip():
                here = found[number]
                if column and lines[number - 1][column - 1] in " ([{":
                    here.places.append(column)
                if name == "COMMENT":
                    here.comment = column
                    words = WORD.finditer(token.string, len(MARK))
                    here.places += [column + word.start() for word in words]
            inside += {"FSTRING_START": 1, "FSTRING_END": -1}.get(name, 0)
    except (tokenize.TokenError, SyntaxError):
        return {}
    return found
