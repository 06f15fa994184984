"""After a write, a file is wholly the old one or wholly the new one."""

import os
from pathlib import Path

import pytest

from jaxpar.files import write_atomically


def test_the_new_bytes_are_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_atomically(path, b"1")
    write_atomically(path, b"2")
    assert path.read_bytes() == b"2"
    assert os.listdir(path.parent) == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]
