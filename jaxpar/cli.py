"""The command line: parses and prints. What it does is in `jaxpar.course` and below."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxpar import __version__
from jaxpar.course.catalog import BadUseError, exercise, lesson
from jaxpar.course.checking import Verdicts, check, open_judge
from jaxpar.course.command import command
from jaxpar.course.folder import Course, find_course, make_course
from jaxpar.course.memory import Memory
from jaxpar.course.progress import Row, next_row, progress, status

WRONG, BAD_USE, LEFT = 1, 2, 130

app = typer.Typer(
    name="jaxpar", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
dev = typer.Typer(help="For those who write the course.", rich_markup_mode=None)
app.add_typer(dev, name="dev")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The exercise, as `jaxpar list` names it.")]


def main() -> None:
    """Runs one command; ends with 0 for a pass, 1 for a wrong answer, 2 for bad use."""
    try:
        app()
    except BadUseError as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_USE)


@app.callback(invoke_without_command=True)
def learn(
    context: typer.Context,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines, never redraw the screen.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A course on training models too large for one device, in JAX.

    Without a command: shows the exercise at hand, and judges it whenever you save its file.
    """
    if version:
        print(f"jaxpar {__version__}")
    if version or context.invoked_subcommand:
        return
    course = _course()
    if not plain and not (sys.stdin.isatty() and sys.stdout.isatty()):
        from jaxpar.course.listing import where_to_go

        _print(where_to_go(_rows(course)))
        return
    from jaxpar.course.watch import watch

    watch(course, _console(), plain)


@app.command("list")
def list_exercises(as_json: AsJson = False) -> None:
    """Every exercise: what it needs, how long it takes, and how it stands."""
    course = _course()
    rows = _rows(course)
    if as_json:
        _print_json([row.to_dict() for row in rows])
        return
    from jaxpar.course.listing import bar, exercise_table, where_to_go

    _print(where_to_go(rows), exercise_table(rows), "", bar(rows))


@app.command("lesson")
def run_lesson(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="Such as 02.")],
    as_json: AsJson = False,
) -> None:
    """Runs a lesson, and shows its prose, its code and what it prints."""
    from jaxpar.course.reading import read_lesson

    row = lesson(number)
    code, output = read_lesson(_course(), row, captured=as_json)
    _show(as_json, row.to_dict() | {"exit_code": code, "output": output}, ())
    raise typer.Exit(LEFT if code == LEFT else WRONG if code else 0)


@app.command("next")
def next_exercise(
    start: Annotated[
        str, typer.Option("--from", metavar="NUMBER", help="Begin at this lesson.")
    ] = "01",
    as_json: AsJson = False,
) -> None:
    """The next exercise to solve."""
    from jaxpar.course.listing import to_solve

    row = next_row(_rows(_course()), lesson(start).number)
    _show(as_json, row.to_dict() if row else None, to_solve(row))


@app.command("check")
def check_exercise(
    id: Id,
    file: Annotated[
        Path | None, typer.Option("--file", help="Judge this file instead of your own.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Repeat the run of this seed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judges one exercise."""
    row = exercise(id)
    if file and not file.exists():
        raise BadUseError(f"check: there is no file {file}")
    with open_judge() as judge:
        if file:
            verdict = check(row, file, judge, None, seed)
        else:
            course = _course()
            verdict = check(row, course.file(row), judge, Verdicts(course.verdicts), seed)
    from jaxpar.grading.writers import plain_lines, render, to_json

    if as_json:
        _print_json(to_json(verdict))
    else:
        _print(plain_lines(verdict), render(verdict))
        print(f"\nNext, type: {command()} {'next' if verdict.passed else f'hint {id}'}")
    raise typer.Exit(0 if verdict.passed else WRONG)


@app.command("hint")
def show_hint(id: Id, as_json: AsJson = False) -> None:
    """The next hint of an exercise."""
    from jaxpar.contracts.base import load
    from jaxpar.course.solution import hints_left, next_hint

    contract, memory = load(exercise(id).where), Memory(_course().state)
    last = "This is the last." if hints_left(memory, contract) else "There are no more hints."
    number, trouble = next_hint(memory, contract)
    count, hint = len(contract.hints), contract.hints[number - 1]
    _warn(trouble)
    lines = [f"Hint {number} of {count}: {hint}"]
    if number == count:
        lines.append(f"{last} `{command()} solution {id} --give-up` shows the solution.")
    _show(as_json, {"exercise": id, "hint": hint, "number": number, "of": count}, lines)


@app.command("solution")
def show_solution(
    id: Id,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Before passing, after the last hint.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The library's own answer, once yours passes."""
    from jaxpar.contracts.base import load
    from jaxpar.course.solution import give, solution

    row, course = exercise(id), _course()
    contract, memory = load(row.where), Memory(course.state)
    if status(course, Verdicts(course.verdicts), row) != "pass":
        _warn(give(memory, contract, give_up))
    source, file = solution(contract)
    data = {"exercise": id, "file": file, "source": source}
    _show(as_json, data, [f"# {file}", source])


@app.command("reset")
def reset_exercise(id: Id, as_json: AsJson = False) -> None:
    """Puts the stub back, after a backup of your file was written."""
    from jaxpar.course.backups import reset

    row, course = exercise(id), _course()
    backup = reset(course, row)
    data = {"exercise": id, "file": row.file, "backup": str(backup) if backup else None}
    kept = [f"Your file is kept as {backup}."] if backup else []
    _show(as_json, data, [f"{row.file} is the stub again.", *kept])


@app.command("doctor")
def doctor(as_json: AsJson = False) -> None:
    """Versions, devices, memory, disk, and what is missing."""
    from jaxpar.course.doctor import diagnose

    diagnosis = diagnose(Path.cwd())
    _show(as_json, diagnosis.to_dict(), diagnosis.lines())
    raise typer.Exit(WRONG if diagnosis.missing else 0)


@app.command("inspect")
def inspect_program(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE:FUNCTION", help="The function returns (program, arguments)."),
    ],
    as_json: AsJson = False,
) -> None:
    """What a JAX program sends, holds and computes.

    It finds 8 simulated CPU devices, unless its file or the environment chooses: JAX_PLATFORMS,
    JAX_NUM_CPU_DEVICES, or a device count in XLA_FLAGS.
    """
    from jaxpar.inspector import inspect_path, render

    try:
        report = inspect_path(target)
    except ValueError as error:
        raise BadUseError(str(error)) from None
    if as_json:
        _print_json(report.to_dict())
    else:
        _console().print(render(report))


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="Where the course goes.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Makes a course folder; a file that is there already is kept."""
    root = folder.resolve()
    written, kept = make_course(root)
    go_there = "" if root == Path.cwd() else f"cd {folder} && "
    lines = [
        f"{root}: {len(written)} files written, {len(kept)} kept as they are",
        f"Next, type: {go_there}{command()}",
    ]
    _show(as_json, {"folder": str(root), "written": written, "kept": kept}, lines)


@dev.command("build")
def build_stubs(
    only_check: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 1 if a stub differs.")
    ] = False,
) -> None:
    """Writes the stubs of all exercises from the library and the contracts."""
    from jaxpar.course.stubs import build, stale

    root = _course().root
    written = [] if only_check else build(root)
    left = stale(root)
    _print(f"{name}: written" for name in written)
    _print(f"{name}: not the library's stub; {advice}" for name, advice in left.items())
    raise typer.Exit(WRONG if left else 0)


def _course() -> Course:
    return find_course(Path.cwd())


def _rows(course: Course) -> list[Row]:
    return progress(course, Verdicts(course.verdicts))


def _show(as_json: bool, data: Any, lines: Iterable[str]) -> None:
    if as_json:
        _print_json(data)
    else:
        _print(lines)


def _warn(line: str) -> None:
    if line:
        print(line, file=sys.stderr)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _print(lines: Iterable[str], *renderables: Any) -> None:
    """The renderables where there is a terminal, else the lines."""
    if sys.stdout.isatty() and renderables:
        _console().print(*renderables, sep="\n")
        return
    for line in lines:
        print(line)


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)


if __name__ == "__main__":
    main()
