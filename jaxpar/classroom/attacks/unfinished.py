"""What a stopped run of attacks has found already, so that the next run goes on from there.

A line of the file is what came of one file of attacks; a run that ends removes its lines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jaxpar.classroom.journal import environment
from jaxpar.classroom.sandbox.levels import Sandbox
from jaxpar.files import write_atomically

Found = tuple[dict[str, Any], str]
"""The record of a file of attacks, and what it harmed."""


def default_file() -> Path:
    """Returns the file for this user."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "jaxpar" / "attacks.jsonl"


class UnfinishedRun:
    """The findings of runs that were stopped, on the same level and with the same code."""

    def __init__(self, path: Path, sandbox: Sandbox) -> None:
        """Reads what is there; a file that is missing or broken holds nothing."""
        self._path = path
        self._same = f"{environment()} {sandbox.level} {sandbox.user}"
        self._found: dict[str, Found] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for line in path.read_text(encoding="utf-8").splitlines():
                data = json.loads(line)
                if data["same"] == self._same:
                    self._found[data["file"]] = (data["record"], data["harm"])

    def get(self, source: str) -> Found | None:
        """Returns what came of a file of attacks, if that is known."""
        return self._found.get(_digest(source))

    def put(self, source: str, found: Found) -> None:
        """Keeps what came of a file of attacks; where nothing can be written, nothing is kept."""
        self._found[_digest(source)] = found
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(self._line(_digest(source)))

    def forget(self, sources: Collection[str]) -> None:
        """Removes the findings of a run that has ended."""
        for source in sources:
            self._found.pop(_digest(source), None)
        with contextlib.suppress(OSError):
            if self._found:
                write_atomically(self._path, "".join(map(self._line, self._found)).encode())
            else:
                self._path.unlink(missing_ok=True)

    def _line(self, digest: str) -> str:
        record, harm = self._found[digest]
        data = {"same": self._same, "file": digest, "record": record, "harm": harm}
        return json.dumps(data) + "\n"


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
