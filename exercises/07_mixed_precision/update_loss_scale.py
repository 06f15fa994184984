"""Exercise update_loss_scale (lesson 07): how the loss scale grows and shrinks.

Your task: return the next scale, and the steps without overflow that count for its growth.

Save it while `jaxpar` runs, or check it with `jaxpar check update_loss_scale`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  nothing is sent
#
# Tried with, on each device:
#   mesh dp=2,cp=2,tp=2
#     scale            a scale: just above the minimum, or some times as much, made from bool[6]
#                      and float32[6]
#     good_steps       steps that count, from 0 on: at the edge of growing, or not, made from
#                      bool[6] and int32[6]
#     grads_finite     whether there was no overflow, made from bool[6]
#     growth_interval  5
#     factor           2.0
#     minimum          1.0
#   mesh pp=2,fsdp=2,tp=2
#     scale            a scale: just above the minimum, or some times as much, made from bool[4]
#                      and float32[4]
#     good_steps       steps that count, from 0 on: at the edge of growing, or not, made from
#                      bool[4] and int32[4]
#     grads_finite     whether there was no overflow, made from bool[4]
#     growth_interval  9
#     factor           4.0
#     minimum          0.5
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int


def update_loss_scale(
    scale: Float[Array, ""],
    good_steps: Int[Array, ""],
    grads_finite: Bool[Array, ""],
    *,
    growth_interval: int,
    factor: float,
    minimum: float,
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The next scale of the loss, and the number of steps without overflow that count for it.

    A step with finite gradients adds 1 to the count. When the count reaches `growth_interval`, the
    scale grows by `factor`, and the count starts at 0 again. After an overflow, the scale shrinks
    by `factor`, but not below `minimum`, and the count is 0.

    Math: finite: (scale, good_steps+1), or (scale*factor, 0) if that is growth_interval;
        else (max(scale/factor, minimum), 0)
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.2
    """
    raise NotImplementedError(
        "return the next scale, and the steps without overflow that count for its growth"
    )
