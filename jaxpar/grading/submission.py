"""The learner's file, opened once; only the bytes read here are judged.

This is where grading begins: the worker gets the text from here, and verdicts are kept under the
hash of these bytes. A change of the file after it was read changes nothing.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_SOURCE_BYTES = 256_000


class SubmissionError(ValueError):
    """The file cannot be judged; the message says why in one line."""


class UnreadableError(SubmissionError):
    """This machine cannot read the file, whatever is in it."""


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
        """The source as text, with each line end as a single newline."""
        return self.source.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_submission(path: Path) -> Submission:
    """Reads a regular UTF-8 file of at most 256 kB, without following a link or waiting.

    Raises:
        SubmissionError: it is missing, empty, too large, not a regular file, or not UTF-8.
    """
    try:
        return checked(Submission(path, _read(path, None, MAX_SOURCE_BYTES)))
    except SubmissionError as error:
        raise SubmissionError(f"{path}: {error}") from None


def read_within(folder: int, name: str, most_bytes: int = MAX_SOURCE_BYTES) -> bytes:
    """Reads a file in a stranger's folder, which may change meanwhile.

    Args:
        folder: descriptor of the folder.
        name: the name of the file in it.
        most_bytes: how large the file may be.

    Raises:
        UnreadableError: this machine cannot open or read it.
        SubmissionError: it is missing, too large or not a regular file; it has further hard links,
            or changed while it was read.
    """
    return _read(name, folder, most_bytes)


def checked(submission: Submission) -> Submission:
    """Returns the submission if its bytes are text that can be judged.

    Raises:
        SubmissionError: it is empty, too large, or not UTF-8.
    """
    if len(submission.source) > MAX_SOURCE_BYTES:
        raise SubmissionError(f"larger than {MAX_SOURCE_BYTES} bytes")
    if not submission.source.strip():
        raise SubmissionError("the file is empty; restore it with reset")
    try:
        text = submission.text
    except UnicodeDecodeError as error:
        raise SubmissionError(f"byte {error.start} is not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        raise SubmissionError("the file contains NUL bytes; save it as plain text")
    return submission


def _read(path: str | Path, folder: int | None, most_bytes: int) -> bytes:
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # each system has some of them
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        raise _why_not_opened(error) from None
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise SubmissionError("not a regular file")
        if folder is not None and before.st_nlink > 1:
            raise SubmissionError("a hard link: the file has other names")
        source = b""
        while chunk := os.read(descriptor, most_bytes + 1 - len(source)):
            source += chunk
        after = os.fstat(descriptor)
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror})") from None
    finally:
        os.close(descriptor)
    if len(source) > most_bytes:
        raise SubmissionError(f"larger than {most_bytes} bytes")
    if folder is not None and (_stamp(before) != _stamp(after) or len(source) != after.st_size):
        raise SubmissionError("changed while it was read")
    return source


def _why_not_opened(error: OSError) -> SubmissionError:
    if error.errno == errno.ENOENT:
        return SubmissionError("there is no such file; restore it with reset")
    if error.errno == errno.ELOOP:
        return SubmissionError("cannot be opened (it is a link)")
    if error.errno == errno.ENXIO:  # a socket, or a device that is not there
        return SubmissionError("not a regular file")
    return UnreadableError(f"cannot be opened ({error.strerror})")


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def is_stub(submission: Submission, id: str) -> bool:
    """Whether the function does nothing yet but raise NotImplementedError."""
    try:
        module = ast.parse(submission.text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = [n for n in module if isinstance(n, ast.FunctionDef) and n.name == id]
    if not functions:
        return False
    body = functions[-1].body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    match body:
        case [ast.Raise(exc=ast.Call(func=ast.Name(id="NotImplementedError")))]:
            return True
    return False
