"""A course folder: lessons, the learner's files, and what the course remembers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from jaxpar.course.catalog import EXERCISES, LESSONS, BadUseError, Exercise, Lesson, exercise
from jaxpar.course.command import command
from jaxpar.course.variants import read_variants
from jaxpar.files import write_atomically

PACKAGE = Path(str(files("jaxpar")))


@dataclass(frozen=True)
class Course:
    """One learner's course folder."""

    root: Path

    def file(self, row: Exercise | Lesson) -> Path:
        """Where the file of a lesson or an exercise is."""
        return self.root / row.file

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """The lessons whose exercises are here: a class may have been given only some."""
        return tuple(row for row in LESSONS if (self.root / "exercises" / row.name).is_dir())

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """The exercises of these lessons, in the variants that this course has."""
        variants = read_variants(self.root)
        rows = (row for lesson in self.lessons for row in lesson.asks)
        return tuple(replace(row, variant=variants.get(row.id, 0)) for row in rows)

    def exercise(self, id: str) -> Exercise:
        """The exercise with this id, as this course has it.

        Raises:
            BadUseError: there is none.
        """
        row = exercise(id)
        return replace(row, variant=read_variants(self.root).get(row.id, 0))

    @property
    def state(self) -> Path:
        """Where hints shown, predictions and backups are kept."""
        return self.root / ".jaxpar"

    @property
    def verdicts(self) -> Path:
        """Where verdicts are kept."""
        return self.state / "verdicts"


def exercise_of(path: Path) -> Exercise | None:
    """Returns the exercise whose file this is, in any course folder; None for other files."""
    name = "/".join(path.parts[-3:])
    id = next((row.id for row in EXERCISES if row.file == name), None)
    return Course(path.parents[2]).exercise(id) if id else None


def course_around(start: Path) -> Course | None:
    """The course folder that `start` is in, if it is in one."""
    courses = map(Course, (start, *start.parents))
    return next((course for course in courses if course.lessons), None)


def find_course(start: Path) -> Course:
    """The course folder that `start` is in.

    Raises:
        BadUseError: no folder from `start` upwards has the exercises of a lesson.
    """
    course = course_around(start)
    if course:
        return course
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
    return write_files(folder, fixed_files() | stub_files())


def write_files(folder: Path, files: dict[str, bytes]) -> tuple[list[str], list[str]]:
    """Writes files by their names in `folder`; returns those written, and those kept.

    Raises:
        BadUseError: `folder` cannot be written.
    """
    written: list[str] = []
    kept: list[str] = []
    for name, data in files.items():
        path = folder / name
        if path.exists():
            kept.append(name)
            continue
        try:
            write_atomically(path, data, public=True)
        except OSError as error:
            raise BadUseError(f"init: cannot write {path} ({error.strerror})") from None
        written.append(name)
    return written, kept


def original(row: Exercise) -> bytes:
    """Returns the stub of an exercise; it is derived, so that no saved answer is taken for it."""
    from jaxpar.course.stubs import stub

    return stub(row).encode()


def stub_files(rows: Sequence[Exercise] = EXERCISES) -> dict[str, bytes]:
    """The stubs that learners start from, by their names in the course folder."""
    return {row.file: original(row) for row in rows}


def fixed_files(lessons: Sequence[Lesson] = LESSONS) -> dict[str, bytes]:
    """The files that are the same in every new course folder, by their names there.

    Raises:
        BadUseError: this installation lacks one of them.
    """
    source = PACKAGE / "_course"
    if not source.is_dir():
        source = PACKAGE.parent
    names = ["exercises/conftest.py", *(lesson.file for lesson in lessons)]
    missing = [name for name in names if not (source / name).is_file()]
    if missing:
        raise BadUseError(
            f"init: this installation has no {missing[0]}; install the wheel, "
            "or a checkout of the repository"
        )
    return {name: (source / name).read_bytes() for name in names}
