"""One grader for each folder of results."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(results: Path) -> Iterator[None]:
    """Holds the folder of results until the block ends, or this process does.

    Raises:
        ValueError: another grader holds it, or the folder cannot be written.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(results / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ValueError(f"grade: {results}: {error.strerror}; use another --out") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "unknown"
            raise ValueError(
                f"grade: {results} is being written by another grader (process {holder}); wait "
                "until it has ended, or use another --out"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}".encode(), 0)
        yield
    finally:
        os.close(descriptor)
