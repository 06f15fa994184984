"""A run of the decoder over many devices: what is needed to begin, and what it gave."""

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.inspector.program import COUNT_FLAG
from jaxpar.inspector.report import Report
from jaxpar.layout import Layout
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, Transfers
from jaxpar.train.cluster import Place, join
from jaxpar.train.launch import FOLLOWS, SCRATCH
from jaxpar.train.loop import Trained, train
from jaxpar.train.machine import check_memory
from jaxpar.train.recipe import Recipe
from jaxpar.train.sent import Sent, sent_over_axes
from jaxpar.train.setup import set_up
from jaxpar.train.text import Text, batches, check_same, read_file, read_library


class StepResult(NamedTuple):
    """What a step has told.

    Attributes:
        loss: the mean loss of the batch.
        gradient_norm: the norm of the gradients before clipping.
        seconds: how long the step took.
        largest_load: of the busiest expert, over the mean load; None: there are no experts.
        dropped: the share of the choices of experts that found no row; None: there is no capacity.
    """

    loss: float
    gradient_norm: float
    seconds: float
    largest_load: float | None = None
    dropped: float | None = None


@dataclass(frozen=True)
class Run:
    """A run that is compiled and may begin.

    Attributes:
        report: what each device sends and holds in one step.
        parameters: the number of parameters of the model.
        tokens: the number of tokens that a step predicts, over all devices.
        steps: an endless iterator; each step is computed when it is requested.
        sent: what a device sends over each group of axes, with every branch and by the schedule.
        moved: the bytes that an offloaded state moves in a step; None without offload.
        folder: where an offloaded state is kept, if it is kept on disk.
        round_steps: how many local steps a step here stands for, where devices take such.
    """

    report: Report
    parameters: int
    tokens: int
    steps: Iterator[Trained]
    sent: tuple[Sent, ...] = ()
    moved: Transfers | None = None
    folder: tempfile.TemporaryDirectory | None = None
    round_steps: int | None = None

    def close(self) -> None:
        """Removes what a run leaves behind."""
        if self.folder:
            self.folder.cleanup()


def start(
    settings: Settings,
    recipe: Recipe,
    place: Place | None,
    *,
    data: Path | None,
    seed: int,
    timeout_seconds: int,
) -> Run:
    """Connects with the other processes, if there are any, and begins a run over all devices.

    Raises:
        ValueError: the recipe does not fit, the text is unreadable, or others do not connect.
    """  # fmt: skip
    recipe.check(settings)
    text = read_file(data) if data else read_library()
    join(place, timeout_seconds)
    _simulate(recipe.layout.devices, place)
    mesh = _mesh(recipe.layout)
    if jax.default_backend() == "cpu":
        here = 1 if FOLLOWS in os.environ else jax.local_device_count() / jax.device_count()
        check_memory(settings, recipe, here)
    check_same(text)
    name = f"text: {data}" if data else "text"
    return begin(settings, recipe, mesh, text, seed=seed, name=name)


def begin(
    settings: Settings,
    recipe: Recipe,
    mesh: Mesh,
    text: Text,
    *,
    seed: int,
    name: str = "text",
) -> Run:
    """Makes the parameters, and compiles and inspects the step.

    `seed` chooses the first parameters and the order of the examples. An error about the text
    begins with `name`.

    Raises:
        ValueError: the model cannot be split in this way, or the text does not fill a batch.
    """
    recipe.check(settings)
    layout, batch, t = recipe.layout, recipe.batch * (recipe.sync_every or 1), settings.sequence
    sharding = NamedSharding(mesh, P(layout.batch_axes))
    examples = batches(text, sharding, batch=batch, sequence=t, seed=seed, name=name)
    shape = jax.ShapeDtypeStruct((batch, t + 1), jnp.int32, sharding=sharding)
    folder, store = None, None
    if layout.offload != "none":
        folder = _folder() if layout.store == "disk" else None
        store = DiskStore(Path(folder.name)) if folder else HostStore()
    made = set_up(settings, recipe, mesh, shape, seed, store)
    return Run(
        report=made.report,
        parameters=settings.parameters,
        tokens=batch * t,
        steps=train(made.step, made.params, made.state, examples),
        sent=sent_over_axes(made.report, recipe, settings),
        moved=made.moved,
        folder=folder,
        round_steps=recipe.sync_every,
    )


def results(run: Run | None, steps: Sequence[StepResult]) -> dict[str, Any]:
    """The results of a run so far, as data for JSON; memory and collectives are per device."""
    memory = run and run.report.memory
    return {
        "losses": [_finite(step.loss) for step in steps],
        "gradient_norms": [_finite(step.gradient_norm) for step in steps],
        "largest_loads": [
            _finite(step.largest_load) for step in steps if step.largest_load is not None
        ],
        "dropped": [
            _finite(step.dropped or 0.0) for step in steps if step.largest_load is not None
        ],
        "step_seconds": [step.seconds for step in steps],
        "tokens_per_second": run and tokens_per_second(run, steps),
        "memory": memory
        and {"arguments_bytes": memory.arguments_bytes, "temp_bytes": memory.temp_bytes},
        "bytes_by_axis": [one._asdict() for one in (run.sent if run else ())],
        "collectives": [asdict(one) for one in (run.report.collectives if run else ())],
        "moved": run and run.moved and run.moved._asdict(),
    }


def tokens_per_second(run: Run, steps: Sequence[StepResult]) -> float | None:
    """Predicted tokens in a second, over all devices; None before the first step."""
    seconds = sum(step.seconds for step in steps)
    return len(steps) * run.tokens / seconds if seconds else None


def _finite(number: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return number if math.isfinite(number) else None


def _simulate(devices: int, place: Place | None) -> None:
    """Simulates this process's part of `devices`, unless the environment sets a number."""
    processes = place.count if place else 1
    chosen = "JAX_NUM_CPU_DEVICES" in os.environ or COUNT_FLAG in os.environ.get("XLA_FLAGS", "")
    if processes and not chosen:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", max(1, devices // processes))


def _mesh(layout: Layout) -> Mesh:
    found, processes = jax.device_count(), jax.process_count()
    if layout.devices > found or (processes > 1 and layout.devices < found):
        others = (
            "start others: --processes times --devices of launch, before its verb"
            if FOLLOWS in os.environ
            else "simulate others: JAX_PLATFORMS=cpu, with their number for a process in "
            "JAX_NUM_CPU_DEVICES"
        )
        raise ValueError(
            f"train: --mesh {layout.mesh} needs {layout.devices} devices; there are {found} "
            f"({jax.default_backend()}, processes: {processes}); use {found} in all, or {others}"
        )
    return make_mesh(layout.mesh_sizes)


def _folder() -> tempfile.TemporaryDirectory:
    """An empty folder in the launcher's or in the current one, as /tmp is often in memory."""
    try:
        here = Path(os.environ.get(SCRATCH, "."))
        here.mkdir(exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="jaxpar-offload-", dir=here)
    except OSError as error:
        raise ValueError(
            f"train: --offload disk needs a folder in {Path.cwd()}: {error.strerror}; start in a "
            "folder that can be written"
        ) from None
