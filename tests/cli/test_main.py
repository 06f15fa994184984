"""Which commands there are, and what they say to bad use."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxpar import __version__
from jaxpar.course.folder import Course

ROOT = Path(__file__).parents[2]


def test_version(run: Any) -> None:
    assert run("--version").out == f"jaxpar {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "absent"),
    [
        (["list"], 0, {"jax"}),
        (["memory", "--model", "llama3-8b", "--hardware", "rtx4090"], 1, {"jax"}),
        (["plan", "--json", "--top", "1"], 0, {"jax", "flax", "matplotlib"}),
        (["schedule", "gpipe", "--stages", "2"], 0, {"jax", "numpy"}),
    ],
)
def test_what_needs_no_jax_never_waits_for_it_and_prints_ascii(
    course: Course, arguments: list[str], code: int, absent: set[str]
) -> None:
    program = "import sys\nfrom jaxpar import cli\ntry: cli.main()\nfinally: print(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(command, env=environment, cwd=course.root, capture_output=True)
    assert (ended.returncode, ended.stderr) == (code, b"")
    loaded = ended.stdout.decode("ascii").splitlines()[-1].split()
    assert not absent & set(loaded)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["check", "devicecoordinates"], "did you mean device_coordinates?"),
        (["check", "add_rank", "--file", "nowhere.py"], "there is no such file"),
        (["lesson", "99"], "there is no lesson '99'; use one of 01, 02, 03"),
        (["lesson", "24"], "lesson 24, capstone, is planned"),
        (["train", "--mesh", "foo=2"], "train: mesh axis 'foo' is unknown"),
        (["schedule", "gpipe", "--svg", "no/folder.svg"], "there is no folder no; make it first"),
        (["next", "--from", "x"], "use one of 01, 02, 03"),
        (["solution", "add_rank", "--give-up"], "after the last hint"),
        (["inspect", "nowhere.py:make"], "nowhere.py"),
        (["lesson", "01"], "lessons/01_devices_and_meshes.py is missing"),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(
    course: Course, run: Any, arguments: list[str], line: str
) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1
    ended = run(*arguments, "--json")
    assert (ended.code, ended.err) == (2, "")
    assert line in ended.json["error"]


@pytest.mark.parametrize("arguments", [["chek"], ["reset"], ["check", "add_rank", "--seed", "x"]])
def test_a_command_line_that_cannot_be_parsed_ends_with_2(run: Any, arguments: list[str]) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert "Traceback" not in ended.err


def test_ctrl_c_while_verbs_are_loaded_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    ended = subprocess.run(
        [sys.executable, "-m", "jaxpar.cli", "list"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_outside_a_course_it_says_how_to_make_one(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ([], ["list"], ["check", "add_rank"], ["next"]):
        ended = run(*arguments)
        assert ended.code == 2
        assert "jaxpar init" in ended.err
