"""The verbs around a class, and the scripts that grade it on other machines."""

import csv
import json
import os
import re
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from jaxpar.classroom.sandbox import levels
from jaxpar.cli import app
from jaxpar.course.catalog import exercise
from jaxpar.course.folder import Course
from tests.classroom.readable_python import readable_python, why_not
from tests.course.fakes import answer, write

__all__ = ["readable_python"]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "classroom"
EXERCISE = "mean_over_devices"
RIGHT = f"""from jax import lax


def {EXERCISE}(x, *, axis):
    return lax.psum(x, axis) / lax.axis_size(axis)
"""
WRONG = RIGHT.partition(" / ")[0] + "\n"


@pytest.fixture
def jaxpar(readable_python: str, tmp_path: Path) -> Path:
    """A command that grades where this machine can isolate, else the test is skipped."""
    reasons = [why_not(level, readable_python) for level in (levels.NAMESPACES, levels.LANDLOCK)]
    if all(reasons):
        pytest.skip("; ".join(reasons))
    command = tmp_path / "bin" / "jaxpar"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {readable_python} -m jaxpar.cli "$@"\n')
    command.chmod(0o755)
    return command


@pytest.fixture
def submissions(tmp_path: Path) -> Path:
    folder = tmp_path / "submissions"
    for student, source in (("anna b", RIGHT), ("bert", WRONG)):
        path = folder / student / exercise(EXERCISE).file
        path.parent.mkdir(parents=True)
        path.write_text(source)
    return folder


def shell(script: str | Path, *arguments: str, **variables: str) -> str:
    """Runs a bash script as GitHub and Slurm do; returns what it prints."""
    command = [str(script), *arguments] if isinstance(script, Path) else ["-e", "-c", script]
    done = subprocess.run(
        ["bash", *command], env=dict(os.environ) | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(results: Path) -> dict[str, int]:
    with (results / "class.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: int(row["score"]) for row in csv.DictReader(file)}


def test_a_handout_is_made_once(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("classroom", "handout", "out", "--lessons", "02", "03", "--json")
    assert ended.code == 0
    assert exercise(EXERCISE).file in ended.json["written"]
    assert not (tmp_path / "out/exercises/01_devices_and_meshes").exists()
    again = run("classroom", "handout", "out", "--lessons", "02")
    assert (again.code, again.out) == (2, "")
    assert "nothing in it is overwritten" in again.err
    assert run("classroom", "handout", "new", "02").code == 2
    assert run("classroom", "handout", "new", "--lessons", "99").code == 2
    assert not (tmp_path / "new").exists()


def test_variants_come_from_the_secret(run: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        ended = run(
            "classroom", "handout", str(folder), "--lessons", "02", "--variants",
            "--secret-file", str(secret),
        )  # fmt: skip
        assert ended.code == 0
    assert ("A new secret" in ended.err) is False  # the second time, there is one
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    one, two = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.py")}
        for folder in folders
    )
    assert one == two
    assert not [path for folder in folders for path in folder.rglob("*secret*")]


def test_answers_are_collected(run: Any, course: Course) -> None:
    row = exercise(EXERCISE)
    assert run("classroom", "collect").code == 2
    write(course, row, answer(row, "right"))
    ended = run("classroom", "collect")
    assert ended.code == 0
    assert f"{row.id:<32} not checked since it was changed" in ended.out
    with zipfile.ZipFile(course.root / "handin.zip") as archive:
        assert archive.namelist() == [row.file]
    assert run("classroom", "collect", "--out", "mine.zip", "--json").json["packed"]
    assert run("classroom", "collect", "nowhere").code == 2


def test_what_students_hand_in_is_graded_as_it_is(
    run: Any, jaxpar: Path, course: Course, tmp_path: Path
) -> None:
    """A zip file of `collect`, a notebook, and a zip file that would harm whoever unpacks it."""
    row = exercise(EXERCISE)
    write(course, row, RIGHT)
    handins = tmp_path / "handins"
    handins.mkdir()
    run("classroom", "collect", "--out", str(handins / "anna b.zip"))
    cell = {"cell_type": "code", "source": f"%%exercise {EXERCISE}\n{WRONG}"}
    (handins / "bert").mkdir()
    (handins / "bert" / "lab.ipynb").write_text(json.dumps({"cells": [cell]}))
    with zipfile.ZipFile(handins / "eve.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../outside.py", "1")
        archive.writestr(f"{EXERCISE}.py", bytes(50_000_000))
    before = sorted(tmp_path.rglob("outside.py"))
    out = tmp_path / "lab1"
    secret = ("--secret-file", str(tmp_path / "secret"))
    command = [str(jaxpar), "grade", str(handins), "--out", str(out), "--exercises", EXERCISE]
    done = subprocess.run([*command, *secret], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert scores(out) == {"anna b": 10, "bert": 0, "eve": 0}
    assert "refused; look at what they handed in: eve" in done.stdout
    assert sorted(tmp_path.rglob("outside.py")) == before == []
    page = (out / "html" / "students" / "bert.html").read_text()
    assert f"# %%exercise {EXERCISE}" in page and "return lax.psum(x, axis)" in page


def test_gradescope_gets_its_results(
    run: Any, jaxpar: Path, submissions: Path, tmp_path: Path
) -> None:
    """Runs the autograder in folders like Gradescope's; setup.sh can run only on its machine."""
    root = tmp_path / "autograder"
    secret = tmp_path / "secret"
    ended = run(
        "classroom", "gradescope", str(root / "source"), "--exercises", EXERCISE, "scatter",
        "--secret-file", str(secret),
    )  # fmt: skip
    assert ended.code == 0
    assert "2 exercises, 20 points" in ended.out
    (root / "results").mkdir()
    shutil.copytree(submissions / "bert", root / "submission")
    (root / "submission" / "loop").symlink_to(root)
    (root / "run_autograder").write_bytes((root / "source" / "run_autograder").read_bytes())
    shell(root / "run_autograder", AUTOGRADER=str(root), JAXPAR=str(jaxpar))
    result = yaml.safe_load((root / "results" / "results.json").read_text())
    assert (result["score"], sum(test["max_score"] for test in result["tests"])) == (0, 20)
    shell("bash -n " + str(root / "source" / "setup.sh"))


@pytest.mark.full
def test_a_slurm_array_grades_one_student_in_each_task(
    run: Any, jaxpar: Path, submissions: Path, tmp_path: Path
) -> None:
    results, secret, merged = (str(tmp_path / name) for name in ("results", "secret", "class"))
    for task in ("1", "2"):
        shell(
            EXAMPLES / "slurm_array.sh", str(submissions), results, secret, "--exercises", EXERCISE,
            SLURM_ARRAY_TASK_ID=task, SLURM_CPUS_PER_TASK="1", JAXPAR=str(jaxpar),
        )  # fmt: skip
    ended = run("grade", "--merge", *map(str, sorted(Path(results).iterdir())), "--out", merged)
    assert ended.code == 0
    assert scores(Path(merged)) == {"anna b": 10, "bert": 0}


@pytest.mark.full
def test_github_s_runners_grade_one_student_in_each_job(
    jaxpar: Path, submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(submissions / "bert")
    text = (EXAMPLES / "github_grade.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    scripts = {
        name: step["run"]
        for name, job in jobs.items()
        for step in job["steps"]
        if step.get("id") or step.get("name")
    }
    assert not [script for script in scripts.values() if "${{" in script]  # names are not code
    uploads = [s for job in jobs.values() for s in job["steps"] if "upload" in s.get("uses", "")]
    assert [upload["with"].get("overwrite") for upload in uploads] == [True, True]  # run again
    if shutil.which("jq"):
        shell(scripts["students"], GITHUB_OUTPUT=str(tmp_path / "listed"))
        assert (tmp_path / "listed").read_text() == 'names=["anna b"]\n'
    path = f"{jaxpar.parent}:{os.environ['PATH']}"
    grade = scripts["grade"].replace("jaxpar grade one", f"jaxpar grade one --exercises {EXERCISE}")
    shell(grade, PATH=path, STUDENT="anna b", JAXPAR_SECRET="s" * 40)
    (tmp_path / "parts").mkdir()
    Path("results").rename("parts/results-0")
    shell(scripts["merge"], PATH=path)
    assert scores(Path("class")) == {"anna b": 10}


def test_merging_names_what_is_not_results(run: Any, tmp_path: Path) -> None:
    ended = run("grade", "--merge", str(tmp_path), "--out", str(tmp_path / "out"))
    assert ended.code == 2
    assert "holds no results" in ended.err


def commands_of(page: str) -> list[str]:
    """Every line of jaxpar in the blocks of a page, and every one that stands in its text."""
    blocks = re.findall(r"```\n(.*?)```", page, re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(jaxpar [^`]+)`", page)
    return [line for line in lines if line.startswith("jaxpar ")]


def test_every_command_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "classroom.md").read_text(encoding="utf-8")
    commands = [line.split()[1:] for line in commands_of(page)]
    assert len(commands) > 15
    for words in commands:
        command: Any = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, words
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words
