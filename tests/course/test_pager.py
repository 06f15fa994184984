"""A lesson is shown page by page, and nothing leaves the screen before it was read."""

import os
from contextlib import nullcontext

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
    assert all(len(page.splitlines()) <= HEIGHT for page in pages)


def test_a_wide_line_takes_several_lines(pages: list[str]) -> None:
    pager = Pager()
    show(pager, *["x" * (WIDTH + 1)] * 4)
    show(pager, 1, 2)
    assert len(pages) == 1


def test_code_is_broken_between_words_and_goes_on_deeper(
    pages: list[str], capsys: pytest.CaptureFixture
) -> None:
    show(Pager(), "    entries = [axes or None for axes in parse_layout(layout)]")
    assert capsys.readouterr().out.rstrip().splitlines() == [
        "    entries = [axes or None for",
        "            axes in",
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
