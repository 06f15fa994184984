"""One grader for each folder of results; the second names the first, and a dead one holds none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.classroom.lock import locked

HOLD = """
import sys
from pathlib import Path
from jaxpar.classroom.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_grader_is_told_of_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match=f"another grader .process {first.pid} on "):
            _hold(tmp_path)
        first.kill()
    _hold(tmp_path)


def test_no_child_keeps_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        _hold(tmp_path)
    finally:
        child.kill()
        child.communicate()


def test_it_is_let_go_after_trouble(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "new"):
        raise KeyError
    _hold(tmp_path / "new")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="use another --out"):
        _hold(tmp_path / "file" / "out")


def test_the_process_that_holds_it_is_written_in_it(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("4711 on a machine with a very long name")
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()} on {os.uname().nodename}"


def _hold(folder: Path) -> None:
    with locked(folder):
        pass
