"""A terminal of a given size, in which a test types what a user would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import selectors
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from rich.cells import cell_len

ROOT = Path(__file__).parents[1]
WAIT_SECONDS = 120
LINK = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CLEARED = re.compile(r"\x1b\[H\x1b\[2J|\x1b\[2J\x1b\[H")
ERASED = re.compile(r"[^\n]*\r\x1b\[2K")


class Terminal:
    """A running `jaxpar` in a terminal; everything that it prints must fit."""

    def __init__(self, folder: Path, *words: str, columns: int, rows: int) -> None:
        self._size = columns, rows
        self._keys, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jaxpar.cli", *words],
            cwd=folder,
            env=environment | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._all, self._since = "", ""

    def type(self, keys: str) -> None:
        """Types keys, after which only what is printed later is waited for."""
        self._since = ""
        os.write(self._keys, keys.encode())

    def wait_for(self, text: str) -> str:
        """Waits until a text was printed since the last keys; returns what was printed."""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in visible(self._since):
            assert time.monotonic() < deadline, f"no {text!r} in:\n{visible(self._since)}"
            assert self._more(), f"ended without {text!r}:\n{visible(self._since)}"
        return visible(self._since)

    def ends(self) -> int:
        """Waits for the end; returns the exit code."""
        while self._more():
            pass
        os.close(self._keys)
        self._check_that_all_fits()
        return self._process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """Ends what is still running, after a test that failed."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _more(self) -> bool:
        """Reads what has been printed; returns whether more may come."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._keys, selectors.EVENT_READ)
            if not selector.select(timeout=1):
                return True
        try:
            chunk = os.read(self._keys, 1 << 16).decode(errors="replace")
        except OSError:  # the other end is closed
            return False
        self._all += chunk
        self._since += chunk
        return bool(chunk)

    def _check_that_all_fits(self) -> None:
        columns, rows = self._size
        screens = [visible(screen).splitlines() for screen in CLEARED.split(self._all)]
        wide = [line for screen in screens for line in screen if cell_len(line) > columns]
        assert not wide, f"wider than {columns} columns: {wide}"
        redrawn = screens[1:-1]  # what stood there before and what comes after may scroll
        high = [screen for screen in redrawn if len(screen) > rows]
        assert not high, f"more than {rows} rows: {high}"


def visible(printed: str) -> str:
    """What can be seen of what was printed: no colours, no links, no lines that were erased."""
    printed = ERASED.sub("", printed.replace("\r\n", "\n"))
    return CONTROL.sub("", LINK.sub("", printed))
