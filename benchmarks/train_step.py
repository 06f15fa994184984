"""One training step of the default decoder: ours on 8 simulated devices, against its rivals.

All take turns in one run, with the same model, batch, precision and optimizer.
"""

import importlib.util
import statistics
import sys

import jax
import jax.numpy as jnp
import optax

from benchmarks import Row
from benchmarks.sides.race import race, serve
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import Settings, init, loss_fn
from jaxpar.train.run import OPTIMIZER
from jaxpar.train.step import DATA_PARALLEL, make_step, shardings

DEVICES, BATCH = 8, 16
SETTINGS = Settings()
OURS = "ours"
RIVALS = {
    "our model under `jax.jit` on one device": ("1.0", ["-m", "benchmarks.train_step", "1"]),
    "eager PyTorch in one process": ("1.0", ["-m", "benchmarks.sides.torch_step", "1"]),
    f"PyTorch DistributedDataParallel, gloo, {DEVICES} processes": (
        "0.8",
        ["-m", "benchmarks.sides.torch_step", str(DEVICES)],
    ),
}


def one_device_step(params, state, tokens):
    loss, gradients = jax.value_and_grad(loss_fn(SETTINGS))(params, tokens)
    updates, state = OPTIMIZER.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def take_steps(devices: int) -> None:
    """Steps of AdamW on random tokens."""
    simulate_devices(devices)
    shape = (BATCH, SETTINGS.sequence + 1)
    tokens = jax.random.randint(jax.random.key(1), shape, 0, SETTINGS.vocabulary, jnp.int32)
    params = init(SETTINGS, jax.random.key(0))
    state = OPTIMIZER.init(params)
    compiled = jax.jit(one_device_step, donate_argnums=(0, 1))
    if devices > 1:
        mesh = make_mesh({"dp": devices})
        compiled = make_step(loss_fn(SETTINGS), OPTIMIZER, DATA_PARALLEL, mesh)
        lie = (DATA_PARALLEL.params, DATA_PARALLEL.state, DATA_PARALLEL.batch)
        params, state, tokens = jax.device_put((params, state, tokens), shardings(mesh, lie))

    def step() -> float:
        nonlocal params, state
        params, state, loss = compiled(params, state, tokens)
        return float(loss)

    serve(step)


def rows() -> list[Row]:
    torch = importlib.util.find_spec("torch") is not None
    met = {name: rival for name, rival in RIVALS.items() if torch or "PyTorch" not in name}
    sides = {OURS: ["-m", "benchmarks.train_step", str(DEVICES)]}
    times = race(sides | {name: arguments for name, (_, arguments) in met.items()})
    size = f"{SETTINGS.parameters / 1e6:.1f} M parameters, {BATCH * SETTINGS.sequence:,} tokens"
    what = f"training step ({size}, float32, AdamW), data parallel on {DEVICES} simulated devices"
    return [
        Row(
            f"{what}, against {name}",
            target,
            compared(times[OURS], times[name]) if name in met else "not measured: no torch here",
        )
        for name, (target, _) in RIVALS.items()
    ]


def compared(ours: list[float], theirs: list[float]) -> str:
    """The median of the ratios of every turn, and both medians."""
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{ratio:.2f} ({statistics.median(ours):.2f} s, {statistics.median(theirs):.2f} s)"


if __name__ == "__main__":
    if sys.argv[1:]:
        take_steps(int(sys.argv[1]))
    else:
        for row in rows():
            print(row.what, row.target, row.measured, sep=" | ")
