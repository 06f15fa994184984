"""A course folder: lessons, the learner's files, and what the course remembers beside them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jaxpar.course.catalog import EXERCISES, LESSONS, BadUseError, Exercise, Lesson
from jaxpar.course.command import command
from jaxpar.grading.files import write_atomically

PACKAGE = Path(str(files("jaxpar")))


@dataclass(frozen=True)
class Course:
    """One learner's folder."""

    root: Path

    def file(self, row: Exercise | Lesson) -> Path:
        """Where the file of a lesson or an exercise is."""
        return self.root / row.file

    @property
    def state(self) -> Path:
        """Where hints shown, predictions and backups are kept."""
        return self.root / ".jaxpar"

    @property
    def verdicts(self) -> Path:
        """Where verdicts are kept."""
        return self.state / "verdicts"


def exercise_of(path: Path) -> Exercise | None:
    """The exercise whose file this is, in whichever course folder."""
    name = "/".join(path.parts[-3:])
    return next((row for row in EXERCISES if row.file == name), None)


def find_course(start: Path) -> Course:
    """The course folder that `start` is in.

    Raises:
        BadUseError: no folder from `start` upwards has the exercises of a lesson.
    """
    for folder in (start, *start.parents):
        if any((folder / "exercises" / lesson.name).is_dir() for lesson in LESSONS):
            return Course(folder)
    raise BadUseError(
        f"jaxpar: no course in {start} or above it; go to your course folder, "
        f"or make one with `{command()} init FOLDER`"
    )


def make_course(folder: Path) -> tuple[list[str], list[str]]:
    """Puts lessons and stubs into `folder`; returns the files written, and those kept.

    A file that is there already is kept as it is.

    Raises:
        BadUseError: `folder` cannot be written, or the lessons are not at hand.
    """
    written: list[str] = []
    kept: list[str] = []
    for name, data in _course_files().items():
        path = folder / name
        if path.exists():
            kept.append(name)
            continue
        try:
            write_atomically(path, data)
        except OSError as error:
            raise BadUseError(f"init: cannot write {path} ({error.strerror})") from None
        written.append(name)
    return written, kept


def original(row: Exercise) -> bytes:
    """The stub of an exercise: derived, so that no answer saved anywhere can be taken for it."""
    from jaxpar.course.stubs import stub

    return stub(row).encode()


def _course_files() -> dict[str, bytes]:
    """Every file of a new course folder, by its name in it."""
    source = PACKAGE / "_course"
    if not source.is_dir():
        source = PACKAGE.parent
    conftest = "exercises/conftest.py"
    names = [conftest, *(lesson.file for lesson in LESSONS)]
    missing = [name for name in names if not (source / name).is_file()]
    if missing:
        raise BadUseError(
            f"init: this installation has no {missing[0]}; install the wheel, "
            "or a checkout of the repository"
        )
    stubs = {row.file: original(row) for row in EXERCISES}
    return {name: (source / name).read_bytes() for name in names} | stubs
