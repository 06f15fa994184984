"""A hand-in is read once; no link in it is followed, nothing is waited for, and nothing run.

What may stand in place of a file is among the attacks, in `jaxpar/classroom/attacks/folders.py`.
"""

import os
from pathlib import Path

import pytest

from jaxpar.classroom import handins
from jaxpar.classroom.handins import read_handin, student_folders

WANTED = ["add_rank", "scatter"]


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    folder = tmp_path / "anna"
    folder.mkdir()
    return folder


def _put(path: Path, data: bytes = b"x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_files_are_found_at_any_depth_and_the_rest_is_listed(anna: Path) -> None:
    _put(anna / "add_rank.py", b"x = 2\n")
    _put(anna / "exercises/02_collectives/scatter.py")
    for name in ("conftest.py", "pytest.ini", "sitecustomize.py", "jax.py", "add_rank.pyc"):
        _put(anna / name)
    _put(anna / "__pycache__/scatter.py")
    _put(anna / ".git/scatter.py")
    read = read_handin(anna, WANTED)
    assert read.student == "anna"
    assert {name: file.source for name, file in read.files.items()} == {
        "add_rank": b"x = 2\n",
        "scatter": b"x = 1\n",
    }
    assert read.ignored == [
        ".git/", "__pycache__/", "add_rank.pyc", "conftest.py", "jax.py", "pytest.ini",
        "sitecustomize.py",
    ]  # fmt: skip
    assert not read.refused


def test_a_file_that_cannot_be_judged_is_named_and_the_others_are_read(anna: Path) -> None:
    _put(anna / "add_rank.py", b"x = '\xff'")
    _put(anna / "scatter.py")
    read = read_handin(anna, WANTED)
    assert list(read.files) == ["scatter"]
    assert "byte 5 is not UTF-8" in read.refused["add_rank"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_named(anna: Path) -> None:
    try:
        os.mknod(anna / "add_rank.py", 0o20600, os.makedev(1, 5))
    except OSError:
        pytest.skip("this machine lets nobody make devices")
    reason = read_handin(anna, WANTED).refused["add_rank"]
    assert "not a regular file" in reason or "cannot be opened" in reason


def test_a_file_that_changes_while_it_is_read(anna: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _put(anna / "add_rank.py", b"x = 1\n" * 100)
    real, calls = os.read, []

    def read(descriptor: int, count: int) -> bytes:
        calls.append(count)
        if len(calls) == 1:
            path.write_bytes(b"y")
        return real(descriptor, min(count, 10))

    monkeypatch.setattr(os, "read", read)
    assert read_handin(anna, WANTED).refused["add_rank"] == "changed while it was read"


def test_a_folder_that_becomes_a_pipe_or_a_link_is_not_waited_for(
    anna: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (anna / name).mkdir()
    elsewhere = _put(tmp_path / "elsewhere/scatter.py").parent
    real = os.open

    def change_then_open(path, flags, *args, **kwargs) -> int:
        if path in ("a", "b"):
            (anna / path).rmdir()
            os.mkfifo(anna / "a") if path == "a" else (anna / "b").symlink_to(elsewhere)
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", change_then_open)
    read = read_handin(anna, WANTED)
    assert not read.files
    assert read.ignored == ["a/", "b/"]


def test_folders_that_are_links_and_those_too_deep_are_listed(anna: Path, tmp_path: Path) -> None:
    _put(tmp_path / "other/add_rank.py")
    (anna / "other").symlink_to(tmp_path / "other")
    (anna / "loop").symlink_to(anna)
    _put(anna / "1/2/3/4/scatter.py")
    _put(anna / "1/2/3/4/5/add_rank.py")
    read = read_handin(anna, WANTED)
    assert list(read.files) == ["scatter"]
    assert read.ignored == ["1/2/3/4/5/", "loop", "other"]


def test_a_flood_of_files_or_of_folders_ends(anna: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handins, "MOST_ENTRIES", 30)
    monkeypatch.setattr(handins, "MOST_LISTED", 10)
    for i in range(40):
        _put(anna / f"{i:03}.txt")
        (anna / f"f{i:03}/g").mkdir(parents=True)
    _put(anna / "add_rank.py")
    read = read_handin(anna, WANTED)
    assert len(read.ignored) == 10
    assert not read.files


def test_names_that_no_file_should_have(anna: Path) -> None:
    strange = os.fsdecode(b"\xff\x1b[31m\n=cmd")
    _put(anna / strange / "add_rank.py")
    _put(anna / "\u202egnp.py")
    read = read_handin(anna, WANTED)
    assert list(read.files) == ["add_rank"]
    assert read.ignored == ["\u202egnp.py"]


def test_students_are_folders_and_a_link_is_named(anna: Path, tmp_path: Path) -> None:
    _put(anna / "add_rank.py")
    (tmp_path / "berta").symlink_to(anna)
    (tmp_path / ".hidden").mkdir()
    _put(tmp_path / "notes.txt")
    assert student_folders(tmp_path) == ["anna", "berta"]
    read = read_handin(tmp_path / "berta", WANTED)
    assert read.refused == dict.fromkeys(WANTED, "the student's folder is a link")
    gone = read_handin(tmp_path / "gone", WANTED)
    assert gone.refused["scatter"] == "the student has no folder"


def test_no_students_is_bad_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^grade: .* holds no folders"):
        student_folders(tmp_path)
    with pytest.raises(ValueError, match=r"^grade: .*/gone: No such file"):
        student_folders(tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_closed_to_us_is_listed(anna: Path) -> None:
    (anna / "closed").mkdir(mode=0)
    assert read_handin(anna, WANTED).ignored == ["closed/"]
