"""Our training step on simulated devices: the fields of a plan in JSON, and the batch's size."""

import json
import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.sides.race import serve
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import Settings
from jaxpar.train.plan import Plan
from jaxpar.train.setup import set_up

DEVICES, BATCH = 8, 16
SETTINGS = Settings()


def take_steps(plan: Plan, batch: int) -> None:
    """Steps of AdamW on random tokens."""
    simulate_devices(plan.devices)
    mesh = make_mesh(plan.sizes)
    shape, lie = (batch, SETTINGS.sequence + 1), NamedSharding(mesh, P(plan.data_axes))
    tokens = jax.random.randint(jax.random.key(1), shape, 0, SETTINGS.vocabulary, jnp.int32)
    tokens = jax.device_put(tokens, lie)
    like = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=lie)
    made = set_up(SETTINGS, plan, mesh, like, 0, None)
    params, state = made.params, made.state

    def step() -> float:
        nonlocal params, state
        params, state, loss = made.step(params, state, tokens)
        return float(loss)

    serve(step)


def ours(batch: int = BATCH, **fields: object) -> list[str]:
    """The command that takes steps of this plan."""
    return ["-m", "benchmarks.sides.our_step", json.dumps(fields), str(batch)]


if __name__ == "__main__":
    take_steps(Plan(**json.loads(sys.argv[1])), int(sys.argv[2]))
