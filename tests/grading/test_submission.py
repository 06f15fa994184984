"""A file is read once, or refused in one line."""

import os
from pathlib import Path

import pytest

from jaxpar.grading.submission import (
    MAX_SOURCE_BYTES,
    SubmissionError,
    read_submission,
)


def test_bytes_and_digest_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "add_rank.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\r\n")
    submission = read_submission(path)
    assert submission.text == "x = 1\ny = 2\n"
    assert submission.digest != read_submission(_write(path, b"x = 1\ny = 2\n")).digest


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \r\n", "empty"),
        (b"x = '\xff'", "not UTF-8"),
        (b"x = 1\0", "NUL"),
        (b"#" * (MAX_SOURCE_BYTES + 1), "larger than"),
    ],
)
def test_a_file_that_cannot_be_judged(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(SubmissionError, match=reason) as caught:
        read_submission(_write(tmp_path / "add_rank.py", data))
    assert "\n" not in str(caught.value)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    target = _write(tmp_path / "target.py", b"x = 1")
    (tmp_path / "link.py").symlink_to(target)
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "folder.py").mkdir()
    for name in ("link.py", "fifo.py", "folder.py", "missing.py"):
        with pytest.raises(SubmissionError, match=name):
            read_submission(tmp_path / name)
