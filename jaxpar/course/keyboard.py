"""Keys and typed lines from standard input, for sittings and for pages of lessons."""

from __future__ import annotations

import _thread
import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

STDIN = 0
CHUNK = 1024
END_OF_INPUT = "\x04"
ENTER, ESCAPE, ERASE = "\n", "\x1b", ("\x7f", "\b")
UP, DOWN, PAGE_UP, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
HOME, END = "\x1b[H", "\x1b[F"
OTHER_SPELLINGS = {"\x1b[1~": HOME, "\x1b[7~": HOME, "\x1b[4~": END, "\x1b[8~": END} | {
    key.replace("[", "O"): key for key in (UP, DOWN, HOME, END)
}
WINDOWS_NAMES = {"H": UP, "P": DOWN, "I": PAGE_UP, "Q": PAGE_DOWN, "G": HOME, "O": END}
INTERRUPT = "\x03"
WAKE_SECONDS = 0.2
REST_OF_KEY_SECONDS = 0.05
KNOWN = (ESCAPE, UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END)
ESCAPED = re.compile(r"(\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?)", re.DOTALL)
"""What a key that is no character sends, and what it sends together with Alt."""
WHOLE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.DOTALL)
GO_ON = (ENTER, "\r", " ", DOWN, PAGE_DOWN)
GO_BACK = ("b", "B", UP, PAGE_UP)
LEAVE = ("q", "Q", END_OF_INPUT)


def is_interactive() -> bool:
    """Whether somebody can read what is printed, and type."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def single_keys(wanted: bool) -> Iterator[bool]:
    """Lets keys arrive without Enter, if this is wanted and possible; yields whether they do."""
    if not wanted or sys.platform == "win32" or not os.isatty(STDIN):
        yield False  # the console of Windows passes keys on as they come
        return
    import termios
    import tty

    before = termios.tcgetattr(STDIN)
    tty.setcbreak(STDIN, termios.TCSADRAIN)  # keeps what was typed before
    try:
        yield True
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


def next_key() -> str:
    """Waits for a key in a terminal with single keys; END_OF_INPUT where nobody types any more.

    Only one key is taken, so that what was typed after it is still there for others.
    """
    first = os.read(STDIN, 1)
    key = first.decode(errors="ignore") if first else END_OF_INPUT
    while key.startswith(ESCAPE) and not WHOLE.fullmatch(key):
        if not select.select([STDIN], [], [], REST_OF_KEY_SECONDS)[0]:
            break
        key += os.read(STDIN, 1).decode(errors="ignore")
    return OTHER_SPELLINGS.get(key, key)


def goes_on() -> bool:
    """Waits for Enter or q in a terminal with single keys; returns whether it was Enter."""
    while (key := next_key()) not in LEAVE:
        if key in GO_ON:
            return True
    return False


@dataclass
class Keyboard:
    """The keyboard of a sitting: read in a thread of its own, unless it is lent to a program.

    Attributes:
        typed: called with each key and each line, and at the end of input with END_OF_INPUT.
        single: whether keys are wanted without Enter.
    """

    typed: Callable[[str], None]
    single: bool
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Keyboard:
        """Begins to read."""
        self._open.enter_context(single_keys(self.single))
        self._open.enter_context(self._read())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Leaves the keyboard to another program until the block ends."""
        self._open.close()
        try:
            yield
        finally:
            self.__enter__()

    @contextlib.contextmanager
    def _read(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._post, args=(stop,), name="keyboard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(2 * WAKE_SECONDS)  # on Windows, it may wait for a line from a pipe

    def _post(self, stop: threading.Event) -> None:
        rest = ""
        with contextlib.suppress(OSError):
            for chunk in _chunks(stop):
                texts, rest = split_keys(rest + chunk)
                for text in texts:
                    self.typed(text)
        if not stop.is_set():
            self.typed(END_OF_INPUT)


def _chunks(stop: threading.Event) -> Iterator[str]:
    """Yields what is typed until `stop` is set or the input ends.

    Reads the descriptor itself: a thread that waits inside `sys.stdin` would hold its lock when
    the process ends.
    """
    if sys.platform == "win32" and os.isatty(STDIN):
        yield from _windows_keys(stop)
        return
    while not stop.is_set():
        if sys.platform != "win32" and not select.select([STDIN], [], [], WAKE_SECONDS)[0]:
            continue
        chunk = os.read(STDIN, CHUNK)
        if not chunk:
            return
        yield chunk.decode(errors="ignore")


def _windows_keys(stop: threading.Event) -> Iterator[str]:
    """Yields keys from the console of Windows, which no `select` can wait for."""
    import msvcrt

    while not stop.wait(WAKE_SECONDS / 10):
        while msvcrt.kbhit():  # pyright: ignore[reportAttributeAccessIssue]
            key = msvcrt.getwch()  # pyright: ignore[reportAttributeAccessIssue]
            if key in ("\0", "\xe0"):  # the name of a key that is no character follows
                name = msvcrt.getwch()  # pyright: ignore[reportAttributeAccessIssue]
                key = WINDOWS_NAMES.get(name, "")
            if key == INTERRUPT:
                _thread.interrupt_main()
            yield key


def split_keys(text: str) -> tuple[list[str], str]:
    """Splits text into whole lines and single keys; keys that nobody waits for are dropped.

    A line that arrived in one piece was pasted, or ended with Enter in a terminal without single
    keys. Nothing is left over unless a paste was cut in the middle.
    """
    found: list[str] = []
    *before, last = ESCAPED.split(text)
    for part in before:
        if part.startswith(ESCAPE):
            key = OTHER_SPELLINGS.get(part, part)
            found += [key] if key in KNOWN else []
        else:
            lines, rest = _split_lines(part)
            found += [*lines, *rest]
    lines, rest = _split_lines(last)
    if len(text) >= CHUNK:
        return found + lines, rest
    return [*found, *lines, *rest], ""


def _split_lines(text: str) -> tuple[list[str], str]:
    """The whole lines of a text, and what follows the last of them."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        return lines[:-1], lines[-1]
    return lines, ""
