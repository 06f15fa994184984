"""`python learn.py` installs once, reads lesson 01 once, and opens the exercise at hand."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECORDS = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
case "$*" in
    "lesson 01") mkdir -p .jaxpar/lessons && {lesson} ;;
    *install*) {install} ;;
esac
"""
pytestmark = [
    pytest.mark.always,
    pytest.mark.skipif(sys.platform == "win32", reason="shell scripts stand for the programs"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with an environment whose programs only note that they were called."""
    shutil.copy(ROOT / "learn.py", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    programs(tmp_path)
    return tmp_path


def programs(folder: Path, lesson: str = "touch .jaxpar/lessons/01", install: str = "true") -> None:
    for name in ("python", "pip", "jaxpar"):
        program = folder / ".venv" / "bin" / name
        program.write_text(RECORDS.format(lesson=lesson, install=install))
        program.chmod(0o755)


def learn(folder: Path) -> tuple[int, list[str], str]:
    """Returns the exit code, what was called, and what was printed."""
    (folder / "calls").write_text("")
    command = [sys.executable, folder / "learn.py"]
    ended = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)
    calls = (folder / "calls").read_text().splitlines()
    return ended.returncode, calls, ended.stdout + ended.stderr


def test_each_thing_is_done_once(folder: Path) -> None:
    code, calls, printed = learn(folder)
    assert (code, len(calls)) == (0, 4), calls
    assert calls[0].startswith("python -m pip install") and calls[0].endswith("--editable .")
    assert calls[2:] == ["jaxpar lesson 01", "jaxpar "]
    assert "Next time type .venv/bin/jaxpar" in printed
    assert learn(folder) == (0, ["jaxpar "], "")


def test_new_dependencies_are_installed(folder: Path) -> None:
    learn(folder)
    later = time.time() + 10
    os.utime(folder / "pyproject.toml", (later, later))
    _, calls, _ = learn(folder)
    assert [re.match(r"\w+( -m pip)?", call)[0] for call in calls] == [
        "python -m pip",
        "python",
        "jaxpar",
    ]


@pytest.mark.parametrize(
    ("broken", "code", "last"),
    [({"install": "exit 3"}, 3, "python -m pip install"), ({"lesson": "true"}, 0, "jaxpar lesson")],
)
def test_it_ends_where_a_step_fails_or_the_reader_leaves(
    folder: Path, broken: dict[str, str], code: int, last: str
) -> None:
    programs(folder, **broken)
    ended, calls, _ = learn(folder)
    assert ended == code
    assert calls[-1].startswith(last)
    assert learn(folder)[1][-1].startswith(last)  # and goes on there the next time


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "learn.py"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.setattr(sys, "version_info", (3, 10, 1)), "needs 3.11 or newer"),
        (lambda m: m.setattr("importlib.util.find_spec", lambda name: None), "sudo apt install"),
        (
            lambda m: (
                m.setattr(sys, "platform", "darwin"),
                m.setattr("platform.machine", lambda: "x86_64"),
            ),
            "Intel processors",
        ),
    ],
)
def test_what_is_missing_is_said(
    script: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: Callable[[pytest.MonkeyPatch], object],
    says: str,
) -> None:
    missing = script["what_is_missing"]
    missing.__globals__["PIP"] = tmp_path / "pip"
    assert missing() == ""
    change(monkeypatch)
    assert says in missing()
