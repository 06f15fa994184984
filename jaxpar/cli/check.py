"""The verb that judges: one exercise, or every file that the learner has written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import WRONG, AsJson, app, print_json, print_lines, warn
from jaxpar.cli.learn import IdOrNone, course_here, exercise_named
from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.check import Verdicts, check, check_all, open_judge
from jaxpar.course.command import command
from jaxpar.course.learner_record import LearnerRecord


@app.command("check")
def check_exercise(
    id: IdOrNone = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Judge this file instead of your own.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Judge every file in which something is written.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, help="Draw the inputs from this seed, as an earlier verdict did."
        ),
    ] = None,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout", min=1, metavar="SECONDS", help="How long the answer may take; usually 30."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judges one exercise, or all.

    What has not changed since it was judged is not judged again.
    """
    if every:
        if id or file or seed is not None:
            raise BadUseError("check: --all beside an exercise, --file or --seed; use one of them")
        raise typer.Exit(_check_all(timeout, as_json))
    row = exercise_named(id)
    if file:
        _refuse_unreadable(file)
    raise typer.Exit(0 if _check_one(row, file, seed, timeout, as_json) else WRONG)


def _check_one(
    row: Exercise, file: Path | None, seed: int | None, timeout: int | None, as_json: bool
) -> bool:
    """Judges one file, prints the verdict, and returns whether it is a pass."""
    from jaxpar.grading.terminal_writer import render
    from jaxpar.grading.writers import plain_lines, to_json

    with open_judge(timeout) as judge:
        if file:
            before = best = None
            verdict = check(row, file, judge, None, seed)
        else:
            course = course_here()
            remembered, record = Verdicts(course.verdicts), LearnerRecord(course.state)
            record.remember_place(row.id)
            again, before = timeout is not None, record.best(row.id)
            verdict = check(row, course.file(row), judge, remembered, seed, again=again)
            warn(record.remember_best(verdict) if seed is None else "")
            best = record.best(row.id)
    if as_json:
        print_json(to_json(verdict, best))
    else:
        print_lines(plain_lines(verdict, best=before), render(verdict, best=before))
        print(f"\nNext, type: {command()} {'next' if verdict.passed else f'hint {row.id}'}")
    return verdict.passed


def _check_all(timeout: int | None, as_json: bool) -> int:
    """Judges every file in which something is written; prints a line for each, and a summary."""
    from jaxpar.grading.writers import to_json

    course = course_here()
    record, found = LearnerRecord(course.state), []
    with open_judge(timeout) as judge:
        for row, verdict in check_all(course, judge, Verdicts(course.verdicts)):
            warn(record.remember_best(verdict))
            found.append(verdict)
            if not as_json:
                print(f"{verdict.status:<14} {verdict.score:>2}/{verdict.max_score:<2}  {row.id}")
    points = sum(verdict.score for verdict in found)
    most = sum(row.points for row in course.exercises)
    passed = sum(verdict.passed for verdict in found)
    if as_json:
        verdicts = [to_json(verdict, record.best(verdict.exercise)) for verdict in found]
        print_json({"verdicts": verdicts, "score": points, "max_score": most})
    else:
        to_do = len(course.exercises) - len(found)
        wrong = len(found) - passed
        print(f"{passed} pass, {wrong} fail, {to_do} to do: {points} of {most} points")
    return 0 if passed == len(found) else WRONG


def _refuse_unreadable(file: Path) -> None:
    """Refuses what is no file of text: it is bad use, and not a wrong answer."""
    from jaxpar.grading.submission import SubmissionError, read_submission

    try:
        read_submission(file)
    except SubmissionError as error:
        reason = str(error).replace("; restore it with reset", "")
        raise BadUseError(f"check: {reason}; give a file that holds an answer") from None
