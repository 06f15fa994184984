"""Which commands there are, and what they say to bad use."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from jaxpar import __version__, cli
from jaxpar.course.folder import Course

SPREAD = ["--zero", "--precision", "--remat", "--microbatches", "--offload"]
SPREAD += ["--sequence-parallel", "--schedule"]
TABLE = ["--stages", "--microbatches", "--chunks", "--cost", "--csv", "--from", "--svg", "--beside"]
SIZES = ["--layers", "--d-model", "--heads", "--batch", "--sequence"]
MODEL = ["--model", "--config", "--layers", "--hidden", "--heads", "--kv-heads", "--ffn", "--vocab"]
MODEL += ["--gated", "--parameters"]
SERVED = ["--weight-bits", "--cache-bits", "--group"]
LAID_OUT = ["--devices", "--mesh", "--sequence", "--batch", "--microbatch", "--zero", "--remat"]
LAID_OUT += ["--sequence-parallel", "--chunks", "--offload"]
ASKED = ["--hardware", "--estimator", "--largest-layer"]
JOB = ["--model", "--hardware", "--devices", "--batch", "--sequence"]
OPEN = ["--mesh", "--zero", "--remat", "--microbatch", "--chunks", "--sequence-parallel"]
OPEN += ["--offload"]
GRADED = ["--exercises", "--jobs", "--roster", "--secret-file", "--only-changed", "--fresh"]
GRADED += ["--unsafe", "--variants", "--merge"]
HANDED = ["--variants", "--secret-file", "--json"]
SHOWN = ["--top", "--explain", "--compare", "--html"]
COMMANDS = {
    "": ["--plain", "--version"],
    "list": ["--json"],
    "lesson": ["number", "--json"],
    "next": ["--from", "--json"],
    "check": ["id", "--file", "--seed", "--json"],
    "hint": ["id", "--json"],
    "solution": ["id", "--give-up", "--json"],
    "reset": ["id", "--json"],
    "doctor": ["--json", "--grading"],
    "inspect": ["target", "--json"],
    "init": ["folder", "--json"],
    "memory": [*MODEL, "--training", *LAID_OUT, *SERVED, *ASKED, "--json"],
    "plan": [*JOB, *OPEN, "--overlap", "--mtbf-hours", *SHOWN, "--json"],
    "schedule": ["name", *TABLE, "--json"],
    "train": ["--mesh", *SPREAD, "--steps", "--data", "--seed", *SIZES, "--timeout", "--json"],
    "launch": ["arguments", "--processes", "--devices"],
    "dev build": ["--check"],
    "dev new": ["topic", "id"],
    "grade": ["submissions", "--out", "more", *GRADED],
    "classroom handout": ["out", "more", "--lessons", *HANDED],
    "classroom collect": ["folder", "--out", "--json"],
    "classroom gradescope": ["out", "more", "--exercises", *HANDED],
    "classroom similarity": ["results", "more", "--exercises", *HANDED[:2], "--unsafe"],
}


def test_the_commands_and_their_options_are_these() -> None:
    found: dict[str, list[str]] = {}

    def collect(prefix: str, command: Any) -> None:
        names = [
            (param.opts[0] if param.opts[0].startswith("-") else param.name)
            for param in command.params
            if param.name != "help"
        ]
        if names:
            found[prefix.strip()] = names
        for name, child in getattr(command, "commands", {}).items():
            collect(f"{prefix} {name}", child)

    collect("", typer.main.get_command(cli.app))
    assert found == COMMANDS


def test_version_and_help(run: Any) -> None:
    assert run("--version").out == f"jaxpar {__version__}\n"
    assert all(name.split()[0] in run("--help").out for name in COMMANDS if name)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["check", "devicecoordinates"], "did you mean device_coordinates?"),
        (["check", "add_rank", "--file", "nowhere.py"], "no file nowhere.py"),
        (["lesson", "99"], "use one of 01, 02, 03"),
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
