"""Writes that leave either the old file or the new one, never half of it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

OPENED_SECONDS, TRIES = 0.05, 20


def write_atomically(path: Path, data: bytes | Iterable[bytes], *, public: bool = False) -> None:
    """Writes `data`, whole or in parts, to `path` by a temporary file, fsync and rename.

    Args:
        path: the file.
        data: what is in it.
        public: whether others may read it, as far as the umask lets them.

    Raises:
        OSError: the folder cannot be written or the disk is full; `path` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        if public:
            make_public(temporary)
        _replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_public(path: Path | str) -> None:
    """Lets others read a file, as far as the umask lets them."""
    mask = os.umask(0o077)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def _replace(temporary: str, path: Path) -> None:
    """Renames a file; on Windows an editor or a scanner may hold the old one open for a moment."""
    for _ in range(TRIES if sys.platform == "win32" else 0):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            time.sleep(OPENED_SECONDS)
    os.replace(temporary, path)
