"""The verbs `doctor`, `inspect` and `init`, and those for people who write the course."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
)
from jaxpar.cli.cluster_doctor import examine_cluster
from jaxpar.cli.grading_doctor import attacks_held, copy_python_to
from jaxpar.course.catalog import BadUseError
from jaxpar.course.command import command
from jaxpar.course.folder import find_course, make_course

Grading = Annotated[
    bool, typer.Option("--grading", help="Attack the isolation of graded submissions instead.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="GROUP", help="With --grading: only this group of attacks."),
]
CopyPython = Annotated[
    Path | None,
    typer.Option(
        "--copy-python",
        metavar="FOLDER",
        help="With --grading: copy Python and jaxpar to a new folder that all users can read.",
    ),
]

OfCluster = Annotated[
    bool,
    typer.Option(
        "--cluster",
        help="Examine the processes of a run and the links between them; start it in each.",
    ),
]
Write = Annotated[
    Path | None,
    typer.Option(
        "--write",
        metavar="FILE",
        help="With --cluster: write what was measured, for plan and memory --hardware FILE.toml.",
    ),
]
Diff = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="BEFORE AFTER", help="Compare the files of two reports instead."),
]


@app.command("doctor")
def doctor(
    as_json: AsJson = False,
    cluster: OfCluster = False,
    write: Write = None,
    grading: Grading = False,
    only: Only = None,
    copy_python: CopyPython = None,
) -> None:
    """Shows versions, devices, memory and disk space, and says what is missing.

    With --cluster it compares the processes of a run, and measures links and collectives. Start it
    as `train` is started: in every process of the cluster, or by `launch`.

    With --grading it says which level of isolation this machine allows for `grade`, and which
    attacks that level holds against. This takes some minutes; a run that was stopped goes on.
    """
    if (only or copy_python) and not grading:
        raise BadUseError("doctor: --only and --copy-python belong to --grading; say that, too")
    if cluster and grading:
        raise BadUseError("doctor: --cluster and --grading look at different things; give one")
    if write and not cluster:
        raise BadUseError("doctor: --write belongs to --cluster; say that, too")
    if cluster:
        examine_cluster(write, as_json)
        return
    if copy_python:
        copy_python_to(copy_python, as_json)
        return
    if grading:
        need_linux("doctor --grading")
        raise typer.Exit(0 if attacks_held(only or [], as_json) else WRONG)
    from jaxpar.course.doctor import diagnose

    diagnosis = diagnose(Path.cwd())
    show(as_json, diagnosis.to_dict(), diagnosis.lines())
    raise typer.Exit(WRONG if diagnosis.missing else 0)


@app.command("inspect")
def inspect_program(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE:FUNCTION", help="A function that returns (program, arguments)."
        ),
    ] = None,
    as_json: AsJson = False,
    diff: Diff = None,
) -> None:
    """Shows what a JAX program sends, stores and computes.

    The program finds 8 simulated CPU devices, unless its file or the environment chooses others:
    JAX_PLATFORMS, JAX_NUM_CPU_DEVICES, or a device count in XLA_FLAGS.

    With --diff it shows what differs between two reports that --json has printed, as a table for a
    terminal or a pull request, and ends with 1 if a figure rose: how often a kind of collective
    runs over the same axes, the bytes it sends, the bytes held, or flops.
    """
    if diff and target is None:
        from jaxpar.inspector.diff import compare, read_figures, table

        with errors_as_bad_use():
            changes = compare(*map(read_figures, diff))
        show(as_json, [change.to_dict() for change in changes], table(changes))
        raise typer.Exit(WRONG if any(change.rose for change in changes) else 0)
    if diff or target is None:
        raise BadUseError("inspect: give FILE:FUNCTION, or --diff and the files of two reports")
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
