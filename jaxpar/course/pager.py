"""Pages of a terminal: nothing scrolls away before it was read."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text


class ReaderLeft(Exception):
    """The reader ended the lesson at a pause."""


class Pager:
    """Prints, and waits for the reader before anything unread would leave the screen."""

    def __init__(self) -> None:
        self._console = Console()
        self._shown = 0  # lines since the last pause

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Collects what is printed inside, then shows it, on one page if it fits on one."""
        page = _Page(sys.stdout)
        try:
            with contextlib.redirect_stdout(page):
                yield
        finally:
            self._show(page.getvalue().splitlines())

    def pause(self, question: str = "Enter goes on, q ends") -> None:
        """Waits for Enter, unless nothing was shown since the last time.

        Raises:
            ReaderLeft: the reader typed q, Ctrl-C or Ctrl-D.
        """
        if not self._shown:
            return
        try:
            answer = self._console.input(f"[dim]{question}[/dim] ")
        except (EOFError, KeyboardInterrupt):
            print()
            raise ReaderLeft from None
        if answer.strip().lower() == "q":
            raise ReaderLeft
        self._shown = 0

    @property
    def _room(self) -> int:
        return max(1, self._console.height - 1)  # the last line is for the question

    def _show(self, lines: Sequence[str]) -> None:
        while lines and _is_blank(lines[-1]):
            lines = lines[:-1]
        if not lines:
            return
        if self._shown + self._height(lines) > self._room >= self._height(lines):
            self.pause()
        for blank, group in itertools.groupby([*lines, ""], _is_blank):
            paragraph = list(group)
            if blank:
                self._print([""] if 0 < self._shown < self._room else [])
            elif self._height(paragraph) <= self._room:
                self._print(paragraph)
            else:
                for line in paragraph:
                    self._print([line])

    def _print(self, lines: Sequence[str]) -> None:
        height = self._height(lines)
        if self._shown + height > self._room:
            self.pause()
        for line in lines:
            print(line)
        self._shown += height

    def _height(self, lines: Sequence[str]) -> int:
        """Lines of the terminal; a line that is too wide for it takes several."""
        return sum(
            max(1, -(-Text.from_ansi(line).cell_len // self._console.width)) for line in lines
        )


class _Page(io.StringIO):
    """Collects text that is meant for a terminal, and answers as the terminal would."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return self._terminal.isatty()


def _is_blank(line: str) -> bool:
    return not Text.from_ansi(line).plain.strip()
