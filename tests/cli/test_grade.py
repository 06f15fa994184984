"""`jaxpar grade`: the roster, what is printed at the end, and what it leaves behind."""

from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom.sandbox import levels

EXERCISES = ("--exercises", "mean_over_devices", "scatter")


@pytest.fixture
def submissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A class that handed in nothing, so that no process is needed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(
        levels, "best_sandbox", lambda **_: levels.Sandbox(levels.NOT_ISOLATED, None)
    )
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
        "3 students, 2 exercises: at most 6 files",
        "about 1 minute if all are there",
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


def test_no_verdict_is_dropped_by_a_run_on_fewer_exercises(
    run: Any, submissions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "lab1"
    command = ("grade", f"{submissions}", "--out", f"{out}", "--exercises")
    assert run(*command, "scatter", "gather").code == 0
    kept = (out / "students" / "anna.json").read_bytes()
    ended = run(*command, "scatter")
    assert ended.code == 2
    assert "has verdicts on gather, which this run would drop; name these" in ended.err
    assert (out / "students" / "anna.json").read_bytes() == kept
    assert run(*command, "mean,gather", "scatter").code == 0  # more of them


def test_who_is_in_no_merged_folder_is_named(run: Any, submissions: Path, tmp_path: Path) -> None:
    roster, one = tmp_path / "roster.csv", tmp_path / "one"
    roster.write_text("student,name\nanna,Anna A\nzoe,Zoe Z\n")
    run("grade", f"{submissions}", "--out", f"{one}", *EXERCISES)
    merged = ("grade", "--merge", f"{one}", "--out", f"{tmp_path / 'lab1'}")
    ended = run(*merged, "--roster", f"{roster}")
    assert ended.code == 0
    assert "In the roster, without a folder (1): zoe" in ended.out
    assert '"anna","Anna A"' in (tmp_path / "lab1" / "class.csv").read_text()


def test_results_are_no_student(run: Any, submissions: Path) -> None:
    for out in (submissions, submissions / "results"):
        ended = run("grade", f"{submissions}", "--out", f"{out}", *EXERCISES)
        assert ended.code == 2
        assert "use an --out beside it" in ended.err
    assert {path.name for path in submissions.iterdir()} == {"anna", "::error::bert"}


def test_words_that_no_option_asked_for_are_named(run: Any, tmp_path: Path) -> None:
    for verb in (("grade", "--out", "out"), ("classroom", "gradescope")):
        ended = run(*verb, f"{tmp_path / 'one'}", "scatter")
        assert ended.code == 2
        assert "'scatter' beside the folder; give one folder, then --exercises" in ended.err
    ended = run("grade", "--merge", f"{tmp_path}", "--out", "out", "--exercises", "scatter")
    assert ended.code == 2
    assert "every exercise" in ended.err


def test_a_wrong_roster_ends_before_anything_is_graded(
    run: Any, submissions: Path, tmp_path: Path
) -> None:
    roster = tmp_path / "roster.csv"
    roster.write_text("name\nAnna\n")
    ended = run("grade", f"{submissions}", "--out", f"{tmp_path / 'out'}", "--roster", f"{roster}")
    assert ended.code == 2
    assert "must have `student`" in ended.err
    assert not (tmp_path / "out").exists()
