"""The verb by which an instructor grades a class, and what other verbs share with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.cli.base import BAD_USE, LEFT, WRONG, More, app, errors_as_bad_use, listed, warn
from jaxpar.course.catalog import EXERCISES, BadUseError, Exercise, exercise

if TYPE_CHECKING:
    from jaxpar.classroom.class_summary import ClassSummary
    from jaxpar.classroom.gradebook import Gradebook
    from jaxpar.classroom.grader import GradingSettings, RecordNotice
    from jaxpar.classroom.handins import Work
    from jaxpar.classroom.results import Results
    from jaxpar.classroom.roster import Roster
    from jaxpar.classroom.sandbox.levels import Sandbox

SECONDS_EACH = 3.0

Submissions = Annotated[
    Path,
    typer.Argument(
        help="A folder with a folder or zip file for each student, or a download of Canvas, "
        "Moodle or Gradescope; with --merge, folders of results."
    ),
]
Out = Annotated[
    Path, typer.Option("--out", help="Where results go; the same folder again resumes.")
]
Exercises = Annotated[
    list[str] | None, typer.Option("--exercises", metavar="ID...", help="Only these exercises.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Files judged at once; one per core unless given, if memory does."
    ),
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

    If it is killed or interrupted, the same command goes on from there.
    """
    if merge:
        if exercises:
            raise BadUseError("grade: --merge takes every exercise in its folders; --exercises not")
        with _errors_in_one_line(out):
            _merge([submissions, *(more or [])], out, roster)
        return
    rows = named(exercises, more)
    with _errors_in_one_line(out):
        from jaxpar.classroom.downloads import submissions_in
        from jaxpar.classroom.grader import Grader
        from jaxpar.classroom.jobs import jobs_at_once
        from jaxpar.classroom.roster import read_roster

        _check_results_apart(submissions, out)
        count = jobs_at_once(jobs)
        listed_students = read_roster(roster) if roster else None
        with submissions_in(submissions) as found:
            _tell_unused(found.unused)
            with _gradebook(out, listed_students) as gradebook:
                results, ids = gradebook.results, [row.id for row in rows]
                works = [*found.works, *_absent(listed_students, found.works, results)]
                names = [work.student for work in works]
                results.check_kept(names, ids)
                gradebook.marks.check_known([*names, *(r["student"] for r in results)], ids)
                secret, _ = read_secret(secret_file, results)
                sandboxes = _sandboxes(count, unsafe)
                _forecast(len(names), rows, count, sandboxes[0])
                asked = varied(rows, secret) if variants else rows
                settings = _settings(asked, secret, sandboxes, fresh, only_changed)
                progress = Progress(len(names) * len(rows))
                Grader(settings, results, progress.tell).grade(works)
                progress.end()
                _tell_others(results.others(names), out)


def _absent(roster: Roster | None, works: list[Work], results: Results) -> list[Work]:
    """Returns the empty hand-ins of those who are in the roster alone, and says who they are.

    Whoever has a verdict from an earlier run keeps it.
    """
    from jaxpar.classroom.handins import Work

    if roster is None:
        return []
    names = [work.student for work in works]
    _tell_roster(roster, names)
    judged = filter(results.has_verdict, results.others(names))
    return [Work(name, ()) for name in roster.absent([*names, *judged])]


def _merge(folders: list[str | Path], out: Path, roster: Path | None) -> None:
    """Merges the results of all folders into `out`, and writes all reports on them."""
    from jaxpar.classroom.merge import merge
    from jaxpar.classroom.roster import read_roster

    listed_students = read_roster(roster) if roster else None
    with _gradebook(out, listed_students) as gradebook:
        for line in merge([Path(folder) for folder in folders], gradebook.results.folder).lines():
            print(line)
        merged = list(gradebook.results)
        names = [result["student"] for result in merged]
        ids = dict.fromkeys(one["exercise"] for result in merged for one in result["exercises"])
        gradebook.marks.check_known(names, ids)
        if listed_students:
            _tell_roster(listed_students, names)


@contextmanager
def _gradebook(out: Path, roster: Roster | None) -> Iterator[Gradebook]:
    """Gives the gradebook of a locked folder of results; writes all reports at the end.

    Ends the command with 1 if this machine failed to judge something.
    """
    from jaxpar.classroom.gradebook import Gradebook
    from jaxpar.classroom.marks import read_marks
    from jaxpar.classroom.reports.write_all import write_all
    from jaxpar.classroom.results import EarlierResults, Results, locked

    results = Results(out)
    results.check_folder()
    with locked(out):
        gradebook = Gradebook(results, roster, EarlierResults(results), read_marks(out))
        gradebook.earlier.keep()
        yield gradebook
        summary = write_all(gradebook)
        _print_summary(summary, out)
        gradebook.earlier.forget()
    if summary.ungraded:
        raise typer.Exit(WRONG)


@contextmanager
def _errors_in_one_line(out: Path) -> Iterator[None]:
    """Turns an error that ends a run into one line and an exit code."""
    if isinstance(sys.stdout, TextIOWrapper):  # so that any name can be printed
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
    """Returns the exercises that --exercises and the words after it name, or all of them."""
    names = listed("--exercises", exercises, more)
    return list(dict.fromkeys(map(exercise, names))) or list(EXERCISES)


def varied(rows: list[Exercise], secret: bytes) -> list[Exercise]:
    """Returns the exercises in the variants that the course with this secret has."""
    from jaxpar.classroom.seeds import chosen_variants

    variants = chosen_variants(secret, {row.id: row.where for row in rows})
    return [replace(row, variant=variants[row.id]) for row in rows]


def _check_results_apart(submissions: Path, out: Path) -> None:
    """Raises ValueError if results are to go where they would be taken for a student's folder."""
    if out.resolve().is_relative_to(submissions.resolve()):
        raise ValueError(
            f"grade: {out} is in the folder of submissions, where it would be taken for a "
            "student's; use an --out beside it"
        )


def _tell_unused(names: list[str]) -> None:
    from jaxpar.classroom.untrusted_text import safe_line

    if names:
        print(f"Nobody's, and not looked at ({len(names)}): {safe_line(', '.join(names))}")


def _tell_roster(roster: Roster, names: list[str]) -> None:
    from jaxpar.classroom.untrusted_text import safe_line

    if roster.unused:
        print(f"Roster: nothing is done with {', '.join(roster.unused)}.")
    for words, some in (
        ("In the roster, without a folder", roster.absent(names)),
        ("Folders that are not in the roster", [n for n in names if roster.row_of(n) is None]),
    ):
        if some:
            print(f"{words} ({len(some)}): {safe_line(', '.join(some))}")


def _tell_others(others: list[str], out: Path) -> None:
    from jaxpar.classroom.untrusted_text import safe_line

    if others:
        names = safe_line(", ".join(others))
        print(f"Counted too ({len(others)}), from an earlier run, in {out / 'students'}: {names}")


def _print_summary(summary: ClassSummary, out: Path) -> None:
    from jaxpar.classroom.reports.write_all import CLASS_PAGE, FILES

    for line in summary.lines():
        print(line)
    print(f"In {out}: {FILES}. Begin with {out / CLASS_PAGE}.")


def _sandboxes(jobs: int, unsafe: bool) -> list[Sandbox]:
    from jaxpar.classroom.sandbox.levels import FIRST_USER, best_sandbox

    first = best_sandbox(unsafe=unsafe)
    users = [None if first.user is None else FIRST_USER + slot for slot in range(jobs)]
    return [replace(first, user=user) for user in users]


def read_secret(file: Path | None, results: Results | None = None) -> tuple[bytes, Path]:
    """Returns the secret of the course and its file, and warns if the secret is new.

    If there are results, it must be the secret with which they were judged.
    """
    from jaxpar.classroom import seeds

    path = file or seeds.default_secret_file()
    new = not path.exists()
    with errors_as_bad_use():
        secret = seeds.read_secret(path, must_exist=results is not None and results.judged)
        if results is not None:
            results.check_secret(partial(seeds.is_of_secret, secret), path)
    if new:
        warn(f"A new secret of the course is in {path}. Keep it: a re-grade needs the same.")
    return secret, path


def _settings(
    rows: list[Exercise], secret: bytes, sandboxes: list[Sandbox], fresh: bool, only_changed: bool
) -> GradingSettings:
    from jaxpar.classroom.grader import GradedExercise, GradingSettings

    return GradingSettings(
        tuple(GradedExercise(row.id, row.where, row.points) for row in rows),
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
    """Says how far grading is: on a terminal in one line, else now and then in a new one."""

    def __init__(self, total: int) -> None:
        """Begins with nothing done of `total` files."""
        self._total, self._done, self._known = total, 0, 0
        self._by_status: dict[str, int] = {}

    def tell(self, notice: RecordNotice) -> None:
        """Counts one more record."""
        status = notice.record["status"]
        self._done += 1
        self._known += notice.known and status != "not-submitted"
        self._by_status[status] = self._by_status.get(status, 0) + 1
        if sys.stdout.isatty():
            print(f"\r{self._done} of {self._total} ", end="", flush=True)
        elif self._done % 100 == 0 or self._done == self._total:
            print(f"{self._done} of {self._total}", flush=True)

    def end(self) -> None:
        """Says how many records there are of each status."""
        if sys.stdout.isatty():
            print()
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self._by_status.items()))
        print(f"{counts}; {self._known} known from before.")
