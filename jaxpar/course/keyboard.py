"""Keys and typed lines from standard input, for sittings and for pages of lessons."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

STDIN = 0
CHUNK = 1024
END_OF_INPUT = "\x04"


def is_interactive() -> bool:
    """Whether somebody can read what is printed, and type."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def single_keys(wanted: bool) -> Iterator[bool]:
    """Lets keys arrive without Enter, if this is wanted and possible; yields whether they do."""
    if not wanted or sys.platform == "win32" or not os.isatty(STDIN):
        yield False
        return
    import termios
    import tty

    before = termios.tcgetattr(STDIN)
    tty.setcbreak(STDIN, termios.TCSADRAIN)  # keeps what was typed before
    try:
        yield True
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


def goes_on() -> bool:
    """Waits for Enter or q in a terminal with single keys; returns whether it was Enter."""
    while key := os.read(STDIN, 1):
        if key in (b"\n", b"\r", b" "):
            return True
        if key.lower() in (b"q", END_OF_INPUT.encode()):
            return False
    return False


def read_keys(typed: Callable[[str], None]) -> threading.Thread:
    """Calls `typed` with what is typed, from a thread of its own, and at the end END_OF_INPUT.

    Reads the descriptor itself: a thread that waits inside `sys.stdin` would hold its lock when
    the process ends.
    """

    def read() -> None:
        rest = ""
        with contextlib.suppress(OSError):
            while chunk := os.read(STDIN, CHUNK):
                texts, rest = split_keys(rest + chunk.decode(errors="ignore"))
                for text in texts:
                    typed(text)
        typed(END_OF_INPUT)

    thread = threading.Thread(target=read, name="keyboard", daemon=True)
    thread.start()
    return thread


def split_keys(text: str) -> tuple[list[str], str]:
    """Splits text into whole lines and single keys; what begins with Escape is dropped.

    A line that arrived in one piece was pasted, or ended with Enter in a terminal without single
    keys. Nothing is left over unless a paste was cut in the middle.
    """
    if text.startswith("\x1b"):
        return [], ""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").splitlines(keepends=True)
    if len(text) >= CHUNK and not lines[-1].endswith("\n"):
        return lines[:-1], lines[-1]
    whole = [line for line in lines if line.endswith("\n")]
    keys = list(lines[-1]) if lines and not lines[-1].endswith("\n") else []
    return whole + keys, ""
