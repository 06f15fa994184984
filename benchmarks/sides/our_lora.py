"""Our training step of adapters: MLPs with a frozen base, LoRA beside each matrix, AdamW."""

import sys

import jax
import numpy as np
import optax
from jax import Array, lax

from benchmarks.sides.race import serve
from jaxpar import nn
from jaxpar.parallel.adapters import lora_linear

LAYERS, D, F, R, TOKENS = 4, 512, 2048, 16, 512
SCALE, RATE, DECAY = 2.0, 1e-3, 0.01

Arrays = dict[str, np.ndarray]


def random_arrays() -> tuple[Arrays, Arrays, np.ndarray]:
    """The same in every side that races: the base, the adapters, and the input."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape, scale=shape[-2] ** -0.5).astype(np.float32)

    base = {"up": normal(LAYERS, D, F), "down": normal(LAYERS, F, D)}
    low = {
        "up_a": normal(LAYERS, D, R), "up_b": normal(LAYERS, R, F) / 8,
        "down_a": normal(LAYERS, F, R), "down_b": normal(LAYERS, R, D) / 8,
    }  # fmt: skip
    return base, low, rng.normal(size=(TOKENS, D)).astype(np.float32)


Tree = dict[str, Array]


def layer(x: Array, parts: tuple[Tree, Tree]) -> Array:
    """The stream after an MLP with its adapters."""
    w, ab = parts
    up = lora_linear(x, w["up"], ab["up_a"], ab["up_b"], scale=SCALE)
    return x + lora_linear(nn.gelu(up), w["down"], ab["down_a"], ab["down_b"], scale=SCALE)


def loss_by_scan(low: Tree, base: Tree, x: Array) -> Array:
    """The mean square of what stacked layers make of x."""
    y, _ = lax.scan(lambda x, parts: (layer(x, parts), None), x, (base, low))
    return (y**2).mean()


def loss_by_list(low: list[Tree], base: list[Tree], x: Array) -> Array:
    """The same, where each layer has arrays of its own."""
    for parts in zip(base, low, strict=True):
        x = layer(x, parts)
    return (x**2).mean()


def take_steps(layers: str) -> None:
    """Steps of AdamW, of which the adapters alone have a state."""
    base, low, x = jax.tree.map(jax.numpy.asarray, random_arrays())
    loss = loss_by_scan
    if layers == "list":
        loss = loss_by_list
        base, low = (
            [{k: v[i] for k, v in tree.items()} for i in range(LAYERS)] for tree in (base, low)
        )
    optimizer = optax.adamw(RATE, weight_decay=DECAY)

    @jax.jit
    def compiled(low, state, base, x):
        value, gradients = jax.value_and_grad(loss)(low, base, x)
        updates, state = optimizer.update(gradients, state, low)
        return optax.apply_updates(low, updates), state, value

    state = optimizer.init(low)

    def step() -> float:
        nonlocal low, state
        low, state, value = compiled(low, state, base, x)
        return float(value)

    serve(step)


if __name__ == "__main__":
    take_steps(*sys.argv[1:])
