"""Where the output of a lesson goes: to a terminal, into a notebook, or on a page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from rich.table import Table

from jaxpar.course.notebook import kernel
from jaxpar.course.prediction import Kind
from jaxpar.course.terminal import Terminal
from jaxpar.drawing.picture import Picture
from jaxpar.inspector import Report


class Output(Protocol):
    """Takes what a lesson shows; what it prints goes to standard output as always."""

    def code(self, source: str) -> None:
        """Shows the source of a function of the library."""
        ...

    def table(self, title: str, table: Table) -> None:
        """Shows a table of texts."""
        ...

    def report(self, report: Report) -> None:
        """Shows what the inspector found."""
        ...

    def picture(self, name: str, picture: Picture) -> None:
        """Shows a picture whose file, where there is one, has this name."""
        ...

    def question(self, text: str, kind: Kind) -> None:
        """Shows a question whose answer is a number of this kind."""
        ...

    def answer(self, text: str, measured: float, parts: Mapping[str, str], words: str) -> None:
        """Shows what is right.

        Args:
            text: the question.
            measured: the right number.
            parts: what it is made of: the name of each part, and how much it is in words.
            words: all of it in words, beside what the reader predicted, for a terminal.
        """
        ...


_chosen: list[Output] = []


def output() -> Output:
    """Where the output of this process goes."""
    if _chosen:
        return _chosen[-1]
    return kernel.Kernel() if kernel.in_kernel() else Terminal()


@contextlib.contextmanager
def going_to(chosen: Output) -> Iterator[None]:
    """Sends the output of what runs inside to `chosen`."""
    _chosen.append(chosen)
    try:
        yield
    finally:
        _chosen.pop()
