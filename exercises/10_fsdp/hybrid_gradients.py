"""Exercise hybrid_gradients (lesson 10): shards inside a node, replicas between nodes.

Your task: return the mean gradient over both axes, this device's rows of `shard_axis` only.

Save it while `jaxpar` runs, or check it with `jaxpar check hybrid_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   sharding      1  each device returns its own part only
#   communication 3  over `shard_axis` a reduce-scatter of the gradient, over `replica_axis` an
#                    all-reduce of this device's rows
#
# Tried with, on each device:
#   mesh dp=4,fsdp=2
#     grad          {matrix: float32[12, 6], scale: float32[8]}
#     shard_axis    "fsdp"
#     replica_axis  "dp"
#   mesh dp=2,fsdp=3,tp=2
#     grad          [float32[6, 4, 2]]
#     shard_axis    "fsdp"
#     replica_axis  "tp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree


def hybrid_gradients(grad: PyTree[Array], *, shard_axis: str, replica_axis: str) -> PyTree[Array]:
    """This device's rows of the mean gradient, for parameters in hybrid sharding.

    The parameters are sharded over `shard_axis` (the devices of a node, say), and replicated over
    `replica_axis` (the nodes). `grad` is the gradient on this device's shard of the batch with
    respect to the full parameters: each leaf is [d, ...], and the n devices of `shard_axis` divide
    d. Each gradient is sent, and returned, in its own dtype.

    Math: y = mean over both axes of grad[rows of this device], rows [d/n, ...]
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3.2.2
    """
    raise NotImplementedError(
        "return the mean gradient over both axes, this device's rows of `shard_axis` only"
    )
