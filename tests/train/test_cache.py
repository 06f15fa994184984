"""The cache on disk: each key is made once, whole or not at all, and mapped."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from jaxpar.train.cache import cached


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "jaxpar"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_key_is_made_once_and_mapped(folder: Path) -> None:
    parts = [np.arange(5, dtype=np.uint16).tobytes(), b"", np.uint16(9).tobytes()]
    found = [cached("a", np.uint16, lambda: parts), cached("a", np.uint16, lambda: [b"other"])]
    for one in found:
        assert one.tolist() == [0, 1, 2, 3, 4, 9]
        assert isinstance(one.base, np.memmap)
    assert cached("b", np.uint16, lambda: []).size == 0
    assert files(folder) == ["a", "b"]


def test_what_fails_midway_leaves_nothing(folder: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        cached("a", np.uint8, parts)
    assert files(folder) == []
    assert cached("a", np.uint8, lambda: [b"whole"]).tobytes() == b"whole"


def test_what_is_asked_for_at_the_same_time_is_made_once() -> None:
    """The lock is that of an open file, so threads exclude each other as processes do."""
    pytest.importorskip("fcntl")
    together, made = threading.Barrier(4), []

    def parts() -> Iterator[bytes]:
        made.append(1)
        time.sleep(0.1)  # in which the others come here if nothing holds them back
        yield b"text"

    def ask(_: int) -> bytes:
        together.wait()
        return cached("a", np.uint8, parts).tobytes()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == [b"text"] * 4
    assert made == [1]


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    folder.write_text("in the way")
    with pytest.raises(ValueError, match=rf"text: {folder}: File exists; make room .*XDG_CACHE_HO"):
        cached("a", np.uint8, lambda: [b"x"])
