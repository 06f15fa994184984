"""The engines of several replicas, each on devices of its own."""

from collections.abc import Sequence
from contextlib import nullcontext

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxpar.axes import parse_mesh
from jaxpar.serve.engine import Engine, Sizes
from jaxpar.serve.trained import Decoder
from jaxpar.train.run import simulate_unless_chosen

TP = "tp"


def devices_of(where: str, mesh: str | None, replicas: int) -> list[list[jax.Device]]:
    """The devices of each replica, as an option names those of one; simulated if there are none.

    Two programs with collectives on the same devices may wait for each other forever, so replicas
    that are split share none. Others share devices where there are fewer of them.

    Raises:
        ValueError: it is no mesh, has another axis than tp, or there are too few devices.
    """
    sizes = parse_mesh(mesh) if mesh else {}
    if others := sorted(set(sizes) - {TP}):
        raise ValueError(
            f"{where}: --mesh {mesh} has axis {others[0]}; in inference devices split each layer; "
            "use tp, as in tp=4"
        )
    n = sizes.get(TP, 1)
    simulate_unless_chosen(n * replicas)
    devices = jax.devices()
    if n > 1 and n * replicas > len(devices):
        raise ValueError(
            f"{where}: {replicas} replicas with --mesh {mesh} need {n * replicas} devices; there "
            f"are {len(devices)} ({jax.default_backend()}); use fewer, or simulate them: "
            "JAX_PLATFORMS=cpu, with their number in JAX_NUM_CPU_DEVICES"
        )
    places = range(n * replicas)
    taken = [devices[place % len(devices)] for place in places]
    return [taken[first : first + n] for first in places[::n]]


def make_engines(
    decoder: Decoder, sizes: Sizes, devices: Sequence[Sequence[jax.Device]]
) -> list[Engine]:
    """An engine for each replica, whose programs are compiled.

    Raises:
        ValueError: the sizes do not fit the model, the devices or one another.
    """
    return [_engine(decoder, sizes, its) for its in devices]


def _engine(decoder: Decoder, sizes: Sizes, devices: Sequence[jax.Device]) -> Engine:
    split = len(devices) > 1
    mesh = Mesh(np.array(devices), (TP,), axis_types=(AxisType.Auto,)) if split else None
    with nullcontext() if split else jax.default_device(devices[0]):
        return Engine(decoder.settings, decoder.params, sizes, mesh=mesh)
