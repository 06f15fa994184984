"""`jaxpar grade`: the roster, what is printed at the end, and what it leaves behind."""

import os
from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom import seeds
from jaxpar.classroom.results import Results
from jaxpar.classroom.sandbox import levels
from tests.classroom.made_up_class import record_of, rows_of, write_result

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
    assert run(*command, "reduce,gather", "scatter").code == 0  # more of them


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


def _judged(folder: Path, secret: bytes) -> None:
    """Writes a result that was judged with a secret."""
    record = record_of("scatter") | {"seed_id": seeds.seed_id(secret, "scatter", "0" * 64)}
    write_result(Results(folder), "anna", [record])


def test_another_secret_never_judges_everybody_again(
    run: Any, submissions: Path, tmp_path: Path
) -> None:
    out, secret, other = tmp_path / "lab1", tmp_path / "course.secret", tmp_path / "other.secret"
    for file in (secret, other):
        seeds.read_secret(file)
    _judged(out, seeds.read_secret(secret))
    before = sorted(tmp_path.rglob("*"))
    command = ("grade", f"{submissions}", "--out", f"{out}", *EXERCISES, "--secret-file")
    ended = run(*command, f"{tmp_path / 'curse.secret'}")
    assert ended.code == 2
    assert "there is no secret" in ended.err and "the same --secret-file as before" in ended.err
    ended = run(*command, f"{other}")
    assert ended.code == 2
    assert "was judged with another secret" in ended.err
    assert [path for path in before if not path.exists()] == []
    assert not (tmp_path / "curse.secret").exists()
    assert run(*command, f"{secret}").code == 0


def test_out_is_results_or_nothing(run: Any, submissions: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "students").mkdir()
    (checkout / "students" / "list.json").write_text("[]")
    before = sorted(checkout.rglob("*"))
    ended = run("grade", f"{submissions}", "--out", f"{checkout}", *EXERCISES)
    assert ended.code == 2
    assert "list.json is not a student's result" in ended.err
    (checkout / "students" / "list.json").unlink()
    ended = run("grade", f"{submissions}", "--out", f"{checkout}", *EXERCISES)
    assert ended.code == 2
    assert "is no folder of results: it holds .git; use an --out" in ended.err
    assert sorted(checkout.rglob("*")) == before[:-1]


def test_a_machine_that_fails_ends_with_1(
    run: Any, submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (submissions / "anna" / "scatter.py").write_text("x")
    real = os.open

    def fails(path: Any, *arguments: Any, **how: Any) -> int:
        if path == "scatter.py":
            raise OSError(5, "Input/output error")
        return real(path, *arguments, **how)

    monkeypatch.setattr(os, "open", fails)
    out = tmp_path / "lab1"
    ended = run("grade", f"{submissions}", "--out", f"{out}", *EXERCISES)
    assert ended.code == 1
    assert "infrastructure, not in the numbers; grade again: anna" in ended.out
    head, anna = rows_of(out / "class.csv")[0], rows_of(out / "class.csv")[2]
    assert anna[head.index("scatter")] == ""
    assert "Input/output error" in anna[head.index("attention")]
    assert [row[0] for row in rows_of(out / "canvas.csv")[2:]] == [": :error::bert"]


def test_refused_work_is_for_a_person(run: Any, submissions: Path, tmp_path: Path) -> None:
    (submissions / "anna" / "scatter.py").symlink_to("/etc/passwd")
    out = tmp_path / "lab1"
    ended = run("grade", f"{submissions}", "--out", f"{out}", *EXERCISES)
    assert ended.code == 0
    assert "refused; look at what they handed in: anna" in ended.out
    assert "refused (cannot be opened (it is a link)): scatter" in (out / "class.csv").read_text()
    assert "it is a link" in (out / "html" / "index.html").read_text()


def test_more_jobs_than_the_machine_can_serve(run: Any, submissions: Path, tmp_path: Path) -> None:
    out = tmp_path / "lab1"
    ended = run("grade", f"{submissions}", "--out", f"{out}", "--jobs", "100000", *EXERCISES)
    assert ended.code == 2
    assert "--jobs 100000; this machine has" in ended.err and "use at most --jobs" in ended.err
    assert not out.exists()


def test_marks_are_checked_before_anything_is_graded(
    run: Any, submissions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "lab1"
    out.mkdir()
    marks = out / "marks.toml"
    command = ("grade", f"{submissions}", "--out", f"{out}", *EXERCISES)
    for text, words in (
        ("[students.ana]\nscore = 1", "students.ana: nobody is called so"),
        ("[students.anna.gather]\npoints = 1", "students.anna.gather: no exercise of this class"),
        ("[students.anna]\nscore = 'x'", "students.anna.score: 'x'; it must be a whole number"),
    ):
        marks.write_text(text)
        ended = run(*command)
        assert ended.code == 2
        assert words in ended.err
    marks.write_text("[students.anna.scatter]\nscore = 4\ncomment = 'spoken to'")
    for _ in range(2):  # a regrade keeps it
        assert run(*command).code == 0
        anna = rows_of(out / "class.csv")[2]
        assert "scatter: spoken to" in anna and anna[-1] == "4"


def test_nobody_s_verdict_is_lost_where_a_folder_is_missing(
    run: Any, submissions: Path, tmp_path: Path
) -> None:
    """As where only those are graded who handed in late, with the roster of the whole class."""
    out, roster, secret = tmp_path / "lab1", tmp_path / "roster.csv", tmp_path / "secret"
    _judged(out, seeds.read_secret(secret))
    roster.write_text("student\nanna\nzoe\n")
    (submissions / "anna").rmdir()
    command = ("grade", f"{submissions}", "--out", f"{out}", "--secret-file", f"{secret}")
    assert run(*command, "--roster", f"{roster}", *EXERCISES).code == 0
    rows = {row[0]: row for row in rows_of(out / "class.csv")}
    assert (rows["anna"][-1], rows["zoe"][-1]) == ("10", "0")
    (submissions / "anna").mkdir()  # empty, now
    ended = run(*command, *EXERCISES)
    assert "was judged before, and is gone: anna" in ended.out
