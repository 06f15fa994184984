"""Exercise mixed_precision_step (lesson 07): a step in float16 that skips overflows.

Your task: return new master parameters, new state and whether the gradients were finite.

Save it while `jaxpar` runs, or check it with `jaxpar check mixed_precision_step`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  nothing is sent
#   flops         1  each matrix product once, and of float16 values
#
# Tried with, on each device:
#   mesh dp=8
#     loss_fn    the squared error of two matrices; on a rare batch one gradient is huge
#     master     {w_in: float32[6, 16], w_out: float32[16]}
#     opt_state  the state of AdamW after 100 steps or more; no mean square is nearly zero, made
#                from int32[] and {w_in: float32[6, 16], w_out: float32[16]}
#     batch      {inputs: float32[32, 6], targets: float32[32], rare: bool[1]}
#     optimizer  adamw
#     scale      1073741824.0
#   mesh fsdp=3,tp=2
#     loss_fn    the squared error of a list of layers; on a rare batch most gradients are huge
#     master     [{w: float32[5, 12], scale: float32[12]}, {w: float32[12, 3]}]
#     opt_state  the state of momentum after some steps, made from [{w: float32[5, 12], scale:
#                float32[12]}, {w: float32[12, 3]}]
#     batch      (float32[20, 5], float32[20, 3], bool[1])
#     optimizer  momentum
#     scale      2147483648.0
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree


def mixed_precision_step(
    loss_fn: Callable[[Any, Any], Array],
    master: PyTree[Float[Array, "..."]],
    opt_state: Any,
    batch: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    scale: float | Float[Array, ""],
) -> tuple[PyTree[Float[Array, "..."]], Any, Bool[Array, ""]]:
    """One step in float16: the new float32 parameters and state, and whether the step was made.

    `master` is float32. `loss_fn(params, batch)` computes in the float type of `params`, and
    returns a float32 loss. The gradients are taken of `scale` times the loss in float16; the
    optimizer gets them in float32, divided by `scale`. If any of them is not finite, nothing
    changes.

    Math: g = float32(gradient of scale*loss_fn with respect to float16(master)) / scale;
        updates, state' = optimizer.update(g, opt_state, master); master' = master + updates
    Source: Micikevicius et al. 2018 (Mixed Precision Training), sections 3.1 and 3.2
    """
    raise NotImplementedError(
        "return new master parameters, new state and whether the gradients were finite"
    )
