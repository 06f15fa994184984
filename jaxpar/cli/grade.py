"""The verbs of an instructor: they grade a class."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.cli.base import BAD_USE, LEFT, More, app, listed, warn
from jaxpar.course.catalog import EXERCISES, BadUseError, Exercise, exercise
from jaxpar.course.variants import chosen

if TYPE_CHECKING:
    from jaxpar.grading.classroom.entries import Entries
    from jaxpar.grading.classroom.grader import Course, Graded
    from jaxpar.grading.classroom.roster import Roster
    from jaxpar.grading.classroom.tally import Tally
    from jaxpar.grading.sandbox.ladder import Sandbox

SECONDS_EACH = 3.0

Submissions = Annotated[
    Path,
    typer.Argument(
        help="A folder with a folder for each student; with --merge, folders of results."
    ),
]
Out = Annotated[
    Path, typer.Option("--out", help="Where results go; the same folder again resumes.")
]
Exercises = Annotated[
    list[str] | None, typer.Option("--exercises", metavar="ID...", help="Only these exercises.")
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Files judged at once; one per core unless given.")
]
RosterFile = Annotated[
    Path | None,
    typer.Option(
        "--roster",
        metavar="CSV",
        help="Who is in the class: student (the folder), name, id, email, section, late_days.",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(help="The secret that seeds are made of; it is made where there is none."),
]
OnlyChanged = Annotated[
    bool, typer.Option("--only-changed", help="Let unchanged files keep their verdict in any case.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Run every file again, and list verdicts that moved.")
]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Grade without isolation, where there is none.")
]
Variants = Annotated[
    bool, typer.Option("--variants", help="Take the exercises as the secret varies them.")
]
Merge = Annotated[
    bool, typer.Option("--merge", help="Grade nothing, and make several folders of results one.")
]


@app.command("grade")
def grade_class(
    submissions: Submissions,
    out: Out,
    more: More = None,
    exercises: Exercises = None,
    jobs: Jobs = None,
    roster: RosterFile = None,
    secret_file: SecretFile = None,
    only_changed: OnlyChanged = False,
    fresh: Fresh = False,
    unsafe: Unsafe = False,
    variants: Variants = False,
    merge: Merge = False,
) -> None:
    """Grades a class of untrusted files, each in a sandbox.

    After it was killed or interrupted, the same command goes on where it stopped.
    """
    if merge:
        if exercises:
            raise BadUseError("grade: --merge takes every exercise in its folders; --exercises not")
        with _said(out):
            _merge([submissions, *(more or [])], out, roster)
        return
    rows = named(exercises, more)
    count = jobs or os.cpu_count() or 1
    with _said(out):
        from jaxpar.grading.classroom.grader import Grader
        from jaxpar.grading.classroom.handin import check_apart, students
        from jaxpar.grading.classroom.roster import read_roster

        check_apart(submissions, out)
        names = students(submissions)
        people = read_roster(roster) if roster else None
        if people:
            _tell_roster(people, names)
            names = sorted([*names, *people.absent(names)])
        with _results(out, people) as entries:
            entries.results.check_kept(names, [row.id for row in rows])
            sandboxes = _sandboxes(count, unsafe)
            _forecast(len(names), rows, count, sandboxes[0])
            secret, _ = read_secret(secret_file)
            course = _course(
                chosen(rows, secret) if variants else rows, secret, sandboxes, fresh, only_changed
            )
            screen = Progress(len(names) * len(rows))
            Grader(course, entries.results, screen.tell).grade(submissions / n for n in names)
            screen.end()
            _tell_others(entries.results.others(names), out)


def _merge(folders: list[str | Path], out: Path, roster: Path | None) -> None:
    """Every folder's results become those in `out`; then all is written as after grading."""
    from jaxpar.grading.classroom.merge import merge
    from jaxpar.grading.classroom.roster import read_roster

    people = read_roster(roster) if roster else None
    with _results(out, people) as entries:
        for line in merge([Path(folder) for folder in folders], entries.results.folder).lines():
            print(line)
        if people:
            _tell_roster(people, [result["student"] for result in entries.results])


@contextmanager
def _results(out: Path, people: Roster | None) -> Iterator[Entries]:
    """The folder of results, locked; what is written of it is written at the end."""
    from jaxpar.grading.classroom.before import Before
    from jaxpar.grading.classroom.entries import Entries
    from jaxpar.grading.classroom.lock import locked
    from jaxpar.grading.classroom.results import Results
    from jaxpar.grading.classroom.writing import write_all

    with locked(out):
        entries = Entries(Results(out), people, Before(out))
        entries.before.keep()
        yield entries
        _summary(write_all(entries), out)
        entries.before.forget()


@contextmanager
def _said(out: Path) -> Iterator[None]:
    """What ends a run becomes one line and an exit code."""
    if isinstance(sys.stdout, TextIOWrapper):  # no name of a student's ends a run
        sys.stdout.reconfigure(errors="replace")
    try:
        yield
    except BrokenPipeError:
        warn(f"Stopped: nobody reads what is printed. Results are in {out}.")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - Python flushes it when it ends
        raise typer.Exit(LEFT) from None
    except OSError as error:
        reason = error.strerror or str(error)
        warn(f"grade: {out} cannot be written: {reason}; make room, and run the same command again")
        raise typer.Exit(BAD_USE) from None
    except KeyboardInterrupt:
        warn(f"Stopped. The same command goes on where this one was; results are in {out}.")
        raise typer.Exit(LEFT) from None
    except ValueError as error:
        raise BadUseError(str(error)) from None


def named(exercises: list[str] | None, more: list[str] | None) -> list[Exercise]:
    """The exercises that --exercises and the words after it name; all if there are none."""
    names = listed("--exercises", exercises, more)
    return list(dict.fromkeys(map(exercise, names))) or list(EXERCISES)


def _tell_roster(roster: Roster, names: list[str]) -> None:
    from jaxpar.grading.classroom.escape import line

    if roster.unused:
        print(f"Roster: nothing is done with {', '.join(roster.unused)}.")
    for words, some in (
        ("In the roster, without a folder", roster.absent(names)),
        ("Folders that are not in the roster", [n for n in names if roster.person(n) is None]),
    ):
        if some:
            print(f"{words} ({len(some)}): {line(', '.join(some))}")


def _tell_others(others: list[str], out: Path) -> None:
    from jaxpar.grading.classroom.escape import line

    if others:
        names = line(", ".join(others))
        print(f"Counted too ({len(others)}), from an earlier run, in {out / 'students'}: {names}")


def _summary(tally: Tally, out: Path) -> None:
    from jaxpar.grading.classroom.writing import FILES, PAGE

    for words in tally.lines():
        print(words)
    print(f"In {out}: {FILES}. Begin with {out / PAGE}.")


def _sandboxes(jobs: int, unsafe: bool) -> list[Sandbox]:
    from dataclasses import replace

    from jaxpar.grading.sandbox.ladder import FIRST_USER, choose

    first = choose(unsafe=unsafe)
    users = [None if first.user is None else FIRST_USER + slot for slot in range(jobs)]
    return [replace(first, user=user) for user in users]


def read_secret(file: Path | None) -> tuple[bytes, Path]:
    """The secret of the course, and where it is; a new one is told."""
    from jaxpar.grading.classroom import seeds

    path = file or seeds.default_secret_file()
    new = not path.exists()
    try:
        secret = seeds.read_secret(path)
    except ValueError as error:
        raise BadUseError(str(error)) from None
    if new:
        warn(f"A new secret of the course is in {path}. Keep it: a re-grade needs the same.")
    return secret, path


def _course(
    rows: list[Exercise],
    secret: bytes,
    sandboxes: list[Sandbox],
    fresh: bool,
    only_changed: bool,
) -> Course:
    from jaxpar.grading.classroom.grader import Assignment, Course

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
    minutes = max(1, round(files * SECONDS_EACH / jobs / 60))
    print(
        f"{_many(students, 'student')}, {_many(len(rows), 'exercise')}: at most "
        f"{_many(files, 'file')}, {jobs} at once; about {_many(minutes, 'minute')} if all are "
        "there and none was graded before."
    )
    print(f"Isolation: {sandbox.name}.")
    for reason in sandbox.why_not.values():
        print(f"  not a better one: {reason}")
    sys.stdout.flush()


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


class Progress:
    """Says how far it is: on a terminal in one line, else now and then in a new one."""

    def __init__(self, total: int) -> None:
        """Nothing is done yet of `total` files."""
        self._total, self._done, self._known = total, 0, 0
        self._by_status: dict[str, int] = {}

    def tell(self, graded: Graded) -> None:
        """One more record."""
        made = graded.record
        self._done += 1
        self._known += graded.known and made["status"] != "not-submitted"
        self._by_status[made["status"]] = self._by_status.get(made["status"], 0) + 1
        if sys.stdout.isatty():
            print(f"\r{self._done} of {self._total} ", end="", flush=True)
        elif self._done % 100 == 0 or self._done == self._total:
            print(f"{self._done} of {self._total}", flush=True)

    def end(self) -> None:
        """What came of it."""
        if sys.stdout.isatty():
            print()
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self._by_status.items()))
        print(f"{counts}; {self._known} known from before.")
