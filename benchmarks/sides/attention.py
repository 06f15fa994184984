"""Both passes of causal attention in one process, by a way that is named on the command line.

What stands for a loss is a sum of squares, so that no part of it cancels.
"""

import sys
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jax import Array

from benchmarks.sides.race import serve
from jaxpar import nn
from jaxpar.flash import flash_attention

HEADS, KV_HEADS, SIZE, TILE = 8, 2, 32, 128
WAYS = {"flash": partial(flash_attention, tile=TILE), "plain": nn.attention}


def arrays(t: int) -> list[np.ndarray]:
    """Queries, keys, values, and the gradient with respect to the result."""
    draw = np.random.default_rng(0).standard_normal
    heads = (HEADS, KV_HEADS, KV_HEADS, HEADS)
    return [draw((1, count, t, SIZE)).astype(np.float32) for count in heads]


def both_passes(attention: Callable[..., Array], *given: Array) -> tuple[Array, ...]:
    """The result, and the gradients."""
    *qkv, do = given
    y, pull = jax.vjp(attention, *qkv)
    return y, *pull(do)


def by_jax(way: str, t: int) -> Callable[[], float]:
    """A step of ours."""
    given = [jax.numpy.asarray(x) for x in arrays(t)]

    @jax.jit
    def squares(*given: Array) -> Array:
        """For each position; XLA would round off more of one long sum."""
        parts = [(x**2).sum((0, 1, 3)) for x in both_passes(WAYS[way], *given)]
        return jax.numpy.stack(parts).sum(0)

    return lambda: float(np.asarray(squares(*given), np.float64).sum())


def by_torch(t: int) -> Callable[[], float]:
    """A step of PyTorch's `scaled_dot_product_attention`, whose kernel for CPUs is flash."""
    import torch  # pyright: ignore[reportMissingImports]
    from torch.nn import functional  # pyright: ignore[reportMissingImports]

    *qkv, do = (torch.from_numpy(x) for x in arrays(t))
    qkv = [x.requires_grad_() for x in qkv]

    def step() -> float:
        q, k, v = qkv
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        gradients = torch.autograd.grad(y, qkv, do)
        return sum((x.detach() ** 2).sum().item() for x in (y, *gradients))

    return step


if __name__ == "__main__":
    way, t = sys.argv[1], int(sys.argv[2])
    serve(by_torch(t) if way == "torch" else by_jax(way, t))
