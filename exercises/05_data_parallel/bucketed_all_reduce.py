"""Exercise bucketed_all_reduce (lesson 05): several leaves in one all-reduce.

Your task: return the mean of the gradients over `axis`, by one all-reduce for each bucket.

Save it while `jaxpar` runs, or check it with `jaxpar check bucketed_all_reduce`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  one all-reduce for each bucket, of its bytes
#
# Tried with, on each device:
#   mesh dp=8
#     gradients     {embedding: float32[6, 8], first: {b: float32[16], w: float32[5, 8]}, last:
#                   {b: float32[8], w: float32[3, 8]}, output: float32[10, 8], scale: float32[8]}
#     axis          "dp"
#     bucket_bytes  256
#   mesh fsdp=3,tp=2
#     gradients     (bfloat16[44], [{b: bfloat16[12], w: bfloat16[6, 5]}, {b: bfloat16[12], w:
#                   bfloat16[6, 5]}])
#     axis          "fsdp"
#     bucket_bytes  84
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree


def bucketed_all_reduce(gradients: PyTree[Array], *, axis: str, bucket_bytes: int) -> PyTree[Array]:
    """Averages the gradients over the devices, with one all-reduce for each bucket of leaves.

    In the order of `jax.tree.leaves`, a leaf joins the current bucket if the bucket then holds at
    most `bucket_bytes`; otherwise it starts the next bucket. No leaf is split between buckets, and
    all leaves have the same dtype, in which they are sent.

    Math: y = (sum_j gradients_j) / n
    Source: Li et al. 2020 (PyTorch Distributed), section 3.2.2
    """
    raise NotImplementedError(
        "return the mean of the gradients over `axis`, by one all-reduce for each bucket"
    )
