"""Exercise masked_mean (lesson 05): a mean that leaves padding out.

Your task: return the mean of the values whose mask is true, over all devices of `axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check masked_mean`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   gradient      1  the gradient with respect to values
#   communication 3  scalars only: a total and a count from each device
#
# Tried with, on each device:
#   mesh dp=8
#     values  float32[40]
#     mask    bool[40]
#     axis    "dp"
#   mesh fsdp=2,tp=3
#     values  float32[9, 4]
#     mask    bool[9, 4]
#     axis    "fsdp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float


def masked_mean(
    values: Float[Array, "*b"], mask: Bool[Array, "*b"], *, axis: str
) -> Float[Array, ""]:
    """The mean of the values whose mask is true, over all devices of the axis.

    The last batch of an epoch is padded, so that every device has the same number of values. A
    device may have none that is real, but on at least one device at least one value is. Padding may
    be anywhere, and its values do not matter, even if they are NaN or infinite. The result has the
    dtype of `values`.

    Math: y = (sum_j sum mask_j*values_j) / (sum_j sum mask_j)
    Source: Goyal et al. 2017 (Accurate, Large Minibatch SGD), section 3 (gradient aggregation)
    """
    raise NotImplementedError(
        "return the mean of the values whose mask is true, over all devices of `axis`"
    )
