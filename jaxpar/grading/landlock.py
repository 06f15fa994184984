"""Landlock: closes all files to a process but those that it names.

The sandbox of a class confines whole processes with it, and a worker in any sandbox closes the
library's own files to itself before it runs the learner's code.

Source: landlock(7), and Documentation/userspace-api/landlock.rst of Linux
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every processor
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
# How many kinds of access to files each version of the interface knows.
_KINDS = {1: 13, 2: 14, 3: 15, 4: 15}
_KINDS_SINCE_5 = 16
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Returns the version of the kernel's interface, or 0 where there is none."""
    return max(0, _libc.syscall(_CREATE, None, 0, _VERSION))


def outside(paths: Iterable[str], closed: Path) -> Iterator[str]:
    """Yields paths that together hold what these paths hold, but for one folder.

    A link that leads to the folder, or to one above it, is left out: a rule for it would open all
    that is there, as `lib64` of a virtual environment opens `lib`.

    Args:
        paths: files and folders.
        closed: the folder to leave out, which may be inside one of them; no link.
    """
    for path in map(Path, paths):
        real = Path(os.path.realpath(path))
        if real == closed or closed in real.parents:
            continue
        if real not in closed.parents:
            yield str(path)
        elif real == path:
            yield from outside(map(str, path.iterdir()), closed)


def install(readable: Iterable[str], writable: Iterable[str], folder: str | None) -> None:
    """Closes all files to this process for good, but for those at or below these paths.

    Args:
        readable: files, and folders with all in them; those that do not exist are left out.
        writable: files that may be read and written.
        folder: a folder in which files may also be made and removed.

    Raises:
        OSError: the kernel refuses.
    """
    known = version()
    handled = (1 << _KINDS.get(known, _KINDS_SINCE_5)) - 1
    attributes = struct.pack(
        "QQQ", handled, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0
    )
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = _call(_CREATE, attributes, size, 0)
    try:
        for path in readable:
            _allow(rules, path, _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(rules, path, _READ_FILE | _WRITE_FILE)
        if folder:
            _allow(rules, folder, handled & ~_EXECUTE)
        if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs is refused")
        _call(_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= ~_READ_DIR
        _call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", access, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    result = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock is refused: {os.strerror(code)}")
    return result
