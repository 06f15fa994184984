"""The bait: files, ports and processes that are there to be found, and that nothing may reach.

The suite puts it out, tells each attack where it is, and afterwards asks what was harmed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import socket
import tempfile
import time
from pathlib import Path

from jaxpar.classroom.attacks.attack import COORDINATES
from jaxpar.classroom.sandbox import seccomp

_SET_SUBREAPER = 36
_ENDING_SECONDS = 5


class Bait:
    """A folder like an instructor's, a port, a local service and an environment variable."""

    def __init__(self, user: int | None) -> None:
        """Puts all of it out; a file that could be the grader's own belongs to this user."""
        self._token = f"bait-{secrets.token_hex(8)}"
        self._folder = Path(tempfile.mkdtemp(prefix="jaxpar-bait-"))
        self._folder.chmod(0o755)
        for name in ("students", "journal", "open"):
            (self._folder / name).mkdir()
        (self._folder / "open").chmod(0o777)
        (self._folder / "students" / "other.py").write_text(COORDINATES)
        for name in ("journal/record.json", "course.secret", "mine"):
            (self._folder / name).write_text(self._token)
        if user is not None:
            os.chown(self._folder / "mine", user, user)
        self._before = self._seen()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._service = socket.socket(socket.AF_UNIX)
        self._service.bind(f"\0{self._token}")
        self._service.listen()
        os.environ["JAXPAR_BAIT"] = self._token
        # A process that an attack leaves behind becomes our child, and is found.
        ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1)
        self._children = children()

    def close(self) -> None:
        """Takes all of it away."""
        ctypes.CDLL(None).prctl(_SET_SUBREAPER, 0)
        del os.environ["JAXPAR_BAIT"]
        self._server.close()
        self._service.close()
        shutil.rmtree(self._folder)

    def line(self) -> str:
        """Returns what an attack is told of the bait: one line of Python."""
        column, _ = seccomp.ARCHITECTURES[os.uname().machine]
        known = seccomp.DENIED | seccomp.OWN | {"clone": seccomp.CLONE}
        calls = {name: numbers[column] for name, numbers in known.items()}
        facts = (str(self._folder), self._server.getsockname()[1], os.getpid(), self._token, calls)
        return f"BAIT, PORT, JUDGE, TOKEN, CALLS = {facts!r}\n"

    def harm(self) -> str:
        """Returns what was changed or left behind, or an empty string if nothing was."""
        if self._seen() != self._before:
            self._before = self._seen()
            return "it changed a file outside"
        deadline = time.monotonic() + _ENDING_SECONDS
        while left := children() - self._children:
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                self._children |= left
                return "a process of its outlives it"
            time.sleep(0.02)
        return ""

    def _seen(self) -> list[tuple]:
        paths = sorted(self._folder.rglob("*"))
        facts = [(path, path.lstat()) for path in paths]
        return [(p, s.st_mode, s.st_uid, s.st_nlink, s.st_mtime_ns, s.st_size) for p, s in facts]


def children() -> set[int]:
    """Returns the processes whose parent is this one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found
