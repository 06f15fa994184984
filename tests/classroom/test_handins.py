"""A hand-in is read once; no link in it is followed, nothing is waited for, and nothing run.

What may stand in place of a file is among the attacks, in `jaxpar/classroom/attacks/folders.py`.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom import handin_entries, handins
from jaxpar.classroom.downloads import submissions_in
from jaxpar.classroom.handins import MISSING, NO_FOLDER, Handin, Work, read_handin, work_in

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
    read = read_handin(work_in(anna), WANTED)
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
    read = read_handin(work_in(anna), WANTED)
    assert list(read.files) == ["scatter"]
    assert "byte 5 is not UTF-8" in read.refused["add_rank"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_named(anna: Path) -> None:
    try:
        os.mknod(anna / "add_rank.py", 0o20600, os.makedev(1, 5))
    except OSError:
        pytest.skip("this machine lets nobody make devices")
    reason = read_handin(work_in(anna), WANTED).refused["add_rank"]
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
    assert read_handin(work_in(anna), WANTED).refused["add_rank"] == "changed while it was read"


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
    read = read_handin(work_in(anna), WANTED)
    assert not read.files
    assert read.ignored == ["a/", "b/"]


def test_folders_that_are_links_and_those_too_deep_are_listed(anna: Path, tmp_path: Path) -> None:
    _put(tmp_path / "other/add_rank.py")
    (anna / "other").symlink_to(tmp_path / "other")
    (anna / "loop").symlink_to(anna)
    _put(anna / "1/2/3/4/scatter.py")
    _put(anna / "1/2/3/4/5/add_rank.py")
    read = read_handin(work_in(anna), WANTED)
    assert list(read.files) == ["scatter"]
    assert read.ignored == ["1/2/3/4/5/", "loop", "other"]


def test_a_flood_of_files_or_of_folders_ends(anna: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handin_entries, "MOST_ENTRIES", 30)
    monkeypatch.setattr(handins, "MOST_LISTED", 10)
    for i in range(40):
        _put(anna / f"{i:03}.txt")
        (anna / f"f{i:03}/g").mkdir(parents=True)
    _put(anna / "add_rank.py")
    read = read_handin(work_in(anna), WANTED)
    assert len(read.ignored) == 10
    assert not read.files
    assert "more than 30 files" in read.refused["add_rank"]


def test_names_that_no_file_should_have(anna: Path) -> None:
    strange = os.fsdecode(b"\xff\x1b[31m\n=cmd")
    _put(anna / strange / "add_rank.py")
    _put(anna / "\u202egnp.py")
    read = read_handin(work_in(anna), WANTED)
    assert list(read.files) == ["add_rank"]
    assert read.ignored == ["\u202egnp.py"]


def test_students_are_folders_and_a_link_is_named(anna: Path, tmp_path: Path) -> None:
    _put(anna / "add_rank.py")
    (tmp_path / "berta").symlink_to(anna)
    (tmp_path / ".hidden").mkdir()
    _put(tmp_path / "notes.txt")
    with submissions_in(tmp_path) as found:
        assert [work.student for work in found.works] == ["anna", "berta"]
        assert found.unused == ["notes.txt"]
        read = read_handin(found.works[1], WANTED)
    assert all("the student's folder is a link" in why for why in read.refused.values())
    assert read_handin(Work("gone", ()), WANTED).refused["scatter"] == NO_FOLDER


def test_no_students_is_bad_use(tmp_path: Path) -> None:
    for name, words in ((".", "holds no folders"), ("gone", "No such file")):
        with pytest.raises(ValueError, match=rf"^grade: .*{words}"):
            submissions_in(tmp_path / name).__enter__()


def _failing_on(name: str, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Lets a call of the system fail, as on a disk that is broken or a folder of another user."""
    real = getattr(os, call)

    def fails(path, *args, **kwargs):
        if path == name:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    def reads(descriptor: int, count: int) -> bytes:
        if os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")) == name:
            raise OSError(5, "Input/output error")
        return real(descriptor, count)

    monkeypatch.setattr(os, call, reads if call == "read" else fails)


@pytest.mark.parametrize(
    ("name", "call", "words"),
    [
        ("scatter.py", "open", "cannot be opened (Permission denied)"),
        ("scatter.py", "read", "cannot be read (Input/output error)"),
        ("inside", "open", "inside/ (cannot be opened (Permission denied))"),
        ("lab.zip", "open", "lab.zip (cannot be opened (Permission denied))"),
        ("lab.ipynb", "read", "lab.ipynb (cannot be read (Input/output error))"),
    ],
)
def test_what_this_machine_cannot_read_is_not_held_against_the_student(
    anna: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: str, words: str
) -> None:
    _put(anna / "add_rank.py")
    place = anna / "inside/scatter.py" if name == "inside" else anna / name
    _put(place)
    _failing_on(name, monkeypatch, call)
    read = read_handin(work_in(anna), WANTED)
    assert list(read.files) == ["add_rank"]
    assert read.unreadable == {"scatter": words}
    assert not read.refused


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda anna: (anna / "scatter.py").symlink_to("/etc/passwd"), "it is a link"),
        (lambda anna: (anna / "exercises").symlink_to("/etc"), "exercises (a link)"),
        (lambda anna: _put(anna / "1/2/3/4/5/scatter.py"), "1/2/3/4/5/ (more than 4 folders deep)"),
        (lambda anna: _put(anna / "scatter.py", b"#" * 300_000), "larger than 256000 bytes"),
        (lambda anna: _put(anna / "lab.rar"), "only zip files are opened"),
        (lambda anna: _put(anna / "lab.zip"), "lab.zip (a zip file that cannot be opened)"),
        (lambda anna: _put(anna / "lab.ipynb"), "lab.ipynb (not a notebook that Jupyter"),
        (lambda anna: _put(anna / "Scatter (1).py"), "there is Scatter (1).py"),
        (lambda anna: _put(anna / "scatter-2.py.txt"), "there is scatter-2.py.txt"),
        (lambda anna: _put(anna / "scatter.ipynb", b'{"cells": []}'), "there is scatter.ipynb"),
    ],
)
def test_whatever_may_be_an_answer_is_told(anna: Path, made: Any, words: str) -> None:
    made(anna)
    assert words in read_handin(work_in(anna), WANTED).refused["scatter"]


def test_what_is_simply_not_there_needs_nobody_to_look(anna: Path) -> None:
    _put(anna / "notes.txt")
    _put(anna / "ring_scatter.py")
    _put(anna / ".git/config")
    assert read_handin(work_in(anna), WANTED).refused == dict.fromkeys(WANTED, MISSING)


def test_the_same_answer_in_two_places_is_one_and_two_answers_are_none(anna: Path) -> None:
    _put(anna / "a/scatter.py")
    _put(anna / "b/scatter.py")
    assert list(read_handin(work_in(anna), WANTED).files) == ["scatter"]
    _put(anna / "b/scatter.py", b"x = 2\n")
    read = read_handin(work_in(anna), WANTED)
    assert not read.files
    assert read.refused["scatter"] == "handed in twice: a/scatter.py and b/scatter.py"


def _notebook(*cells: str | list[str]) -> bytes:
    made = [{"cell_type": "code", "source": cell, "metadata": {}} for cell in cells]
    text = {"cell_type": "markdown", "source": "%%exercise scatter\nno code"}
    return json.dumps({"cells": [text, *made], "nbformat": 4, "nbformat_minor": 5}).encode()


def test_cells_of_a_notebook_are_answers(anna: Path) -> None:
    cells = ("print(1)", "\n%%exercise scatter\nx = 1\n", ["%%exercise add_rank\n", "x = 2"])
    _put(anna / "lab.ipynb", _notebook(*cells, "%%exercise other\nx = 3"))
    read = read_handin(work_in(anna), WANTED)
    assert {name: file.source for name, file in read.files.items()} == {
        "scatter": b"\n# %%exercise scatter\nx = 1\n",
        "add_rank": b"# %%exercise add_rank\nx = 2",
    }
    assert read.files["scatter"].path.name == "scatter.py"


def test_two_cells_for_one_exercise_are_told_by_their_numbers(anna: Path) -> None:
    _put(anna / "lab.ipynb", _notebook("%%exercise scatter\n1", "%%exercise scatter\n2"))
    refused = read_handin(work_in(anna), WANTED).refused["scatter"]
    assert refused == "handed in twice: lab.ipynb, cell 2 and lab.ipynb, cell 3"


STUB = 'def scatter(x):\n    """Scatters.\n    """\n    raise NotImplementedError("write it")\n'


def test_the_stubs_in_a_lesson_s_notebook_do_not_compete_with_answers(anna: Path) -> None:
    _put(anna / "notebooks/02.ipynb", _notebook(f"%%exercise scatter\n{STUB}"))
    assert read_handin(work_in(anna), WANTED).files["scatter"].source.endswith(STUB.encode())
    _put(anna / "scatter.py", b"x = 1\n")
    assert read_handin(work_in(anna), WANTED).files["scatter"].source == b"x = 1\n"
    left_over = STUB.replace("    raise", "    return x\n    raise")
    _put(anna / "notebooks/02.ipynb", _notebook(f"%%exercise scatter\n{left_over}"))
    assert "handed in twice" in read_handin(work_in(anna), WANTED).refused["scatter"]


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[]", b'{"cells": [1]}', b"\xff", b""])
def test_no_notebook_breaks_the_reader(anna: Path, data: bytes) -> None:
    _put(anna / "lab.ipynb", data)
    _put(anna / "scatter.py")
    read: Handin = read_handin(work_in(anna), WANTED)
    assert list(read.files) == ["scatter"]
    assert "lab.ipynb" in read.refused["add_rank"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_closed_to_us_is_listed(anna: Path) -> None:
    (anna / "closed").mkdir(mode=0)
    read = read_handin(work_in(anna), WANTED)
    assert read.ignored == ["closed/"]
    assert set(read.unreadable) == set(WANTED)
