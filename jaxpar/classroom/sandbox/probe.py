"""Tries what a confined process must not be able to do, and prints what was possible.

`levels` runs it in a sandbox on each level of isolation before a class is graded, so it imports
nothing heavy. If anything was possible, that level is not used on this machine.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable


def main() -> None:
    """Prints the names of what was possible, as JSON."""
    forbidden: dict[str, Callable[[], object]] = {
        "start a process": _fork,
        "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
        "read the home folder": lambda: os.listdir(sys.argv[1] if sys.argv[1:] else "/root"),
        "write beside the library": lambda: _write(os.path.dirname(os.path.abspath(__file__))),
        "write to the root": lambda: _write("/"),
        "signal its parent": lambda: os.kill(os.getppid(), 0),
        "make memory that is a file": lambda: os.close(os.memfd_create("x")),
    }
    print(json.dumps([name for name, attempt in forbidden.items() if _possible(attempt)]))


def _possible(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _write(folder: str) -> None:
    path = os.path.join(folder, f"probe-{os.getpid()}")
    with open(path, "x"):
        pass
    os.unlink(path)


if __name__ == "__main__":
    main()
