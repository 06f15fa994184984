"""`jaxpar grade`: the roster, what is printed at the end, and what it leaves behind."""

from pathlib import Path
from typing import Any

import pytest

from jaxpar.grading.sandbox import ladder

EXERCISES = ("--exercises", "mean_over_devices", "scatter")


@pytest.fixture
def submissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A class that handed in nothing, so that no process is needed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(ladder, "choose", lambda **_: ladder.Sandbox(ladder.NONE, None))
    for name in ("anna", "::error::bert"):
        (tmp_path / "class" / name).mkdir(parents=True)
    return tmp_path / "class"


def test_everything_is_written_and_said(run: Any, submissions: Path, tmp_path: Path) -> None:
    roster, out = tmp_path / "roster.csv", tmp_path / "lab1"
    roster.write_text("student,name,late_days,shoe\nanna,Anna A,1,40\nzoe,Zoe Z,,38\n")
    ended = run("grade", f"{submissions}", "--out", f"{out}", "--roster", f"{roster}", *EXERCISES)
    assert ended.code == 0
    for words in (
        "nothing is done with shoe",
        "In the roster, without a folder (1): zoe",
        "Folders that are not in the roster (1): : :error::bert",
        "Isolation: not isolated",
        "3 students: mean 0.0 of 20 points",
    ):
        assert words in ended.out
    assert not any(line.startswith("::") for line in ended.out.splitlines())
    assert (out / "html" / "index.html").is_file()
    assert '"zoe","Zoe Z"' in (out / "class.csv").read_text()
    assert len(list(out.glob("gradescope/*/results.json"))) == 3
    assert not (out / "before").exists()

    ended = run("grade", f"{submissions}", "--out", f"{out}", *EXERCISES)
    assert "Counted too (1), from an earlier run" in ended.out and "students: zoe" in ended.out


def test_a_wrong_roster_ends_before_anything_is_graded(
    run: Any, submissions: Path, tmp_path: Path
) -> None:
    roster = tmp_path / "roster.csv"
    roster.write_text("name\nAnna\n")
    ended = run("grade", f"{submissions}", "--out", f"{tmp_path / 'out'}", "--roster", f"{roster}")
    assert ended.code == 2
    assert "must have `student`" in ended.err
    assert not (tmp_path / "out").exists()
