"""The verb that compares what was handed in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import More
from jaxpar.cli.classroom import classroom
from jaxpar.cli.grade import Exercises, SecretFile, Unsafe, Variants, named, read_secret
from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.variants import chosen

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
    from jaxpar.grading.classroom.escape import line
    from jaxpar.grading.classroom.lock import locked
    from jaxpar.grading.classroom.results import Results
    from jaxpar.grading.classroom.similarity import alike, groups
    from jaxpar.grading.classroom.similarity_page import PAGE, TABLE, write
    from jaxpar.grading.sandbox.ladder import choose

    if not (results / "students").is_dir():
        raise BadUseError(
            f"similarity: {results} holds no results; name a folder that `jaxpar grade --out` wrote"
        )
    rows = named(exercises, more)
    if variants:
        rows = chosen(rows, read_secret(secret_file)[0])
    try:
        texts = {row.id: _texts(row) for row in rows}
        with locked(results):
            found = alike(groups(Results(results), texts), choose(unsafe=unsafe).start)
            write(found, results, results.resolve().name)
    except (OSError, ValueError) as error:
        raise BadUseError(str(error)) from None
    for (one, other), pairs in found.together()[:MOST_TOLD]:
        count = f"{len(pairs)} exercise{'s' * (len(pairs) != 1)}"
        print(f"{line(one)} and {line(other)}: alike in {count}")
    print(f"Pairs of answers that are alike: {len(found.pairs)}.")
    print(f"In {results}: {TABLE} and {PAGE}. Begin with {results / PAGE}.")


def _texts(row: Exercise) -> tuple[str, str]:
    """What everybody was given, and our own answer: of a variant, the library's, too."""
    from jaxpar.contracts.base import load
    from jaxpar.course.solution import solution
    from jaxpar.course.stubs import stub

    contracts = dict.fromkeys((row.where, replace(row, variant=0).where))
    return stub(row), "\n\n".join(solution(load(where))[0] for where in contracts)
