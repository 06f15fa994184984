"""Adapters of low rank (LoRA): two narrow matrices beside each matrix of a layer.

Only they are trained; the matrix beside which they stand stays as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float, PyTree

from jaxpar import nn
from jaxpar.collectives.leaves import STACKED
from jaxpar.model.few_bits import decode
from jaxpar.model.leaf_names import ADAPTER
from jaxpar.model.settings import Settings
from jaxpar.model.split import Split
from jaxpar.parallel.adapters import lora_linear, merge

Factors = tuple[Array, Array]

SCALE = 2.0  # alpha/r of Hu et al. 2021, section 4.1, here the same for every rank


class Adapter(nnx.Module):
    """What is trained beside a matrix [i, o]: SCALE * a @ b, which is 0 at first."""

    def __init__(self, rngs: nnx.Rngs, i: int, o: int, rank: int):
        self.a = nnx.Param(jax.random.normal(rngs.adapters(), (i, rank)) / math.sqrt(i))
        self.b = nnx.Param(jnp.zeros((rank, o)))

    @property
    def factors(self) -> Factors:
        """The two narrow matrices."""
        return self.a[...], self.b[...]


def make_adapter(rngs: nnx.Rngs, i: int, o: int, rank: int) -> Adapter | None:
    """An adapter for a matrix [i, o]; None if its rank is 0."""
    return Adapter(rngs, i, o, rank) if rank else None


def columns(
    split: Split,
    x: Float[Array, "b t d"],
    weights: Sequence[Float[Array, "d _"]],
    factors: Sequence[Factors],
    name: str,
) -> tuple[Float[Array, "b s _"], ...]:
    """Multiplies x by this device's columns of each weight, to which its factors are added.

    Of an adapter, each device has all of a, and its columns of b. x is read, and gathered, once.
    """
    products = split.columns(x, *weights, *(a for a, _ in factors), name=name)
    if not factors:
        return products
    results, lows = products[: len(weights)], products[len(weights) :]
    return tuple(
        checkpoint_name(y + nn.matmul(SCALE * checkpoint_name(low, "low_rank"), b), "adapted")
        for y, low, (_, b) in zip(results, lows, factors, strict=True)
    )


def rows(
    x: Float[Array, "*n i"], w: Float[Array, "i o"], adapter: Adapter | None
) -> Float[Array, "*n o"]:
    """Multiplies x by rows of a weight and of its adapter, whose b each device has in full."""
    if adapter is None:
        return nn.matmul(x, w)
    a, b = adapter.factors
    return lora_linear(x, w, a, b, scale=SCALE)


def merged(settings: Settings, params: PyTree[Any]) -> tuple[Settings, PyTree[Any]]:
    """The decoder without adapters that computes what this one does; its layers are on the host."""
    if not settings.adapter_rank:
        return settings, params
    bits = settings.base_bits
    layers = decode(params[STACKED], bits) if bits else params[STACKED]
    plain = replace(settings, adapter_rank=0, base_bits=None)
    return plain, params | {STACKED: jax.tree.map(np.asarray, jax.jit(_merged)(layers))}


def _merged(layers: PyTree[Array]) -> PyTree[Array]:
    """The parameters of stacked layers, with adapters merged into matrices."""
    parts = {name: part for name, part in layers.items() if not name.endswith(ADAPTER)}
    for name, part in parts.items():
        adapter = layers.get(f"{name}{ADAPTER}")
        if adapter:
            parts[name] = jax.vmap(partial(merge, scale=SCALE))(part, adapter["a"], adapter["b"])
        elif isinstance(part, dict):
            parts[name] = _merged(part)
    return parts
