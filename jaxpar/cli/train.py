"""The verbs that train: one process, or several on this machine."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxpar.cli.base import AS_JSON, BAD_USE, LEFT, WRONG, AsJson, app, print_json
from jaxpar.course.catalog import BadUseError

DISTRIBUTED = ("train",)
Size = Annotated[int, typer.Option(min=1)]
MeshOption = Annotated[
    str,
    typer.Option(help="Devices that split the batch (dp, fsdp), each layer (tp), all layers (pp)."),
]
Zero = Annotated[
    int | None,
    typer.Option(help="Stage of ZeRO, 0 to 3: what is sharded. Without it 3 over fsdp, else 0."),
]
Remat = Annotated[
    str,
    typer.Option(
        help="What a layer keeps for its gradient: none (computes nothing again), full (its input "
        "only), selective (all but attention), products (of weights), segments (some inputs)."
    ),
]
Microbatches = Annotated[
    int, typer.Option(min=1, help="Parts of its batch that a device takes in turn.")
]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="The devices of tp split norms by positions.")
]
Schedule = Annotated[
    str | None,
    typer.Option(help="Over pp, a schedule by name, as `schedule` draws it, or FILE.csv."),
]
Offload = Annotated[
    str | None, typer.Option(help="Where the optimizer's state waits: none, host or disk.")
]
DataOption = Annotated[
    Path | None, typer.Option(help="A text; without it, the sources of Python's library.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1)]
Batch = Annotated[int, typer.Option(min=1, help="Examples in a step, over all devices.")]
Sequence = Annotated[int, typer.Option(min=1, help="Bytes in an example.")]
Timeout = Annotated[
    int, typer.Option(min=1, help="Seconds that the other processes may take to come.")
]


@app.command("train")
def train_model(
    mesh: MeshOption = "dp=8",
    zero: Zero = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    remat: Remat = "products",
    microbatches: Microbatches = 1,
    offload: Offload = None,
    sequence_parallel: SequenceParallel = False,
    schedule: Schedule = None,
    steps: Size = 50,
    data: DataOption = None,
    seed: Seed = 0,
    layers: Size = 4,
    d_model: Size = 256,
    heads: Size = 8,
    batch: Batch = 16,
    sequence: Sequence = 128,
    timeout: Timeout = 60,
    as_json: AsJson = False,
) -> None:
    """Trains a byte-level decoder on real text; shows what each device sends and holds.

    Simulates as many CPU devices as the mesh needs, unless there are others, or the environment
    chooses: JAX_PLATFORMS, JAX_NUM_CPU_DEVICES, or a device count in XLA_FLAGS. With several
    processes, each calls this: Slurm, Open MPI and Kubernetes are found; elsewhere set
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    from jaxpar.train.launch import follow_launcher

    follow_launcher()
    recipe = {
        "mesh": mesh, "zero": zero, "precision": precision, "remat": remat,
        "microbatches": microbatches, "offload": offload, "sequence_parallel": sequence_parallel,
        "schedule": schedule, "batch": batch,
    }  # fmt: skip
    sizes = {"layers": layers, "d_model": d_model, "heads": heads, "sequence": sequence}
    options = {"data": data, "seed": seed, "timeout_seconds": timeout}
    _train(steps, as_json, sizes, recipe, options)


def _train(
    count: int,
    as_json: bool,
    sizes: dict[str, Any],
    recipe: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Trains and prints, as far as Ctrl-C lets it, and ends this process."""
    with _held_back() as interrupts:
        from rich.console import Console

        from jaxpar.model import Settings
        from jaxpar.train.cluster import find_place, leave
        from jaxpar.train.recipe import make_recipe
        from jaxpar.train.run import results, start
        from jaxpar.train.screen import show_end, show_start, show_steps

    place, run, taken, code = None, None, [], 0
    screen = Console(highlight=False, quiet=as_json)
    try:
        if interrupts:
            raise KeyboardInterrupt
        place = find_place(os.environ)
        screen.quiet |= bool(place and place.rank)
        with screen.status("Starting"):
            run = start(Settings(**sizes), make_recipe(**recipe), place, **options)
        show_start(run, recipe["mesh"], screen)
        for step in show_steps(run.steps, count, screen):
            taken.append((step.loss, step.seconds))
    except KeyboardInterrupt:
        code = LEFT
    except ValueError as error:
        if place is None:
            raise BadUseError(str(error)) from None
        print(error, file=sys.stderr)
        code = BAD_USE
    except Exception:
        traceback.print_exc()
        code = WRONG
    if code in (0, LEFT) and not (place and place.rank):
        if as_json:
            print_json(results(run, taken))
        elif run:
            show_end(run, taken, count, screen)
    if run:
        run.close()
    leave(code, place)


@contextmanager
def _held_back() -> Iterator[list[int]]:
    """Holds Ctrl-C back and lists it: an interrupted import of JAX fails in ways of its own."""
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)


@app.command("launch", context_settings={"allow_interspersed_args": False})
def launch_processes(
    arguments: Annotated[list[str], typer.Argument(metavar="VERB", help="And its options.")],
    processes: Size = 2,
    devices: Annotated[int, typer.Option(min=1, help="Simulated in each process.")] = 4,
) -> None:
    """Runs a verb in several processes on this machine, which talk over loopback.

    As in: jaxpar launch --processes 2 --devices 4 -- train --mesh dp=8
    """
    if arguments[0] not in DISTRIBUTED:
        raise BadUseError(
            f"launch: {arguments[0]!r} does not run in several processes; use {DISTRIBUTED[0]}"
        )
    from jaxpar.train.launch import launch

    command = [sys.executable, "-m", "jaxpar.cli", *arguments]
    as_json = AS_JSON in arguments
    raise typer.Exit(launch(command, processes=processes, devices=devices, as_json=as_json))
