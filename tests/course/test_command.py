"""The command that messages tell the learner to type, depending on what the shell finds."""

import sys
from pathlib import Path

import pytest

from jaxpar.course.command import command


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / ".venv" / "bin" / "jaxpar"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    return path


def test_on_the_path_it_is_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert command() == "jaxpar"


def test_elsewhere_it_is_the_way_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert command() == ".venv/bin/jaxpar"
    monkeypatch.setattr(sys, "argv", [".venv/bin/jaxpar"])
    assert command() == ".venv/bin/jaxpar"


def test_under_another_program_it_is_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert command() == "jaxpar"
