"""Losses that answers are given, one for each token; and arguments for them.

Each adds a penalty that the batch has for the token, which may be NaN where the token is padding:
then the loss is NaN there, and its gradient is not.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxpar.contracts.case import ArraySpec, Function

Masks = tuple[str, tuple[int, ...], Literal["padded", "holes"]]
"""The layout of the tokens, their dims, and how the mask is drawn."""


def cross_entropies(params: dict[str, Array], batch: dict[str, Array]) -> Array:
    """The cross-entropy of each token, plus a penalty: [b, t]; in float32 at least."""
    table, w_in, w_out = (_wide(params[name]) for name in ("table", "w_in", "w_out"))
    hidden = jnp.tanh(table[batch["tokens"] % len(table)] @ w_in / len(w_in) ** 0.5)
    logits = hidden @ w_out / len(w_out) ** 0.5
    targets = batch["targets"] % logits.shape[-1]
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen + batch["penalties"]


def squared_errors(params: list[Array], batch: tuple[Array, Array, Array]) -> Array:
    """The squared error of each token, plus a penalty: [b, t]."""
    x, targets, penalties = batch
    w_in, w_out = params
    return (jnp.tanh(x @ w_in / len(w_in)) @ w_out - targets - 8) ** 2 + penalties


def cross_entropies_args(
    sizes: tuple[int, int, int], dtype: str = "float32", *, masks: Masks
) -> dict[str, Any]:
    """The arguments `loss_fn`, `params`, `batches` and `masks`.

    Args:
        sizes: those of the vocabulary, of a vector in the table and of a hidden one.
        dtype: that of both matrices; the table is float32.
        masks: those of the mask, and of all that the batch has for a token.
    """
    v, d, f = sizes
    layout, shape, draw = masks
    return {
        "loss_fn": Function("jaxpar.contracts.token_losses:cross_entropies"),
        "params": {
            "table": ArraySpec((v, d), "v d"),
            "w_in": ArraySpec((d, f), "d f", dtype),
            "w_out": ArraySpec((f, v), "f v", dtype),
        },
        "batches": {
            "tokens": ArraySpec(shape, layout, "int32"),
            "targets": ArraySpec(shape, layout, "int32"),
            "penalties": ArraySpec(shape, layout, draw="positive"),
        },
        "masks": ArraySpec(shape, layout, "bool", draw=draw),
    }


def squared_errors_args(sizes: tuple[int, int], *, masks: Masks) -> dict[str, Any]:
    """The same for `squared_errors`, with the sizes of a token and of a hidden vector."""
    d, f = sizes
    layout, shape, draw = masks
    return {
        "loss_fn": Function("jaxpar.contracts.token_losses:squared_errors"),
        "params": [ArraySpec((d, f), "d f"), ArraySpec((f,), "f")],
        "batches": (
            ArraySpec((*shape, d), f"{layout} d"),
            ArraySpec(shape, layout),
            ArraySpec(shape, layout, draw="positive"),
        ),
        "masks": ArraySpec(shape, layout, "bool", draw=draw),
    }


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
