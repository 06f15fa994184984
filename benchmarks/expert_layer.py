"""A layer of experts: what it sends, what its products take, and how even its load becomes."""

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks import Row
from benchmarks.sides.our_experts import (
    CAPACITY,
    DEVICES,
    EXPERTS,
    FACTOR,
    ROWS,
    SPECS,
    TOKENS,
    TOP_K,
    D,
    F,
    arrays_on,
    ours,
)
from benchmarks.sides.race import race
from benchmarks.train_step import PYTORCH, against, compared
from jaxpar.cost.experts import dispatch_bytes
from jaxpar.experts import grouped_matmul, route
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import Settings
from jaxpar.parallel.expert import moe_dropless, moe_token_choice
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import begin
from jaxpar.train.text import read_library

BLOCK, TURNS = 128, 9
SIZE = f"{TOKENS} tokens of {D}, {EXPERTS} experts of {F}, {TOP_K} for each token"
LAYER = f"forward and gradient of a layer of experts ({SIZE}, factor {FACTOR}, float32)"
ONE = "one device with as many rows of each expert"
# Of real text, on which a decoder learns for so many steps; the load is that of the last ones.
TEXT = Settings(layers=2, d_model=64, heads=4, d_ff=64, sequence=64, experts=EXPERTS, top_k=TOP_K)
BATCH, STEPS, LAST = 64, 400, 50
TARGETS = {"none": "above 2", "loss": "reported", "bias": "below 1.3"}


def sent_rows() -> Iterator[Row]:
    """What a device sends, both ways, over what the formula says must cross."""
    mesh = make_mesh({"ep": DEVICES})
    given = arrays_on(mesh)
    least = dispatch_bytes(
        TOKENS // DEVICES, D, experts=EXPERTS, top_k=TOP_K, capacity_factor=FACTOR,
        devices=DEVICES, element_bytes=4,
    )  # fmt: skip
    ways = {
        "by all-to-alls": partial(moe_token_choice, capacity=CAPACITY),
        "by a gather": partial(moe_dropless, block=BLOCK),
    }
    for (way, mix), bytes_ in zip(ways.items(), least, strict=True):

        def layer(given: dict[str, Array], mix: Callable[..., Array] = mix) -> Array:
            to = route(given["x"], given["router"], top_k=TOP_K)
            own = given["gate"], given["up"], given["down"]
            return mix(given["x"], to.weights, to.experts, *own, axis="ep")

        program = jax.jit(jax.shard_map(layer, mesh=mesh, in_specs=(SPECS,), out_specs=ROWS))
        sent = inspect(program, given).wire_bytes_by_axis()["ep",]
        yield Row(
            f"bytes sent by a device in a layer of experts, {way}, over the minimum "
            f"({SIZE}, {DEVICES} devices)",
            "1.000",
            f"{sent / bytes_:.3f} ({sent / 1e6:.2f} MB)",
        )


def product_rows() -> Iterator[Row]:
    """Products of groups of rows by blocks, against `jax.lax.ragged_dot`, which a CPU has too."""
    given = arrays_on(make_mesh({"ep": 1}))
    to = route(given["x"], given["router"], top_k=1)
    x = given["x"][jnp.argsort(to.experts[:, 0])]
    sizes = jnp.bincount(to.experts[:, 0], length=EXPERTS)
    ways = {
        "all": partial(grouped_matmul, block=BLOCK),
        "those in use": partial(grouped_matmul, block=BLOCK, skip=True),
        "ragged_dot": lax.ragged_dot,
    }
    kinds: dict[str, Callable] = {"forward": lambda way: way, "gradient": gradient_of}
    for kind, make in kinds.items():
        programs = {name: jax.jit(make(way)) for name, way in ways.items()}
        turns = [
            {name: seconds(program, x, given["gate"], sizes) for name, program in programs.items()}
            for _ in range(1 + TURNS)
        ][1:]
        theirs = statistics.median(turn["ragged_dot"] for turn in turns)
        for blocks in ("all", "those in use"):
            took = statistics.median(turn[blocks] for turn in turns)
            middle = statistics.median(turn[blocks] / turn["ragged_dot"] for turn in turns)
            yield Row(
                f"{kind} of a product of {EXPERTS} groups, [{TOKENS}, {D}] @ [{D}, {F}], by blocks "
                f"of {BLOCK}, {blocks}, against `jax.lax.ragged_dot` on CPU",
                "0.3",
                f"{middle:.2f} ({took * 1e3:.1f} ms, {theirs * 1e3:.1f} ms)",
            )


def gradient_of(multiply: Callable[..., Array]) -> Callable[..., Any]:
    """The gradients with respect to rows and matrices, forward pass included."""

    def gradients(x: Array, w: Array, sizes: Array) -> Any:
        return jax.grad(lambda x, w: (multiply(x, w, sizes) ** 2).sum(), argnums=(0, 1))(x, w)

    return gradients


def seconds(program: Callable[..., Any], *given: Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(program(*given))
    return time.perf_counter() - start


def layer_rows() -> Iterator[Row]:
    """A layer on devices that split the experts, against one device, and against PyTorch."""
    what = f"{LAYER}, ep={DEVICES} on simulated devices"
    times = race({what: ours(DEVICES), ONE: ours(1)})
    yield Row(f"{what}, against {ONE}", "1.3", compared(times[what], times[ONE]))
    torch = f"{PYTORCH}, experts of nn.Linear, all_to_all_single over gloo, {DEVICES} processes"
    command = ["-m", "benchmarks.sides.torch_experts"]
    yield from against(what, ours(DEVICES), {torch: ("0.8", command)})


def load_rows() -> Iterator[Row]:
    """The load of the busiest expert of any layer while a decoder learns from real text."""
    recipe = make_recipe(f"ep={DEVICES},dp=2", batch=BATCH)
    for balance, target in TARGETS.items():
        largest, losses = loads(recipe, balance)
        yield Row(
            f"largest load of an expert over the mean, balance {balance}, last {LAST} of {STEPS} "
            f"steps on real text ({TEXT.layers} layers, {EXPERTS} experts, {TOP_K} for each token)",
            target,
            f"{largest:.2f} (loss {losses:.2f})",
        )


def loads(recipe: Recipe, balance: str) -> tuple[float, float]:
    """The means over the last steps of the largest load, and of the loss."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    run = begin(replace(TEXT, balance=balance), recipe, mesh, read_library(), seed=0)
    last = deque(itertools.islice(run.steps, STEPS), LAST)
    return (
        statistics.mean(step.largest_load or 0 for step in last),
        statistics.mean(step.loss for step in last),
    )


def rows() -> list[Row]:
    simulate_devices(2 * DEVICES)
    return [*sent_rows(), *product_rows(), *layer_rows(), *load_rows()]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
