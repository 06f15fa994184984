"""A copy of Python goes where all can read it and nobody can change it.

That the copy runs as an unprivileged user is tested wherever tests run as root with a Python in a
closed home: `readable_python` is such a copy.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxpar.classroom.handout import python_copy
from jaxpar.classroom.handout.python_copy import copy_python


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all can enter, as `/opt` is; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_folder_that_is_closed_or_that_others_can_change_is_refused(open_folder: Path) -> None:
    for mode, words in ((0o700, "is closed to others"), (0o777, "others can change")):
        open_folder.chmod(mode)
        with pytest.raises(ValueError, match=words):
            copy_python(open_folder / "python", {})
        assert not (open_folder / "python").exists()


def test_nothing_is_written_over_anything(open_folder: Path) -> None:
    (open_folder / "python").mkdir()
    with pytest.raises(ValueError, match="give a new folder"):
        copy_python(open_folder / "python", {})
    with pytest.raises(ValueError, match="make it first"):
        copy_python(open_folder / "no" / "python", {})


def test_a_full_disk_is_told_before_it_is_full(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_copy, "LEAST_FREE_BYTES", 10**18)
    with pytest.raises(ValueError, match="GB are free on the disk of"):
        copy_python(open_folder / "python", {})


def test_what_does_not_run_is_not_left(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_copy, "_base_python", lambda folder: Path("/bin/false"))
    with pytest.raises(ValueError, match="does not run"):
        copy_python(open_folder / "python", {})
    assert os.listdir(open_folder) == []


def test_a_program_finds_its_library_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/root/.pyenv/versions/3.11.7")
    program = b"\x7fELF\0/root/.pyenv/versions/3.11.7/lib\0after"
    made = python_copy._with_own_libraries(program)
    assert len(made) == len(program)
    assert made.split(b"\0")[1] == b"$ORIGIN/../lib" and made.endswith(b"\0after")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert python_copy._with_own_libraries(program) == program
