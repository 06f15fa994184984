"""The folder of results: one grader at a time, one file for each student, and what was before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.classroom.handins import Handin
from jaxpar.classroom.results import EarlierResults, Results, locked
from tests.classroom.made_up_class import gradebook, record_of, write_result

HOLD = """
import sys
from pathlib import Path
from jaxpar.classroom.results import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _hold(folder: Path) -> None:
    with locked(folder):
        pass


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


def test_difference_and_moved_survive_a_killed_run(tmp_path: Path) -> None:
    results = Results(tmp_path)
    earlier = EarlierResults(results)
    write_result(results, "anna", [record_of("scatter", "fail", "no")])
    write_result(results, "bert", [record_of("scatter", "fail", "no")])
    earlier.keep()
    write_result(results, "anna", [record_of("scatter")])
    earlier.keep()  # the run was killed, and begins again
    write_result(results, "bert", [record_of("scatter") | {"submission_hash": "another"}])
    write_result(results, "carl", [record_of("scatter")])
    seen = {entry.file_name: (entry.difference, entry.moved) for entry in gradebook(tmp_path)}
    assert seen == {"anna": (3, ("scatter",)), "bert": (3, ()), "carl": (None, ())}
    earlier.forget()
    assert {entry.difference for entry in gradebook(tmp_path)} == {None}


def test_the_difference_is_of_what_was_graded_both_times(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write(Handin("anna"), [record_of("scatter", "fail", "no")], level=1)
    EarlierResults(results).keep()
    results.write(Handin("anna"), [record_of("scatter"), record_of("mean_over_devices")], level=1)
    assert [entry.difference for entry in gradebook(tmp_path)] == [3]


def test_two_students_never_share_a_file(tmp_path: Path) -> None:
    names = ["\u00e9" * 40 + end for end in "ab"]
    for name in names:
        write_result(Results(tmp_path), name, [])
    assert len(list(tmp_path.glob("students/*.json"))) == 2
    assert Results(tmp_path).others(names[:1]) == [names[1]]


def test_new_results_are_closed_to_others(tmp_path: Path) -> None:
    out = tmp_path / "below" / "out"
    _hold(out)
    assert out.stat().st_mode & 0o777 == 0o700
    out.chmod(0o750)  # for the teaching assistants
    _hold(out)
    assert out.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["README.md", ".git/config", "src/a.py", "students/roster.txt"])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    if name.startswith("students"):
        (tmp_path / "README.md").touch()
    with pytest.raises(ValueError, match="is no folder of results: it holds "):
        Results(tmp_path).check_folder()


@pytest.mark.parametrize("text", ["[]", "{}", '{"student": "anna"}', "no JSON"])
def test_a_file_among_the_students_that_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    write_result(Results(tmp_path), "anna", [record_of("scatter")])
    Results(tmp_path).check_folder()
    (tmp_path / "students" / "list.json").write_text(text)
    with pytest.raises(ValueError, match=r"students/list.json is not a student's result"):
        Results(tmp_path).check_folder()


def test_a_run_that_was_killed_early_may_go_on(tmp_path: Path) -> None:
    Results(tmp_path / "new").check_folder()
    for name in ("journal", "before", "students"):
        (tmp_path / name).mkdir()
    (tmp_path / ".lock").touch()
    Results(tmp_path).check_folder()
