"""A lesson is shown page by page, and nothing leaves the screen before it was read."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from jaxpar.course import keyboard
from jaxpar.course.pager import Pager, ReaderLeft

pty = pytest.importorskip("pty")
HEIGHT, WIDTH = 10, 40


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> list[str]:
    """What was on the screen at each pause."""
    monkeypatch.setenv("LINES", str(HEIGHT))
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    seen: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *_: seen.append(capsys.readouterr().out) or "")
    return seen


def show(pager: Pager, *lines: object) -> None:
    with pager.collected():
        print(*lines, sep="\n")


def test_a_page_ends_before_what_does_not_fit(pages: list[str]) -> None:
    pager = Pager()
    show(pager, *range(5))
    assert not pages
    show(pager, *range(10, 15))
    assert len(pages) == 1
    assert "4" in pages[0].split() and "10" not in pages[0].split()


def test_what_is_longer_than_a_page_is_cut_at_blank_lines(pages: list[str]) -> None:
    show(Pager(), *"abcde", "", *"fgh", "", *"ijk")
    (page,) = pages
    assert page.split()[:8] == list("abcdefgh") and "i" not in page.split()


def test_nothing_leaves_the_screen_unread(pages: list[str], capsys: pytest.CaptureFixture) -> None:
    pager = Pager()
    show(pager, *(f"line {place}" for place in range(25)))
    pager.pause()
    shown = [line for page in pages for line in page.splitlines() if line.startswith("line")]
    assert shown == [f"line {place}" for place in range(25)]
    assert all(len(page.strip("\n").splitlines()) <= HEIGHT for page in pages)


def test_a_wide_line_takes_several_lines(pages: list[str]) -> None:
    pager = Pager()
    show(pager, *["x" * (WIDTH + 1)] * 4)
    show(pager, 1, 2)
    assert len(pages) == 1


def test_a_long_line_is_broken_between_words_and_goes_on_deeper(
    pages: list[str], capsys: pytest.CaptureFixture
) -> None:
    show(Pager(), "    entries = [axes or None for axes in parse_layout(layout)]")
    assert capsys.readouterr().out.rstrip().splitlines() == [
        "    entries = [axes or None for axes in",
        "            parse_layout(layout)]",
    ]


def test_what_was_printed_before_an_error_is_shown(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), Pager().collected():
        print("before")
        raise ZeroDivisionError
    assert "before" in capsys.readouterr().out


def test_no_pause_where_nothing_is_new(pages: list[str]) -> None:
    Pager().pause()
    assert not pages


@pytest.mark.parametrize(("typed", "leaves"), [(b"xq", True), (b"\x1b[B\n", False)])
def test_in_a_terminal_one_key_is_enough_even_if_it_came_early(
    typed: bytes, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, terminal = pty.openpty()
    monkeypatch.setattr(keyboard, "STDIN", terminal)
    os.write(keys, typed)
    pager = Pager()
    show(pager, "line")
    with pytest.raises(ReaderLeft) if leaves else nullcontext():
        pager.pause()
    os.close(keys)
    os.close(terminal)


def test_q_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: " Q ")
    pager = Pager()
    show(pager, "line")
    with pytest.raises(ReaderLeft):
        pager.pause()


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ("\n", []),
        ("b\n\n", ["one", "two"]),
        ("\x1b[5~\x1b[6~\n", ["one", "two"]),  # the keys PageUp and PageDown
        ("bbb\n\n", ["one", "two"]),  # there is nothing before the first page
        ("b\nb\n\n", ["one", "two"] * 2),
    ],
)
def test_pages_can_be_read_again(
    typed: str,
    again: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    keys, terminal = pty.openpty()
    monkeypatch.setattr(keyboard, "STDIN", terminal)
    pager = Pager()
    show(pager, "one")
    os.write(keys, b"\n")
    pager.pause()
    show(pager, "two")
    capsys.readouterr()
    os.write(keys, typed.encode())
    pager.pause()
    shown = re.findall(r"(?:one|two)$", capsys.readouterr().out, re.MULTILINE)
    assert shown == again
    os.close(keys)
    os.close(terminal)


def test_the_answer_to_a_question_is_on_its_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    keys, terminal = pty.openpty()
    monkeypatch.setattr(keyboard, "STDIN", terminal)
    monkeypatch.setattr("builtins.input", lambda *_: "8400")
    pager = Pager()
    show(pager, "How much?")
    pager.read_line("Bytes: ")
    show(pager, "It is more.")
    capsys.readouterr()
    os.write(keys, b"b\n\n")
    pager.pause()
    assert "How much?\n\nBytes: 8400\n" in capsys.readouterr().out
    os.close(keys)
    os.close(terminal)


SCREEN = """
import sys
sys.argv = ["jaxpar"]
from jaxpar.course.pager import Pager
pager = Pager()
for part in ("one", "two"):
    with pager.collected():
        print(part)
    pager.pause()
"""


def test_a_question_leaves_the_screen_with_its_answer() -> None:
    keys, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCREEN],
        stdin=terminal,
        stdout=terminal,
        env=os.environ | {"TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    os.close(terminal)
    printed = b""
    with process:
        for question in (b"q ends ", b"b goes back, q ends "):
            while not printed.endswith((question, question + b"\x1b[0m")):
                printed += os.read(keys, 1)
            os.write(keys, b"\n")
        while b"\x1b[2K" not in printed.rpartition(b"b goes back")[2]:
            printed += os.read(keys, 1)
    os.close(keys)
    assert process.returncode == 0
    assert printed.count(b"\r\x1b[2K") == 2
