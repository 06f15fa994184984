"""Our checkpoints of the default decoder with AdamW, its states sharded over 8 simulated devices.

Every line of stdin is answered with the seconds of a save, of a load, and for which a save in the
background blocks the steps, then with the bytes of a checkpoint, the seconds of `EVERY` steps, and
of as many of which one is saved.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.sides.our_step import BATCH, DEVICES, SETTINGS, random_tokens
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.train.checkpoint import Checkpoints, Keeping
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import set_up

EVERY = 10
TEXT = np.zeros(1, np.uint8)
RECIPE = make_recipe(f"fsdp={DEVICES}", batch=BATCH)


class State:
    """Parameters and state after some steps."""

    def __init__(self) -> None:
        mesh = make_mesh(RECIPE.layout.mesh_sizes)
        sharding = NamedSharding(mesh, P(RECIPE.layout.batch_axes))
        self.tokens = jax.device_put(random_tokens(BATCH), sharding)
        like = jax.ShapeDtypeStruct(self.tokens.shape, jnp.int32, sharding=sharding)
        self.step_of, self.params, self.state, *_ = set_up(SETTINGS, RECIPE, mesh, like, 0, None)
        self.step()

    def step(self) -> None:
        """Takes one step."""
        self.params, self.state, measures = self.step_of(self.params, self.state, self.tokens)
        float(measures.loss)

    def steps(self) -> None:
        """Takes `EVERY` steps."""
        for _ in range(EVERY):
            self.step()


def answer(state: State, number: int, folder: Path) -> list[float]:
    """The numbers of one turn."""

    def checkpoints(**kept: Any) -> Checkpoints:
        return Checkpoints(Keeping(folder, every=1, keep=1, **kept), SETTINGS, RECIPE, TEXT, 0)

    saving = checkpoints(resume=number > 1)

    def save(step: int, *, last: bool) -> None:
        saving.after(step, state.params, state.state, last=last)

    saved = seconds(lambda: save(4 * number + 1, last=True))
    blocked = seconds(lambda: save(4 * number + 2, last=False))
    save(4 * number + 3, last=True)

    def steps_with_a_save() -> None:
        save(4 * number + 4, last=False)
        state.steps()

    alone, beside = seconds(state.steps), seconds(steps_with_a_save)
    saving.close()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def load() -> None:
        loading = checkpoints(resume=True)
        state.params, state.state = loading.restore(state.params, state.state)
        jax.block_until_ready((state.params, state.state))
        loading.close()

    return [saved, seconds(load), blocked, size, alone, beside]


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    simulate_devices(DEVICES)
    state = State()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for number, _ in enumerate(sys.stdin, 1):
            print(*answer(state, number, Path(folder) / "run"), flush=True)


if __name__ == "__main__":
    main()
