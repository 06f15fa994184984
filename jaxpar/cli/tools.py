"""The verbs `doctor`, `inspect` and `init`, and those for people who write the course."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.cli.base import (
    WRONG,
    AsJson,
    app,
    console,
    dev,
    errors_as_bad_use,
    need_linux,
    print_json,
    print_lines,
    show,
    warn,
)
from jaxpar.course.command import command
from jaxpar.course.folder import find_course, make_course

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxpar.classroom.attacks.suite import Outcome
    from jaxpar.classroom.sandbox.levels import Sandbox


Grading = Annotated[
    bool, typer.Option("--grading", help="Attack the isolation of graded submissions instead.")
]


@app.command("doctor")
def doctor(as_json: AsJson = False, grading: Grading = False) -> None:
    """Shows versions, devices, memory and disk space, and says what is missing.

    With --grading it says which level of isolation this machine allows for `grade`, and which
    attacks that level holds against. This takes some minutes.
    """
    if grading:
        need_linux("doctor --grading")
        raise typer.Exit(0 if _attacks_held(as_json) else WRONG)
    from jaxpar.course.doctor import diagnose

    diagnosis = diagnose(Path.cwd())
    show(as_json, diagnosis.to_dict(), diagnosis.lines())
    raise typer.Exit(WRONG if diagnosis.missing else 0)


def _attacks_held(as_json: bool) -> bool:
    """Runs the attacks on the best level, prints what held, and returns whether all did."""
    from jaxpar.classroom.attacks.suite import ATTACKS, Suite, forecast
    from jaxpar.classroom.sandbox.levels import best_sandbox

    with errors_as_bad_use():
        sandbox = best_sandbox()
    warn(f"Isolation: {sandbox.name}.")
    warn(forecast())
    outcomes = []
    for outcome in Suite(sandbox).run():
        outcomes.append(outcome)
        if len(outcomes) % 20 == 0:
            warn(f"{len(outcomes)} of {len(ATTACKS)}")
    data = {"level": sandbox.level, "attacks": [outcome.to_dict() for outcome in outcomes]}
    show(as_json, data, _attack_lines(outcomes, sandbox))
    return all(outcome.held for outcome in outcomes)


def _attack_lines(outcomes: list[Outcome], sandbox: Sandbox) -> Iterator[str]:
    """Yields a line for each group of attacks, and one for each attack that was not held."""
    yield f"{sandbox.name} held against"
    for group in dict.fromkeys(outcome.attack.group for outcome in outcomes):
        those = [outcome for outcome in outcomes if outcome.attack.group == group]
        yield f"  {group:<28} {sum(o.held for o in those):>3} of {len(those):>3} attacks"
    broken = [outcome for outcome in outcomes if not outcome.held]
    for one in broken:
        yield f"NOT HELD: {one.attack.group}: {one.attack.name}: {one.why}"
    for level, reason in sandbox.why_not.items():
        yield f"Not on level {level}: {reason}"
    yield "Do not grade untrusted files here." if broken else "Every attack was held."


@app.command("inspect")
def inspect_program(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE:FUNCTION", help="A function that returns (program, arguments)."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Shows what a JAX program sends, stores and computes.

    The program finds 8 simulated CPU devices, unless its file or the environment chooses others:
    JAX_PLATFORMS, JAX_NUM_CPU_DEVICES, or a device count in XLA_FLAGS.
    """
    from jaxpar.inspector import inspect_path, render

    with errors_as_bad_use():
        report = inspect_path(target)
    if as_json:
        print_json(report.to_dict())
    else:
        console().print(render(report))


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="Where the course goes.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Makes a course folder with the lessons and stubs; files that are already there are kept."""
    root = folder.resolve()
    written, kept = make_course(root)
    go_there = "" if root == Path.cwd() else f"cd {folder} && "
    lines = [
        f"{root}: {len(written)} files written, {len(kept)} kept as they are",
        f"Next, type: {go_there}{command(root)}",
    ]
    show(as_json, {"folder": str(root), "written": written, "kept": kept}, lines)


@dev.command("build")
def build_stubs(
    only_check: Annotated[
        bool, typer.Option("--check", help="Write nothing, and end with 1 if a stub differs.")
    ] = False,
) -> None:
    """Writes the stubs of all exercises from the library and the contracts."""
    from jaxpar.course.stubs import build, stale

    root = find_course(Path.cwd()).root
    written = [] if only_check else build(root)
    left = stale(root)
    print_lines(f"{name}: written" for name in written)
    print_lines(f"{name}: not the library's stub; {advice}" for name, advice in left.items())
    raise typer.Exit(WRONG if left else 0)


@dev.command("new")
def new_exercise(
    topic: Annotated[str, typer.Argument(help="The lesson, by its topic or its number.")],
    id: Annotated[str, typer.Argument(metavar="EXERCISE", help="The name of its function.")],
) -> None:
    """Writes the skeleton of a new exercise: library function, contract, answers, catalog row.

    The skeleton is an exercise that works; change it into yours, and see CONTRIBUTING.md.
    """
    from jaxpar.course.new_exercise import write_skeleton

    print_lines(
        f"{name}: written" for name in write_skeleton(find_course(Path.cwd()).root, topic, id)
    )
    print_lines([f"Then: {command()} dev build, and pytest tests/contracts -k {id}"])
