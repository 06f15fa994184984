"""The learner's file, opened once; only the bytes read here are judged."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_SOURCE_BYTES = 256_000


class SubmissionError(ValueError):
    """The file cannot be judged; the message says why in one line."""


@dataclass(frozen=True)
class Submission:
    """One file as it was when it was read."""

    path: Path
    source: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.source).hexdigest()

    @property
    def text(self) -> str:
        """The source with line ends as Python reads them."""
        return self.source.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_submission(path: Path) -> Submission:
    """Reads a regular UTF-8 file of at most 256 kB, without following a link or waiting.

    Raises:
        SubmissionError: it is missing, empty, too large, not a regular file, or not UTF-8.
    """
    submission = Submission(path, _read(path))
    if not submission.source.strip():
        raise SubmissionError(f"{path}: the file is empty; restore it with reset")
    try:
        text = submission.text
    except UnicodeDecodeError as error:
        raise SubmissionError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None
    if "\0" in text:
        raise SubmissionError(f"{path}: the file contains NUL bytes; save it as plain text")
    return submission


def _read(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise SubmissionError(f"{path}: there is no such file; restore it with reset") from None
    except OSError as error:
        raise SubmissionError(f"{path}: cannot be opened ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SubmissionError(f"{path}: not a regular file")
        source = b""
        while chunk := os.read(descriptor, MAX_SOURCE_BYTES + 1 - len(source)):
            source += chunk
    finally:
        os.close(descriptor)
    if len(source) > MAX_SOURCE_BYTES:
        raise SubmissionError(f"{path}: larger than {MAX_SOURCE_BYTES} bytes")
    return source
