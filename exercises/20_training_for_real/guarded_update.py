"""Exercise guarded_update (lesson 20): a step that all devices skip together.

Your task: update, or keep everything as it was where the norm is not finite or far above its mean.

Save it while `jaxpar` runs, or check it with `jaxpar check guarded_update`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  numbers only: at most two to every other device
#   errors        1  ValueError where factor is 0; factor is below 0
#
# Tried with, on each device:
#   mesh fsdp=4
#     grads      {layers: [float32[5, 12], float32[5]], table: float32[12, 5]}
#     params     {layers: [float32[5, 12], float32[5]], table: float32[12, 5]}
#     state      ((int32[], {layers: [float32[5, 12], float32[5]], table: float32[12, 5]}), the
#                running mean, made from float32[])
#     optimizer  counted
#     factor     1.5
#     axis       "fsdp"
#   mesh dp=2,tp=3
#     grads      {layers: [float32[4, 10], float32[4]], table: float32[10, 4]}
#     params     {layers: [float32[4, 10], float32[4]], table: float32[10, 4]}
#     state      ((int32[], {layers: [float32[4, 10], float32[4]], table: float32[10, 4]}), the
#                running mean, made from float32[])
#     optimizer  counted
#     factor     2.0
#     axis       "tp"
#   mesh fsdp=4
#     grads      [float32[2, 9]]
#     params     [float32[2, 9]]
#     state      ((int32[], [float32[2, 9]]), the running mean, made from float32[])
#     optimizer  counted
#     factor     2.0
#     axis       "fsdp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree


def guarded_update(
    grads: PyTree[Array],
    params: PyTree[Array],
    state: tuple[PyTree[Array], Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    *,
    factor: float,
    axis: str,
) -> tuple[PyTree[Array], tuple[PyTree[Array], Float[Array, ""]], Bool[Array, ""]]:
    """Updates sharded parameters, or skips the step on all devices, where its gradients are bad.

    Every leaf of `grads` and `params` is split over the axis, and so is what the optimizer's state
    has for it. `state` is that optimizer's state, and the running mean of the norm: a float32
    number, which is 0 as long as no step has been taken. A step is good if the norm of all leaves,
    on all devices, is finite and at most `factor` times the running mean, or, where that is 0, if
    it is finite. In a good step the optimizer updates the parameters, and the mean becomes 0.9
    times itself and 0.1 times the norm, or the norm itself where it was 0. In any other step all
    parameters and the whole state, with its counts, stay as they are, bit for bit. Returns the
    parameters, the state, and whether the step was good. Leaves keep their dtypes; squares and
    their sum are float32.

    Math: good = norm < infinity and (mean = 0 or norm <= factor*mean)
    Source: Chowdhery et al. 2022 (PaLM), section 5.1, who leave out the batches around a spike;
        the rule is ours

    Raises:
        ValueError: `factor` is not above 0.
    """
    raise NotImplementedError(
        "update, or keep everything as it was where the norm is not finite or far above its mean"
    )
