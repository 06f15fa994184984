"""Prints a lesson page by page, so that nothing scrolls away before it was read."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from jaxpar.course.keyboard import goes_on, single_keys
from jaxpar.course.wrapping import wrapped


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
        page = Page(sys.stdout, self)
        try:
            with contextlib.redirect_stdout(page):
                yield
        finally:
            self.show(page.taken())

    def pause(self, enter: str = "Enter goes on") -> None:
        """Waits for Enter, unless nothing was shown since the last time.

        Raises:
            ReaderLeft: the reader typed q, Ctrl-C or Ctrl-D.
        """
        if not self._shown:
            return
        with single_keys(wanted=True) as single:
            try:
                stays = self._ask_for_key(enter) if single else self._ask_for_line(enter)
            except (EOFError, KeyboardInterrupt):
                print()
                stays = False
        if not stays:
            raise ReaderLeft
        self._shown = 0

    def read_line(self, prompt: str) -> str:
        """Returns the line that the reader types; what is on the screen counts as read.

        Raises:
            ReaderLeft: the reader typed Ctrl-C or Ctrl-D.
        """
        try:
            line = self._console.input(f"[dim]{prompt}[/dim]")
        except (EOFError, KeyboardInterrupt):
            print()
            raise ReaderLeft from None
        self._shown = 0
        return line

    def _ask_for_key(self, enter: str) -> bool:
        self._console.print(f"{enter}, q ends ", style="dim", end="")
        stays = goes_on()
        print()
        return stays

    def _ask_for_line(self, enter: str) -> bool:
        answer = self._console.input(f"[dim]{enter}, q and Enter ends[/dim] ")
        return answer.strip().lower() != "q"

    @property
    def _room(self) -> int:
        return max(1, self._console.height - 1)  # the last line is for the question

    def show(self, lines: Sequence[str]) -> None:
        """Shows lines, after a pause where they no longer fit on the screen."""
        while lines and _is_blank(lines[-1]):
            lines = lines[:-1]
        if not lines:
            return
        lines = [piece for line in lines for piece in self._fitted(line)]
        if self._shown + len(lines) > self._room >= len(lines):
            self.pause()
        for blank, group in itertools.groupby([*lines, ""], _is_blank):
            paragraph = list(group)
            if blank:
                self._print([""] if 0 < self._shown < self._room else [])
            elif len(paragraph) <= self._room:
                self._print(paragraph)
            else:
                for line in paragraph:
                    self._print([line])

    def _print(self, lines: Sequence[str]) -> None:
        if self._shown + len(lines) > self._room:
            self.pause()
        for line in lines:
            print(line)
        self._shown += len(lines)

    def _fitted(self, line: str) -> list[str]:
        """The line as lines of the terminal."""
        text, width = Text.from_ansi(line), self._console.width
        if text.cell_len <= width:
            return [line]
        with self._console.capture() as capture:
            self._console.print(*wrapped(text, self._console, width), sep="\n")
        return capture.get().splitlines()


class Page(io.StringIO):
    """Collects text that is meant for a terminal, and answers as the terminal would."""

    def __init__(self, terminal: TextIO, pager: Pager) -> None:
        super().__init__()
        self._terminal, self._pager = terminal, pager

    def taken(self) -> list[str]:
        """Returns the lines collected so far, and forgets them."""
        lines = self.getvalue().splitlines()
        self.seek(0)
        self.truncate()
        return lines

    def ask(self, prompt: str) -> str:
        """Shows what was collected, and returns the line that the reader types.

        Raises:
            ReaderLeft: the reader typed Ctrl-C or Ctrl-D.
        """
        with contextlib.redirect_stdout(self._terminal):
            self._pager.show(self.taken())
            return self._pager.read_line(prompt)

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The terminal's."""
        return self._terminal.encoding

    def isatty(self) -> bool:
        """Whether the terminal is one."""
        return self._terminal.isatty()


def _is_blank(line: str) -> bool:
    return not Text.from_ansi(line).plain.strip()
