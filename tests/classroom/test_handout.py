"""What a class starts from, and what it is graded with elsewhere."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from jaxpar.classroom.handout.gradescope_autograder import make_autograder
from jaxpar.classroom.handout.pinned_versions import constraints
from jaxpar.classroom.handout.student_repository import make_student_repository
from jaxpar.classroom.handout.wheel import PACKAGE, wheel, zipped
from jaxpar.course.catalog import LESSONS
from jaxpar.course.check import Verdicts
from jaxpar.course.folder import Course, fixed_files, stub_files
from jaxpar.course.progress import progress
from tests.course.fakes import stub_of

GIVEN = LESSONS[1:3]
ASKED = [row for lesson in GIVEN for row in lesson.asks]
COURSE = fixed_files(GIVEN) | stub_files(ASKED)
LINES = [", ".join(f"`{row.id}`" for row in lesson.asks) for lesson in GIVEN]


@pytest.fixture(scope="module")
def handout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class") / "handout"
    make_student_repository(folder, LINES, GIVEN[0].number, COURSE, fixed_files())
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
        "constraints.txt", "exercises/conftest.py", "requirements.txt", f"wheels/{wheel({})[0]}",
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
        with pytest.raises(ValueError, match="nothing in it is overwritten"):
            make_student_repository(folder, LINES, "02", COURSE, {})
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
    assert (tmp_path / "jaxpar/classroom/handout/templates/gitignore").is_file()
    assert (tmp_path / "jaxpar/classroom/reports/templates/class.html").is_file()
    assert (tmp_path / "jaxpar/_course" / LESSONS[0].file).is_file()
    assert not list((tmp_path / "jaxpar/_course").glob("exercises/*/*"))
    assert (tmp_path / "bin" / "jaxpar").is_file()


def test_an_autograder_holds_the_secret_for_nobody_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    folder = tmp_path / "autograder"
    written = make_autograder(folder, ["--exercises", "scatter,gather"], secret, fixed_files())
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
    assert "ruff" not in names  # only an extra needs it
