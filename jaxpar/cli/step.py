"""The verb that draws a function step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.cli.base import WRONG, app, console, errors_as_bad_use, write_text
from jaxpar.cli.learn import Id, course_here
from jaxpar.course.catalog import BadUseError, Exercise

if TYPE_CHECKING:
    from jaxpar.contracts.base import Contract
    from jaxpar.course.folder import Course

File = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Take the function from this file.")
]
Solution = Annotated[
    bool, typer.Option("--solution", help="Draw the library's own, once yours passes.")
]
Devices = Annotated[int, typer.Option(min=2, max=8, metavar="N", help="The number of devices.")]
ToSvg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw it in an SVG file, too.")
]


@app.command("step")
def draw_steps(
    id: Id,
    file: File = None,
    solution: Solution = False,
    devices: Devices = 4,
    svg: ToSvg = None,
) -> None:
    """Draws your function collective by collective: whose parts each device sends and receives.

    A letter is what one device gave: "abc" is a sum of three of them, and "ab2" has b twice. This
    is for the exercises that only move arrays between devices and add them. Nothing is judged.
    """
    from jaxpar.contracts.base import load
    from jaxpar.course.answer_run import LearnerError
    from jaxpar.course.answer_steps import step_through
    from jaxpar.drawing.elements import printable
    from jaxpar.grading.submission import SubmissionError, read_submission

    if file and solution:
        raise BadUseError("step: both --file and --solution; give one of them")
    course = course_here()
    row = course.exercise(id)
    contract = load(row.where)
    try:
        if solution:
            _allow(course, row, contract)
        submission = None if solution else read_submission(file or course.file(row))
        with errors_as_bad_use():
            picture, sentence = step_through(contract, submission, devices)
            if svg:
                write_text("step", svg, picture.to_svg())
    except SubmissionError as error:
        raise BadUseError(f"step: {error}") from None
    except LearnerError as error:
        print(error)
        raise typer.Exit(WRONG) from None
    print(printable(f"{picture.to_text(console().width)}\n\n{sentence}", sys.stdout.encoding))


def _allow(course: Course, row: Exercise, contract: Contract) -> None:
    """Lets the library's own be drawn where `jaxpar solution` shows it."""
    from jaxpar.course.check import Verdicts
    from jaxpar.course.command import command
    from jaxpar.course.learner_record import LearnerRecord
    from jaxpar.course.progress import status

    passes = status(course, Verdicts(course.verdicts), row) == "pass"
    if not passes and not LearnerRecord(course.state).seen(contract.id):
        raise BadUseError(
            f"step: --solution draws what `{command()} solution {row.id}` has shown, or shows once "
            "yours passes; make it pass first"
        )
