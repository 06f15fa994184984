"""Paths that a terminal opens with a click."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from jaxpar.course.folder import Course
from jaxpar.course.links import with_links
from tests.course.sittings import VALUE


def printed(text: str, course: Course, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=200,
        force_terminal=terminal,
        color_system="standard" if terminal else "auto",
    )
    console.print(with_links(Text(text), course.root))
    return file.getvalue()


def test_only_files_that_are_there_become_links_and_only_in_a_terminal(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = f"file: {VALUE.file}, exercises/no_such.py"
    shown = printed(line, course, terminal=True)
    assert f";{course.file(VALUE).as_uri()}\x1b\\{VALUE.file}\x1b]8;;\x1b\\" in shown
    assert shown.count("\x1b]8;;") == 1
    assert printed(line, course, terminal=False) == line + "\n"
