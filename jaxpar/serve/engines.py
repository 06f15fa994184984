"""The engines of several replicas, each on devices of its own."""

from collections.abc import Sequence
from contextlib import nullcontext
from math import prod

import jax
import numpy as np
from jax.sharding import Mesh

from jaxpar.axes import parse_mesh
from jaxpar.serve.engine import Engine, Sizes
from jaxpar.serve.speculate import Speculation
from jaxpar.serve.trained import TrainedModel, mesh_of
from jaxpar.train.run import simulate_unless_chosen

ONE = "tp=1"


def meshes_of(where: str, text: str | None, replicas: int) -> list[Mesh]:
    """The mesh of each replica, as an option names that of one; simulated if there are no devices.

    Two programs with collectives on the same devices may wait for each other forever, so replicas
    that are split share none. Others share devices where there are fewer of them.

    Raises:
        ValueError: it is no mesh, has an axis that splits nothing, or there are too few devices.
    """
    text = text or ONE
    n = prod(parse_mesh(text).values())
    simulate_unless_chosen(n * replicas)
    devices = jax.devices()
    first = mesh_of(where, text)
    assert first
    if n > 1 and n * replicas > len(devices):
        raise ValueError(
            f"{where}: {replicas} replicas with --mesh {text} need {n * replicas} devices; there "
            f"are {len(devices)} ({jax.default_backend()}); use fewer, or simulate them: "
            "JAX_PLATFORMS=cpu, with their number in JAX_NUM_CPU_DEVICES"
        )
    places = np.arange(n * replicas).reshape(replicas, *first.devices.shape) % len(devices)
    taken = np.array(devices)[places]
    return [Mesh(its, first.axis_names, axis_types=first.axis_types) for its in taken]


def make_engines(
    model: TrainedModel,
    sizes: Sizes,
    meshes: Sequence[Mesh],
    *,
    cache: str = "model",
    speculation: Speculation | None = None,
) -> list[Engine]:
    """An engine for each replica, whose programs are compiled; see `Engine`.

    Raises:
        ValueError: the sizes do not fit the model, the devices or one another.
    """
    engines = []
    for mesh in meshes:
        # An engine on one device takes the usual one.
        with jax.default_device(mesh.devices.flat[0]) if mesh.size == 1 else nullcontext():
            engines.append(
                Engine(
                    model.settings,
                    model.params,
                    sizes,
                    mesh=mesh,
                    cache=cache,
                    speculation=speculation,
                )
            )
    return engines
