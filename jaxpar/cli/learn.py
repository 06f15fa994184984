"""The verbs of a learner: exercises, lessons, hints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from jaxpar import __version__
from jaxpar.cli.base import (
    LEFT,
    WRONG,
    AsJson,
    app,
    console,
    need_linux,
    print_json,
    print_lines,
    show,
    warn,
)
from jaxpar.course.catalog import BadUseError, Exercise, exercise, lesson
from jaxpar.course.check import Verdicts
from jaxpar.course.command import command
from jaxpar.course.folder import Course, course_around, find_course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.progress import Standing, at_hand, next_row, progress, status

NAMED = "The exercise, as `jaxpar list` names it"
Id = Annotated[str, typer.Argument(metavar="ID", help=f"{NAMED}.")]
IdOrNone = Annotated[
    str | None, typer.Argument(metavar="ID", help=f"{NAMED}; without it, the exercise at hand.")
]


@app.callback(invoke_without_command=True)
def learn(
    context: typer.Context,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines and never redraw the screen.")
    ] = False,
    manual: Annotated[
        bool, typer.Option("--manual", help="Judge a file when you press Enter, not when you save.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A course on training models too large for one device, in JAX.

    Without a command it shows the exercise at hand, and judges it whenever you save its file.
    """
    if version:
        print(f"jaxpar {__version__}")
    if context.invoked_subcommand == "grade":
        need_linux("grade")
    if version or context.invoked_subcommand:
        return
    course = course_here()
    if not plain and not (sys.stdin.isatty() and sys.stdout.isatty()):
        from jaxpar.course.listing import where_to_go

        rows = _rows(course)
        print_lines(where_to_go(rows, _at_hand(course, rows)))
        return
    from jaxpar.course.watch import watch

    watch(course, console(), plain, manual)


@app.command("list")
def list_exercises(as_json: AsJson = False) -> None:
    """Lists every exercise: what it needs, how long it takes, and its status."""
    course = course_here()
    rows = _rows(course)
    if as_json:
        print_json([row.to_dict() for row in rows])
        return
    from jaxpar.course.listing import bar, exercise_table, where_to_go

    print_lines(where_to_go(rows, _at_hand(course, rows)), exercise_table(rows), "", bar(rows))


@app.command("lesson")
def run_lesson(
    number: Annotated[
        str | None,
        typer.Argument(
            metavar="NUMBER",
            help="Its number, such as 02; without it, the lesson of the exercise at hand.",
        ),
    ] = None,
    brief: Annotated[
        bool, typer.Option("--brief", help="Leave out the code that only draws or checks.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write it as a page that stands alone."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Runs a lesson: shows its prose, its code and what it prints.

    Its pictures go to the folder `pictures`, or with --html into the page.
    """
    from jaxpar.course.lesson_process import read_lesson, what_next

    row = lesson(number or exercise_named(None).lesson)
    course = course_here()
    if html:
        from jaxpar.course.page.lesson_page import write_page

        write_page(course, row, html)
        return show(as_json, row.to_dict() | {"page": str(html)}, [f"{html} is written."])
    code, output = read_lesson(course, row, captured=as_json, brief=brief)
    if as_json:
        print_json(row.to_dict() | {"exit_code": code, "output": output})
    elif code == 0:
        print_lines(what_next(course, row))
    raise typer.Exit(0 if code in (0, LEFT) else WRONG)


@app.command("import")
def import_answers(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The file that the text of the site was pasted into; - is stdin.",
            allow_dash=True,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Writes the exercises that were solved on the site into the course folder.

    If another answer is there already, a numbered copy of it is kept.
    """
    from jaxpar.course.solved_on_site import bring, read_text

    text = sys.stdin.read() if file == Path("-") else read_text(file)
    lines = bring(course_here(), text)
    show(as_json, {"lines": lines}, [*lines, f"To judge them, type: {command()} check --all"])


@app.command("next")
def next_exercise(
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NUMBER",
            help="The lesson to begin at; without it, the exercise at hand, as `jaxpar` has it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Names the next exercise that does not pass yet."""
    from jaxpar.course.listing import to_solve

    course = course_here()
    rows = _rows(course)
    row = next_row(rows, lesson(start).number) if start else _at_hand(course, rows)
    show(as_json, row.to_dict() if row else None, to_solve(row))


@app.command("run")
def run_answer(id: IdOrNone = None) -> None:
    """Runs your function on simulated devices, and draws what each device holds.

    Nothing is judged. The lines of the function run one after the other in this terminal, so that
    print, jax.debug.print and breakpoint() see values.
    """
    from jaxpar.contracts.base import load
    from jaxpar.course.answer_run import AnswerRun, LearnerError
    from jaxpar.drawing.elements import printable
    from jaxpar.grading.submission import SubmissionError, read_submission

    row = exercise_named(id)
    try:
        submission = read_submission(course_here().file(row))
        for line in AnswerRun(load(row.where), submission, console().width).lines():
            print(printable(line, sys.stdout.encoding), flush=True)
    except SubmissionError as error:
        raise BadUseError(f"run: {error}") from None
    except LearnerError as error:
        print(f"\n{error}")
        raise typer.Exit(WRONG) from None


@app.command("hint")
def show_hint(id: IdOrNone = None, as_json: AsJson = False) -> None:
    """Shows the next hint of an exercise, or all of them once there is no other."""
    from jaxpar.contracts.base import load
    from jaxpar.course.solution import hints_left, next_hint

    row, record = exercise_named(id), LearnerRecord(course_here().state)
    contract = load(row.where)
    hints, left = contract.hints, hints_left(record, contract)
    number, trouble = next_hint(record, contract)
    warn(trouble)
    numbered = [f"Hint {n} of {len(hints)}: {hint}" for n, hint in enumerate(hints, start=1)]
    lines = [f"{row.id}: {row.title}", *numbered[number - 1 if left else 0 : number]]
    if number == len(hints):
        last = "This is the last." if left else "There are no more hints."
        lines.append(f"{last} `{command()} solution {row.id} --give-up` shows the solution.")
    data = {"exercise": row.id, "hint": hints[number - 1], "number": number, "of": len(hints)}
    show(as_json, data, lines)


@app.command("solution")
def show_solution(
    id: IdOrNone = None,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Show it before yours passes, after the last hint.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Shows the library's own answer, once yours passes."""
    from jaxpar.contracts.base import load
    from jaxpar.course.solution import allow_solution, solution
    from jaxpar.course.wrapping import Code

    row, course = exercise_named(id), course_here()
    contract, record = load(row.where), LearnerRecord(course.state)
    if status(course, Verdicts(course.verdicts), row) != "pass":
        warn(allow_solution(record, contract, give_up))
    source, file = solution(contract)
    if as_json:
        print_json({"exercise": row.id, "file": file, "source": source})
    else:
        print_lines([f"# {file}", source], f"# {file}", Code(source))


@app.command("reset")
def reset_exercise(id: Id, as_json: AsJson = False) -> None:
    """Puts the stub back, and keeps a numbered copy of your file."""
    from jaxpar.course.backups import reset

    course = course_here()
    row = course.exercise(id)
    backup = reset(course, row)
    data = {"exercise": row.id, "file": row.file, "backup": str(backup) if backup else None}
    kept = [f"Your file is kept as {backup}."] if backup else []
    show(as_json, data, [f"{row.file} is the stub again.", *kept])


def course_here() -> Course:
    """The course folder around the folder that the learner is in."""
    return find_course(Path.cwd())


def exercise_named(id: str | None) -> Exercise:
    """Returns the exercise with this id, or the one at hand."""
    if id is not None:
        course = course_around(Path.cwd())
        return course.exercise(id) if course else exercise(id)
    course = course_here()
    return at_hand(_rows(course), LearnerRecord(course.state)).exercise


def _at_hand(course: Course, rows: list[Standing]) -> Standing | None:
    """The open exercise that `jaxpar` alone shows; None if all are solved."""
    row = at_hand(rows, LearnerRecord(course.state))
    return row if row.open else None


def _rows(course: Course) -> list[Standing]:
    return progress(course, Verdicts(course.verdicts))
