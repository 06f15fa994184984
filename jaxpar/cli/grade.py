"""The verbs of an instructor: they grade a class."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.cli.base import BAD_USE, LEFT, app, warn
from jaxpar.course.catalog import EXERCISES, BadUseError, Exercise, exercise

if TYPE_CHECKING:
    from jaxpar.grading.classroom.grader import Course, Graded
    from jaxpar.grading.sandbox.ladder import Sandbox

SECONDS_EACH = 3.0

Submissions = Annotated[Path, typer.Argument(help="A folder with one folder per student.")]
Out = Annotated[Path, typer.Option("--out", help="Where results go; the same again resumes.")]
Exercises = Annotated[
    list[str] | None, typer.Option("--exercises", metavar="ID...", help="Only these.")
]
More = Annotated[list[str] | None, typer.Argument(hidden=True)]  # --exercises a b c: b and c
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Files judged at once; one per core unless said.")
]
SecretFile = Annotated[
    Path | None, typer.Option(help="The secret that seeds are made of; made if there is none.")
]
OnlyChanged = Annotated[
    bool, typer.Option("--only-changed", help="Unchanged files keep their verdict in any case.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Run every file again; list verdicts that moved.")
]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Grade without isolation, where there is none.")
]


@app.command("grade")
def grade_class(
    submissions: Submissions,
    out: Out,
    more: More = None,
    exercises: Exercises = None,
    jobs: Jobs = None,
    secret_file: SecretFile = None,
    only_changed: OnlyChanged = False,
    fresh: Fresh = False,
    unsafe: Unsafe = False,
) -> None:
    """Grades a class: every student's folder, each file in a sandbox.

    Killed or interrupted, the same command again goes on where it stopped.
    """
    from jaxpar.grading.classroom.grader import Grader
    from jaxpar.grading.classroom.handin import students
    from jaxpar.grading.classroom.lock import locked
    from jaxpar.grading.classroom.results import Results

    rows = _rows(exercises or [], more or [])
    count = jobs or os.cpu_count() or 1
    try:
        names = students(submissions)
        with locked(out):
            sandboxes = _sandboxes(count, unsafe)
            _forecast(len(names), rows, count, sandboxes[0])
            course = _course(rows, secret_file, sandboxes, fresh, only_changed)
            screen = Progress(len(names) * len(rows))
            Grader(course, Results(out), screen.tell).grade(submissions / n for n in names)
            screen.end(out)
    except OSError as error:
        reason = error.strerror or str(error)
        warn(f"grade: {out} cannot be written: {reason}; make room, and run the same command again")
        raise typer.Exit(BAD_USE) from None
    except KeyboardInterrupt:
        warn(f"Stopped. The same command goes on where this one was; results are in {out}.")
        raise typer.Exit(LEFT) from None
    except ValueError as error:
        raise BadUseError(str(error)) from None


def _rows(exercises: list[str], more: list[str]) -> list[Exercise]:
    if more and not exercises:
        raise BadUseError(f"grade: {more[0]!r} beside the folder of submissions; give one folder")
    names = [name for words in (*exercises, *more) for name in words.split(",") if name]
    return [exercise(name) for name in dict.fromkeys(names)] or list(EXERCISES)


def _sandboxes(jobs: int, unsafe: bool) -> list[Sandbox]:
    from dataclasses import replace

    from jaxpar.grading.sandbox.ladder import FIRST_USER, choose

    first = choose(unsafe=unsafe)
    users = [None if first.user is None else FIRST_USER + slot for slot in range(jobs)]
    return [replace(first, user=user) for user in users]


def _course(
    rows: list[Exercise],
    secret_file: Path | None,
    sandboxes: list[Sandbox],
    fresh: bool,
    only_changed: bool,
) -> Course:
    from jaxpar.grading.classroom import seeds
    from jaxpar.grading.classroom.grader import Assignment, Course

    path = secret_file or seeds.default_secret_file()
    new = not path.exists()
    secret = seeds.read_secret(path)
    if new:
        print(f"A new secret of the course is in {path}. Keep it: a re-grade needs the same.")
    return Course(
        tuple(Assignment(row.id, row.where, row.points) for row in rows),
        secret,
        sandboxes[0].level,
        tuple(sandbox.start for sandbox in sandboxes),
        fresh,
        only_changed,
    )


def _forecast(students: int, rows: list[Exercise], jobs: int, sandbox: Sandbox) -> None:
    files = students * len(rows)
    minutes = files * SECONDS_EACH / jobs / 60
    print(
        f"{students} students, {len(rows)} exercises: at most {files} files, {jobs} at once; "
        f"about {minutes:.0f} minutes if all are there and none was graded before."
    )
    print(f"Isolation: {sandbox.name}.")
    for reason in sandbox.why_not.values():
        print(f"  not a better one: {reason}")
    sys.stdout.flush()


class Progress:
    """Says how far it is: on a terminal in one line, else now and then in a new one."""

    def __init__(self, total: int) -> None:
        """Nothing is done yet of `total` files."""
        self._total, self._done, self._known = total, 0, 0
        self._moved: list[str] = []
        self._by_status: dict[str, int] = {}

    def tell(self, graded: Graded) -> None:
        """One more record."""
        made = graded.record
        self._done += 1
        self._known += graded.known and made["status"] != "not-submitted"
        self._by_status[made["status"]] = self._by_status.get(made["status"], 0) + 1
        if graded.moved:
            self._moved.append(f"{graded.student}: {made['exercise']}: now {made['status']}")
        if sys.stdout.isatty():
            print(f"\r{self._done} of {self._total} ", end="", flush=True)
        elif self._done % 100 == 0 or self._done == self._total:
            print(f"{self._done} of {self._total}", flush=True)

    def end(self, out: Path) -> None:
        """What came of it."""
        if sys.stdout.isatty():
            print()
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self._by_status.items()))
        print(f"{counts}; {self._known} known from before. Results: {out}")
        for line in self._moved:
            print(f"  moved: {line}")
