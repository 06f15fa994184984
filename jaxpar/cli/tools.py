"""The verbs around the course: the machine, programs, folders, stubs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import WRONG, AsJson, app, console, dev, print_json, print_lines, show
from jaxpar.course.catalog import BadUseError
from jaxpar.course.command import command
from jaxpar.course.folder import find_course, make_course


@app.command("doctor")
def doctor(as_json: AsJson = False) -> None:
    """Versions, devices, memory, disk, and what is missing."""
    from jaxpar.course.doctor import diagnose

    diagnosis = diagnose(Path.cwd())
    show(as_json, diagnosis.to_dict(), diagnosis.lines())
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
        print_json(report.to_dict())
    else:
        console().print(render(report))


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
    show(as_json, {"folder": str(root), "written": written, "kept": kept}, lines)


@dev.command("build")
def build_stubs(
    only_check: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 1 if a stub differs.")
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
