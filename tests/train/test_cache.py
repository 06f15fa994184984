"""The cache on disk: each key is made once, whole or not at all, and mapped."""

import multiprocessing
import os
from collections.abc import Iterator
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


def make_in_a_process(log: Path) -> None:
    def parts() -> Iterator[bytes]:
        with log.open("a") as file:
            file.write("made\n")
        yield b"text"

    assert cached("a", np.uint8, parts).tobytes() == b"text"


def test_processes_at_the_same_time_make_it_once(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    log = tmp_path / "log"
    started = [context.Process(target=make_in_a_process, args=(log,)) for _ in range(4)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert [one.exitcode for one in started] == [0] * 4
    assert log.read_text() == "made\n"


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    folder.write_text("in the way")
    with pytest.raises(ValueError, match=rf"text: {folder}: File exists; make room .*XDG_CACHE_HO"):
        cached("a", np.uint8, lambda: [b"x"])
