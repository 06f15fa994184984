"""What a class starts from, hands in, and is graded with elsewhere."""

import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from jaxpar.course import variants
from jaxpar.course.archive import wheel, zipped
from jaxpar.course.autograder import make_autograder
from jaxpar.course.catalog import EXERCISES, LESSONS, BadUseError
from jaxpar.course.check import Verdicts
from jaxpar.course.collect import collect
from jaxpar.course.folder import PACKAGE, Course, exercise_of
from jaxpar.course.handout import make_handout
from jaxpar.course.progress import progress
from jaxpar.course.versions import constraints
from tests.course.fakes import answer, stub_of, write

GIVEN = LESSONS[1:3]
ASKED = [row for lesson in GIVEN for row in lesson.asks]


@pytest.fixture(scope="module")
def handout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class") / "handout"
    make_handout(folder, GIVEN, ASKED)
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_handout_is_a_course_of_some_lessons(handout: Path) -> None:
    course = Course(handout)
    assert course.lessons == GIVEN
    assert [row.exercise for row in progress(course, Verdicts(course.verdicts))] == ASKED
    assert all(course.file(row).read_bytes() == stub_of(row) for row in ASKED)
    assert all(course.file(row).is_file() for row in GIVEN)
    assert files(handout) - {row.file for row in (*ASKED, *GIVEN)} == {
        ".github/workflows/check.yml", ".gitignore", "AGENTS.md", "CLAUDE.md", "README.md",
        "constraints.txt", "exercises/conftest.py", "requirements.txt", f"wheels/{wheel()[0]}",
    }  # fmt: skip


def test_a_handout_names_what_is_in_it(handout: Path) -> None:
    readme = (handout / "README.md").read_text()
    assert all(f"`{row.id}`" in readme for row in ASKED)
    assert "$" not in readme
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    workflow = yaml.safe_load((handout / ".github/workflows/check.yml").read_text())
    steps = workflow["jobs"]["check"]["steps"]
    assert steps[1]["with"]["python-version"] == version
    assert f"Python {version}" in readme
    assert steps[-1]["run"].removeprefix("python ") in readme


def test_a_handout_pins_what_is_installed(handout: Path) -> None:
    import jax

    pins = (handout / "constraints.txt").read_text().splitlines()
    assert f"jax=={jax.__version__}" in pins
    assert pins == sorted(set(pins))
    assert not [pin for pin in pins if pin.startswith("jaxpar")]
    path = (handout / "requirements.txt").read_text().splitlines()[1]
    assert (handout / path).is_file()


def test_nothing_is_handed_out_over_something(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    for folder in (tmp_path, mine):
        with pytest.raises(BadUseError, match="nothing in it is overwritten"):
            make_handout(folder, GIVEN, ASKED)
    assert files(tmp_path) == {"mine.txt"}


def test_the_wheel_is_this_library(handout: Path, tmp_path: Path) -> None:
    (built,) = (handout / "wheels").iterdir()
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
        "--disable-pip-version-check", "--no-compile", "--root-user-action=ignore",
        "--target", str(tmp_path), str(built),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    installed = {file for file in files(tmp_path / "jaxpar") if not file.startswith("_course")}
    assert {file for file in installed if file.endswith(".py")} == {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "_course" not in path.parts
    }
    assert (tmp_path / "jaxpar/course/templates/gitignore").is_file()
    assert (tmp_path / "jaxpar/_course" / LESSONS[0].file).is_file()
    assert not list((tmp_path / "jaxpar/_course").glob("exercises/*/*"))
    assert (tmp_path / "bin" / "jaxpar").is_file()


def test_variants_are_told_to_the_course(tmp_path: Path) -> None:
    row = ASKED[0]
    (tmp_path / Path(row.file).parent).mkdir(parents=True)
    assert variants.chosen(ASKED, b"secret" * 4) == ASKED  # the same exercises, whatever variant
    secrets = [bytes([number]) * 16 for number in range(20)]
    assert {variants.chosen([row], secret)[0].variant for secret in secrets} == {0, 1}
    assert Course(tmp_path).exercise(row.id).variant == 0
    (tmp_path / variants.FILE).write_bytes(variants.told([replace(row, variant=1)]))
    assert Course(tmp_path).exercise(row.id).where == f"{row.where}@1"
    assert {r.variant for r in Course(tmp_path).exercises if r.id == row.id} == {1}
    found = exercise_of(tmp_path / row.file)
    assert found is not None
    assert found.variant == 1


@pytest.mark.parametrize("text", ["", "[]", '{"scatter": "x"}', "\xff"])
def test_broken_variants_are_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / variants.FILE).write_text(text, encoding="latin-1")
    with pytest.raises(BadUseError, match="put back the file"):
        Course(tmp_path).exercise(ASKED[0].id)


def test_only_answers_are_collected(course: Course, tmp_path: Path) -> None:
    right, large, gone, linked = EXERCISES[:4]
    write(course, right, answer(right, "right"))
    write(course, large, "#" * 300_000)
    course.file(gone).unlink()
    course.file(linked).unlink()
    course.file(linked).symlink_to("/etc/passwd")
    (course.root / "diary.txt").write_text("private")
    out = tmp_path / "mine.zip"
    collected = collect(course, out)
    assert collected.packed == {right.id: "not checked since it was changed"}
    assert "larger than" in collected.left_out[large.id]
    assert collected.left_out[gone.id] == "missing"
    assert "link" in collected.left_out[linked.id]
    assert collected.left_out[EXERCISES[-1].id] == "not written yet"
    first = out.read_bytes()
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == [right.file]
        assert archive.read(right.file).decode() == answer(right, "right")
    os.utime(course.file(right), (1, 1))
    collect(course, out)
    assert out.read_bytes() == first


def test_nothing_to_collect_writes_nothing(course: Course, tmp_path: Path) -> None:
    with pytest.raises(BadUseError, match="no exercise"):
        collect(course, tmp_path / "mine.zip")
    with pytest.raises(BadUseError, match=r"--out mine\.doc\.zip"):
        collect(course, tmp_path / "mine.doc")
    assert not list(tmp_path.glob("mine*"))


def test_an_autograder_holds_the_secret_for_nobody_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    folder = tmp_path / "autograder"
    written = make_autograder(folder, ["--exercises", "scatter,gather"], secret)
    assert set(written) == files(folder)
    assert (folder / "course.secret").stat().st_mode & 0o077 == 0
    assert (folder / "autograder.zip").stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(folder / "autograder.zip") as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
    assert set(modes) == set(written) - {"autograder.zip"}
    assert {name for name, mode in modes.items() if mode & 0o111} == {"setup.sh", "run_autograder"}


def test_zips_do_not_depend_on_order() -> None:
    assert zipped({"b": b"1", "a": b"2"}) == zipped({"a": b"2", "b": b"1"})


def test_constraints_cover_what_the_package_needs() -> None:
    names = {line.partition("==")[0] for line in constraints().splitlines()}
    assert {"jax", "jaxlib", "numpy", "flax", "optax", "typer", "pytest"} <= names
    assert "ruff" not in names  # an extra's
