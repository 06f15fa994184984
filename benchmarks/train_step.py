"""One training step of the default decoder: ours on 8 simulated devices, against its rivals.

All take turns in one run, with the same model, batch, precision and optimizer.

The ratios depend on the host. On another one with the same name, eight devices took 0.21 s, eager
PyTorch 0.29 s and DistributedDataParallel 0.39 s: ratios of 0.73 and 0.54. Neither the pages that a
step takes anew (`page_faults`) nor the matrix products by themselves, which run at 160 to 190
GFLOP/s in XLA as in PyTorch on the host below, explain the difference.
"""

import importlib.util
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial

import jax
import optax

from benchmarks import Row
from benchmarks.sides.our_step import BATCH, DEVICES, SETTINGS, ours, random_tokens
from benchmarks.sides.race import STEPS, Turn, race, serve
from jaxpar.model import Split, init, loss_fn
from jaxpar.train.optimizer import Optimization, make_optimizer

TORCH = ["-m", "benchmarks.sides.torch_step"]
PYTORCH = "PyTorch"
NO_TORCH = "not measured: no torch here"
OPTIMIZER = make_optimizer(Optimization())
SIZE = f"{SETTINGS.parameters / 1e6:.1f} M parameters, {BATCH * SETTINGS.sequence:,} tokens"
STEP = f"training step ({SIZE}, float32, AdamW)"
ONE = "our model under `jax.jit` on one device"


def one_device(
    batch: int = BATCH, sequence: int = SETTINGS.sequence, attention: str = "plain"
) -> list[str]:
    """The command that takes steps on one device."""
    return ["-m", "benchmarks.train_step", str(batch), str(sequence), attention]


RIVALS = {
    ONE: ("1.0", one_device()),
    f"eager {PYTORCH} in one process": ("1.0", TORCH),
    f"{PYTORCH} DistributedDataParallel, gloo, {DEVICES} processes": (
        "0.8",
        [*TORCH, f"dp={DEVICES}"],
    ),
}


def one_device_step(params, state, tokens, attention="plain"):
    loss_of = loss_fn(SETTINGS, split=Split(attention=attention))
    loss, gradients = jax.value_and_grad(loss_of)(params, tokens)
    updates, state = OPTIMIZER.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def take_steps(batch: int, sequence: int, attention: str) -> None:
    """Steps of AdamW on random tokens, on one device, by `jax.jit` alone."""
    tokens = random_tokens(batch, sequence)
    params = init(SETTINGS, jax.random.key(0))
    state = OPTIMIZER.init(params)
    step_of = partial(one_device_step, attention=attention)
    compiled = jax.jit(step_of, donate_argnums=(0, 1))

    def step() -> float:
        nonlocal params, state
        params, state, loss = compiled(params, state, tokens)
        return float(loss)

    serve(step)


def rows() -> list[Row]:
    what = f"{STEP}, data parallel on {DEVICES} simulated devices"
    return against(what, ours(mesh=f"dp={DEVICES}"), RIVALS)


def against(
    what: str,
    side: Sequence[str],
    rivals: Mapping[str, tuple[str, Sequence[str]]],
    same: int = STEPS,
) -> list[Row]:
    """A row for each rival, of which those of PyTorch run where there is one.

    The losses of so many first steps must be the `same`.
    """
    met = {name: rival for name, (_, rival) in rivals.items() if can_run(name)}
    times = race({what: side} | met, same)
    return [
        Row(
            f"{what}, against {name}",
            target,
            compared(times[what], times[name]) if name in met else NO_TORCH,
        )
        for name, (target, _) in rivals.items()
    ]


def can_run(name: str) -> bool:
    """Whether there is what a side needs: those of PyTorch are named after it."""
    return PYTORCH not in name or importlib.util.find_spec("torch") is not None


def compared(ours: Sequence[Turn], theirs: Sequence[Turn]) -> str:
    """The median of the ratios of every turn, and both medians: by the clock, and of all cores."""
    clock, cpu = (
        ratio(*([getattr(turn, field) for turn in side] for side in (ours, theirs)))
        for field in ("seconds", "cpu_seconds")
    )
    return f"{clock}; CPU {cpu}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    middle = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{middle:.2f} ({statistics.median(ours):.3g} s, {statistics.median(theirs):.3g} s)"


if __name__ == "__main__":
    if sys.argv[1:]:
        batch, sequence, attention = sys.argv[1:]
        take_steps(int(batch), int(sequence), attention)
    else:
        for row in rows():
            print(row.what, row.target, row.measured, sep=" | ")
