"""A data-parallel run of the decoder: what is needed to begin, and what it gave."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxpar.inspector.compiled import compile_program
from jaxpar.inspector.program import COUNT_FLAG, inspect_compiled
from jaxpar.inspector.report import Report
from jaxpar.mesh import divide, make_mesh, parse_mesh
from jaxpar.model import Settings, init, loss_fn
from jaxpar.train.cluster import Place, join
from jaxpar.train.loop import Trained, train
from jaxpar.train.step import DATA_PARALLEL, make_step, shardings
from jaxpar.train.text import Text, batches, check_same, read_file, read_library

# PyTorch's default: a little decay of every parameter.
OPTIMIZER = optax.adamw(1e-3, weight_decay=0.01)

Taken = tuple[float, float]
"""The loss of a step, and its seconds."""


@dataclass(frozen=True)
class Run:
    """A run that is compiled and may begin.

    Attributes:
        report: what each device sends and holds in one step.
        parameters: how many the model has.
        tokens: how many a step predicts, over all devices.
        steps: without end; each is taken when asked for.
    """

    report: Report
    parameters: int
    tokens: int
    steps: Iterator[Trained]


def start(
    settings: Settings,
    mesh: str,
    place: Place | None,
    *,
    data: Path | None,
    batch: int,
    seed: int,
    timeout_seconds: int,
) -> Run:
    """Meets the other processes, if there are any, and begins a run over the devices of all.

    Raises:
        ValueError: the run cannot be as asked, the text cannot be read, or the others do not come.
    """  # fmt: skip
    devices = _devices(mesh)
    divide("train", "b", batch, "dp", devices)
    text = read_file(data) if data else read_library()
    join(place, timeout_seconds)
    _simulate(devices, place)
    mesh_of_all = _mesh(devices)
    check_same(text)
    return begin(settings, mesh_of_all, text, batch=batch, seed=seed)


def begin(settings: Settings, mesh: Mesh, text: Text, *, batch: int, seed: int) -> Run:
    """Makes parameters, and compiles and inspects the step, for a mesh with axis dp.

    Raises:
        ValueError: the devices cannot share the batch equally, or the text does not fill one.
    """
    divide("train", "b", batch, "dp", mesh.shape["dp"])
    t = settings.sequence
    lie = shardings(mesh, DATA_PARALLEL.batch)
    examples = batches(text, lie, batch=batch, sequence=t, seed=seed)
    step = make_step(loss_fn(settings), OPTIMIZER, DATA_PARALLEL, mesh)
    params, state = _first(settings, mesh, seed)
    shape = jax.ShapeDtypeStruct((batch, t + 1), jnp.int32, sharding=lie)
    lowered = step.lower(params, state, shape)
    compiled = compile_program(lowered, fast=True)
    return Run(
        report=inspect_compiled(lowered, compiled),
        parameters=settings.parameters,
        tokens=batch * t,
        steps=train(compiled.executable, params, state, examples),
    )


def results(run: Run | None, steps: Sequence[Taken]) -> dict[str, Any]:
    """What a run gave so far, for JSON; memory and collectives are per device."""
    memory = run and run.report.memory
    return {
        "losses": [loss if math.isfinite(loss) else None for loss, _ in steps],
        "step_seconds": [seconds for _, seconds in steps],
        "tokens_per_second": run and tokens_per_second(run, steps),
        "memory": memory
        and {"arguments_bytes": memory.arguments_bytes, "temp_bytes": memory.temp_bytes},
        "collectives": [asdict(one) for one in (run.report.collectives if run else ())],
    }


def tokens_per_second(run: Run, steps: Sequence[Taken]) -> float | None:
    """Predicted tokens in a second, over all devices; None before the first step."""
    seconds = sum(seconds for _, seconds in steps)
    return len(steps) * run.tokens / seconds if seconds else None


def _devices(mesh: str) -> int:
    """How many devices share the batch."""
    sizes = parse_mesh(mesh)
    if others := [axis for axis in sizes if axis != "dp"]:
        raise ValueError(
            f"train: --mesh {mesh} has axes {', '.join(others)}; so far training splits the batch "
            "only, over dp; use --mesh dp=N"
        )
    return sizes["dp"]


def _simulate(devices: int, place: Place | None) -> None:
    """Makes the CPUs of all processes show so many devices, unless the environment chooses."""
    processes = place.count if place else 1
    chosen = "JAX_NUM_CPU_DEVICES" in os.environ or COUNT_FLAG in os.environ.get("XLA_FLAGS", "")
    if processes and not chosen:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", max(1, devices // processes))


def _mesh(devices: int) -> Mesh:
    found, processes = jax.device_count(), jax.process_count()
    if devices > found or (processes > 1 and devices < found):
        raise ValueError(
            f"train: --mesh dp={devices} needs {devices} devices; there are {found} "
            f"({jax.default_backend()}, processes: {processes}); use dp={found}, or simulate "
            "others: JAX_PLATFORMS=cpu, with their number for a process in JAX_NUM_CPU_DEVICES"
        )
    return make_mesh({"dp": devices})


def _first(settings: Settings, mesh: Mesh, seed: int) -> tuple[Any, Any]:
    """Random parameters and the optimizer's first state, where the layout wants them."""
    lie = shardings(mesh, (DATA_PARALLEL.params, DATA_PARALLEL.state))
    make = jax.jit(lambda seed: init(settings, jax.random.key(seed)), out_shardings=lie[0])
    params = make(seed)
    return params, jax.jit(OPTIMIZER.init, out_shardings=lie[1])(params)
