"""Exercise one_peer_average (lesson 06): an average with another device in each step.

Your task: return the mean of params here and on the device 2**(step mod log2 n) places before.

Save it while `jaxpar` runs, or check it with `jaxpar check one_peer_average`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   gradient      1  the gradient with respect to params
#   communication 3  one permute's bytes of params
#   errors        1  ValueError where n = 6; n = 3; n = 12
#
# Tried with, on each device:
#   mesh dp=8
#     params  {w: float32[8, 8], layers: [float32[8], float32[3, 2, 8]]}
#     axis    "dp"
#     step    1
#   mesh dp=8
#     params  {w: float32[5, 8], layers: [float32[8], float32[3, 2, 5]]}
#     axis    "dp"
#     step    4
#   mesh dp=2,tp=4
#     params  {w: float32[6, 10], layers: [float32[10], float32[3, 2, 6]]}
#     axis    "tp"
#     step    4
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree


def one_peer_average(params: PyTree[Array], *, axis: str, step: int) -> PyTree[Array]:
    """The mean of the parameters of this device and of one other, another one in each step.

    Device i receives from device i - d (modulo n), where d = 2**(step mod log2(n)). After log2(n)
    such averages in a row, every device has the mean of all, if nothing else has changed the
    parameters.

    Math: y_i = (params_i + params_(i-d))/2
    Source: Ying et al. 2021 (Exponential Graph is Provably Efficient), section 4; Assran et al.
        2019 (Stochastic Gradient Push)

    Raises:
        ValueError: the number of devices is not a power of two.
    """
    raise NotImplementedError(
        "return the mean of params here and on the device 2**(step mod log2 n) places before"
    )
