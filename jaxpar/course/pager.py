"""Prints a lesson page by page, so that nothing scrolls away before it was read."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from jaxpar.course.keyboard import ENTER, GO_BACK, GO_ON, LEAVE, next_key, single_keys
from jaxpar.course.wrapping import wrapped

CLEARED_LINE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class ReaderLeft(Exception):
    """The reader ended the lesson at a pause."""


class Pager:
    """Prints, and waits for the reader before anything unread would leave the screen."""

    def __init__(self) -> None:
        self._console = Console()
        self._read: list[list[str]] = []  # the pages before
        self._page: list[str] = []  # what was printed since the last pause

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Collects what is printed inside, then shows it, on one page if it fits on one."""
        page = Page(sys.stdout, self)
        try:
            with contextlib.redirect_stdout(page):
                yield
        finally:
            self.show(page.taken())

    def pause(self, enter: str = "Enter goes on", *, apart: bool = True) -> None:
        """Waits for Enter, unless nothing was shown since the last time; b shows pages again.

        Args:
            enter: what Enter does.
            apart: whether an empty line follows what was printed.

        Raises:
            ReaderLeft: the reader typed q, Ctrl-C or Ctrl-D.
        """
        if not self._page:
            return
        pages = [*self._read, self._page]
        place = last = len(pages) - 1
        with single_keys(wanted=True) as single:
            while place <= last:
                place += self._step(enter if place == last else "Enter goes on", place, single)
                if place <= last:
                    self._console.clear()
                    print(*pages[place], sep="\n")
        if apart and not _is_blank(self._page[-1]):
            print()
        self._read, self._page = pages, []

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
        self._read.append([*self._page, f"{prompt}{line}"])
        self._page = []
        return line

    def _step(self, enter: str, place: int, single: bool) -> int:
        """Asks which way to turn, and clears the question: 1 is onward, -1 is back.

        Raises:
            ReaderLeft: neither.
        """
        back = ", b goes back" if place else ""
        try:
            if single:
                self._console.print(f"{enter}{back}, q ends ", style="dim", end="")
                key = _key_of(*GO_ON, *LEAVE, *(GO_BACK if place else ()))
            else:
                line = self._console.input(f"[dim]{enter}{back}, q ends:[/dim] ")
                key = line.strip() or ENTER
                self._console.control(Control.move(0, -1))
        except (EOFError, KeyboardInterrupt):
            print()
            raise ReaderLeft from None
        self._console.control(CLEARED_LINE)
        if key in LEAVE:
            raise ReaderLeft
        return -1 if key in GO_BACK and place else 1

    @property
    def _room(self) -> int:
        return max(1, self._console.height - 1)  # the last line is for the question

    def show(self, lines: Sequence[str]) -> None:
        """Shows lines, after a pause where they no longer fit on the screen."""
        lines = [piece for line in _without_end(lines) for piece in self._fitted(line)]
        if not lines:
            return
        if len(self._page) + len(lines) > self._room >= len(lines):
            self.pause()
        for blank, group in itertools.groupby([*lines, ""], _is_blank):
            paragraph = list(group)
            if blank:
                self._print([""] if 0 < len(self._page) < self._room else [])
            elif len(paragraph) <= self._room:
                self._print(paragraph)
            else:
                for line in paragraph:
                    self._print([line], apart=False)

    def _print(self, lines: Sequence[str], *, apart: bool = True) -> None:
        if len(self._page) + len(lines) > self._room:
            self.pause(apart=apart)
        for line in lines:
            print(line)
        self._page += lines

    def _fitted(self, line: str) -> list[str]:
        """The line as lines of the terminal."""
        text, width = Text.from_ansi(line), self._console.width
        if text.cell_len <= width:
            return [line]
        with self._console.capture() as capture:
            self._console.print(*wrapped(text, width), sep="\n")
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


def _key_of(*keys: str) -> str:
    """Waits for one of these keys."""
    while (key := next_key()) not in keys:
        pass
    return key


def _without_end(lines: Sequence[str]) -> Sequence[str]:
    """The lines without those at the end that are blank."""
    while lines and _is_blank(lines[-1]):
        lines = lines[:-1]
    return lines


def _is_blank(line: str) -> bool:
    return not Text.from_ansi(line).plain.strip()
