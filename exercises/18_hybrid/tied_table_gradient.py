"""Exercise tied_table_gradient (lesson 18): a table that the first and the last stage use.

Your task: return this device's rows of the sum of both gradients, over both axes.

Save it while `jaxpar` runs, or check it with `jaxpar check tied_table_gradient`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   sharding      1  each device returns its own part only
#   communication 3  a reduce-scatter of one gradient over `shard_axis`, and an all-reduce of this
#                    device's rows over `pipeline_axis`
#
# Tried with, on each device:
#   mesh pp=2,dp=4
#     embedding_grad  float32[24, 6]
#     head_grad       float32[6, 24]
#     pipeline_axis   "pp"
#     shard_axis      "dp"
#   mesh fsdp=2,pp=3
#     embedding_grad  float32[10, 7]
#     head_grad       float32[7, 10]
#     pipeline_axis   "pp"
#     shard_axis      "fsdp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def tied_table_gradient(
    embedding_grad: Float[Array, "v d"],
    head_grad: Float[Array, "d v"],
    *,
    pipeline_axis: str,
    shard_axis: str,
) -> Float[Array, "v_shard d"]:
    """This device's rows of the gradient of a table that is both embedding and head.

    The first stage of the pipeline embeds tokens with the table, and the last one multiplies by its
    transpose. On the first stage (the first device of `pipeline_axis`), `embedding_grad` is the
    gradient from the first use. On the last stage, `head_grad` is that from the second use. On all
    other stages they may be anything. Both come from this device's tokens alone, which differ over
    `shard_axis`. On every stage, device i of the n on `shard_axis` returns the i-th of n equal
    parts of the rows of the sum over both axes; n divides v.

    Math: y = (sum_j embedding_grad_j on stage 0 + head_grad_j.T on stage p-1)[rows of device i]
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2; Rajbhandari et al. 2020, section 5.2
    """
    raise NotImplementedError(
        "return this device's rows of the sum of both gradients, over both axes"
    )
