"""The verbs around a class: what students get, what they hand in, where others grade it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import AsJson, More, app, errors_as_bad_use, listed, show
from jaxpar.cli.grade import Exercises, SecretFile, Variants, named, read_secret, varied
from jaxpar.course.catalog import LESSONS, BadUseError, Lesson, lesson

classroom = typer.Typer(
    help="For a class: the students' repository, what they hand in, Gradescope.",
    rich_markup_mode=None,
)
app.add_typer(classroom, name="classroom")

NewFolder = Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")]
Lessons = Annotated[
    list[str] | None, typer.Option("--lessons", metavar="NUMBER...", help="Only these lessons.")
]


@classroom.command("handout")
def handout(
    out: NewFolder,
    more: More = None,
    lessons: Lessons = None,
    variants: Variants = False,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Makes the repository that students start from."""
    from jaxpar.classroom.handout.student_repository import make_student_repository
    from jaxpar.course.folder import fixed_files, stub_files
    from jaxpar.course.variants import variants_file

    wanted = {lesson(name) for name in listed("--lessons", lessons, more)}
    rows = [row for row in LESSONS if not wanted or row in wanted]
    exercises = [exercise for row in rows for exercise in row.asks]
    if variants:
        exercises = varied(exercises, read_secret(secret_file)[0])
    course = fixed_files(rows) | stub_files(exercises) | variants_file(exercises)
    readme_lines = map(_readme_line, rows)
    with errors_as_bad_use():
        written = make_student_repository(out, readme_lines, rows[0].number, course, fixed_files())
    lines = [
        f"{out}: {len(written)} files. It holds the stubs, and jaxpar as it is installed here.",
        f"Next: try {out / 'README.md'} in a new environment, then publish the folder:",
        f"  cd {out} && git init && git add . && git commit -m 'Begin the course'",
    ]
    show(as_json, {"folder": str(out), "written": written}, lines)


def _readme_line(row: Lesson) -> str:
    asks = ", ".join(f"`{exercise.id}`" for exercise in row.asks)
    return f"- {row.number} [{row.title}]({row.file}): {asks}"


@classroom.command("collect")
def collect_answers(
    folder: Annotated[
        Path, typer.Argument(help="The course folder; the current one unless given.")
    ] = Path("."),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.zip", help="Where the zip file goes.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Zips a student's exercise files to hand in, and nothing else."""
    from jaxpar.course.collect import HANDIN, collect
    from jaxpar.course.folder import find_course

    if not folder.is_dir():
        raise BadUseError(f"collect: there is no folder {folder}; name your course folder")
    course = find_course(folder.resolve())
    collected = collect(course, out or course.root / HANDIN)
    show(as_json, collected.to_dict(), collected.lines())


@classroom.command("gradescope")
def gradescope(
    out: NewFolder,
    more: More = None,
    exercises: Exercises = None,
    variants: Variants = False,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Makes the autograder of a Gradescope assignment, ready to upload."""
    from jaxpar.classroom.handout.gradescope_autograder import ARCHIVE, make_autograder
    from jaxpar.course.folder import fixed_files

    rows = named(exercises, more)
    options = ["--exercises", ",".join(row.id for row in rows), *["--variants"][:variants]]
    with errors_as_bad_use():
        written = make_autograder(out, options, read_secret(secret_file)[1], fixed_files())
    lines = [
        f"{out}: {len(written)} files; {len(rows)} exercises, {sum(row.points for row in rows)} "
        "points.",
        f"Next: upload {out / ARCHIVE} to the assignment (Configure Autograder). It holds the "
        "secret of the course.",
    ]
    show(as_json, {"folder": str(out), "written": written}, lines)
