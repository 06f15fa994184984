"""A layer of experts and its gradient, on simulated devices that split the experts, or on one."""

import sys
from collections.abc import Callable
from functools import partial

import jax
from jax import Array, P, lax
from jax.sharding import Mesh, NamedSharding

from benchmarks.sides.race import serve
from jaxpar.cost.experts import expert_capacity
from jaxpar.experts import apply_experts, route, with_capacity
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.parallel.expert import moe_token_choice

DEVICES = 4
TOKENS, D, F, EXPERTS, TOP_K, FACTOR = 4096, 256, 512, 8, 2, 1.25
CAPACITY = expert_capacity(TOKENS // DEVICES, experts=EXPERTS, top_k=TOP_K, capacity_factor=FACTOR)
ROWS = P("ep")
SPECS = {"x": ROWS, "c": ROWS, "router": P(), "gate": ROWS, "up": ROWS, "down": ROWS}


def random_arrays() -> dict[str, Array]:
    """The same in every side that races: tokens x, weights c of what comes out, and parameters."""
    shapes = {"x": (TOKENS, D), "c": (TOKENS, D), "router": (D, EXPERTS)}
    shapes |= {"gate": (EXPERTS, D, F), "up": (EXPERTS, D, F), "down": (EXPERTS, F, D)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, shape) / (1 if name in "xc" else shape[-2] ** 0.5)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def loss_of(mix: Callable[..., Array], given: dict[str, Array]) -> Array:
    """This device's part of the mean of c times what the experts give."""
    to = route(given["x"], given["router"], top_k=TOP_K)
    y = mix(given["x"], to.weights, to.experts, given["gate"], given["up"], given["down"])
    return (y * given["c"]).sum() / (TOKENS * D)


def over_devices(x: Array, *rest: Array) -> Array:
    """The experts are split over the devices."""
    return moe_token_choice(x, *rest, capacity=CAPACITY, axis="ep")


def at_one(x: Array, weights: Array, experts: Array, *own: Array) -> Array:
    """One device has all experts, with as many rows in all."""
    rows = DEVICES * CAPACITY
    apply = lambda x: apply_experts(x, *own)  # noqa: E731
    return with_capacity(x, weights, experts, apply, count=EXPERTS, capacity=rows)


def make_step(mesh: Mesh) -> jax.stages.Wrapped:
    """The jitted function from arrays to the loss and its gradients with respect to all of them."""
    mix = over_devices if mesh.size > 1 else at_one

    def step(given: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        loss, gradients = jax.value_and_grad(partial(loss_of, mix))(given)
        return lax.psum(loss, "ep"), gradients

    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(SPECS,), out_specs=(P(), SPECS)))


def arrays_on(mesh: Mesh) -> dict[str, Array]:
    """The arrays as the devices of a mesh have them."""
    return {
        name: jax.device_put(array, NamedSharding(mesh, SPECS[name]))
        for name, array in random_arrays().items()
    }


def take_steps(devices: int) -> None:
    """Losses and gradients, again and again."""
    simulate_devices(devices)
    mesh = make_mesh({"ep": devices})
    step, given = make_step(mesh), arrays_on(mesh)

    def once() -> float:
        loss, _ = jax.block_until_ready(step(given))
        return float(loss)

    serve(once)


def ours(devices: int) -> list[str]:
    """The command of so many devices."""
    return ["-m", "benchmarks.sides.our_experts", str(devices)]


if __name__ == "__main__":
    take_steps(int(sys.argv[1]))
