"""The verb that finds answers of a class that are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import More, need_linux
from jaxpar.cli.classroom import classroom
from jaxpar.cli.grade import Exercises, SecretFile, Unsafe, Variants, named, read_secret, varied
from jaxpar.course.catalog import BadUseError, Exercise

MOST_TOLD = 10


@classroom.command("similarity")
def similarity(
    results: Annotated[Path, typer.Argument(help="The folder that `jaxpar grade --out` wrote.")],
    more: More = None,
    exercises: Exercises = None,
    variants: Variants = False,
    secret_file: SecretFile = None,
    unsafe: Unsafe = False,
) -> None:
    """Finds answers that are alike: a report for a person, never points."""
    need_linux("similarity")
    from jaxpar.classroom.reports.similarity_report import PAGE, TABLE, write_similarity_report
    from jaxpar.classroom.results import Results, locked
    from jaxpar.classroom.sandbox.levels import best_sandbox
    from jaxpar.classroom.similarity import answers_by_exercise, find_alike
    from jaxpar.classroom.untrusted_text import safe_line

    if not (results / "students").is_dir():
        raise BadUseError(
            f"similarity: {results} holds no results; name a folder that `jaxpar grade --out` wrote"
        )
    rows = named(exercises, more)
    if variants:
        rows = varied(rows, read_secret(secret_file, Results(results))[0])
    try:
        texts = {row.id: _texts(row) for row in rows}
        with locked(results):
            answers = answers_by_exercise(Results(results), texts)
            found = find_alike(answers, best_sandbox(unsafe=unsafe).start)
            write_similarity_report(found, results, results.resolve().name)
    except (OSError, ValueError) as error:
        raise BadUseError(str(error)) from None
    for (one, other), pairs in found.by_students()[:MOST_TOLD]:
        count = f"{len(pairs)} exercise{'s' * (len(pairs) != 1)}"
        print(f"{safe_line(one)} and {safe_line(other)}: alike in {count}")
    for exercise, students in found.canonical.items():
        print(f"{exercise}: the library's own form, in no pair: {len(students)} of the answers")
    print(f"Pairs of answers that are alike: {len(found.pairs)}.")
    print(f"In {results}: {TABLE} and {PAGE}. Begin with {results / PAGE}.")


def _texts(row: Exercise) -> tuple[str, str]:
    """Returns what everybody was given, and our own answers to a variant and to its original."""
    from jaxpar.contracts.base import load
    from jaxpar.course.solution import solution
    from jaxpar.course.stubs import stub

    contracts = dict.fromkeys((row.where, replace(row, variant=0).where))
    return stub(row), "\n\n".join(solution(load(where))[0] for where in contracts)
