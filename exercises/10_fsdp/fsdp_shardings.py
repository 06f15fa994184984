"""Exercise fsdp_shardings (lesson 10): specs from which the compiler makes FSDP.

Your task: return a partition spec for each leaf: large ones split over `axis`, small ones whole.

Save it while `jaxpar` runs, or check it with `jaxpar check fsdp_shardings`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        2  a partition spec for each leaf, such as its shape and the mesh allow
#   sharding      4  large leaves are split over the axis alone, small ones are replicated
#   memory        4  parameters and AdamW's state take 1/n of their bytes, small leaves apart;
#                    intermediate results at most 1.5 times the library's
#
# Tried with:
#   mesh fsdp=4
#     params        {embedding: float32[130, 64], layers: {scale: float32[8, 64], up: float32[8,
#                   64, 96], down: float32[8, 96, 64]}, norm: float32[64], head: float32[64, 130]}
#     axis          "fsdp"
#     minimum_size  8320
#   mesh pp=2,dp=3
#     params        {embedding: float32[96, 45], layers: {scale: float32[6, 45], up: float32[6,
#                   45, 57], down: float32[6, 57, 45]}, norm: float32[45]}
#     axis          "dp"
#     minimum_size  180
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import PyTree


def fsdp_shardings(
    params: dict[str, PyTree[Any]], *, mesh: Mesh | AbstractMesh, axis: str, minimum_size: int
) -> dict[str, PyTree[PartitionSpec]]:
    """Partition specs with which the compiler makes FSDP out of a one-device program.

    `params` are arrays, or anything that has a shape and a size. The result is the same pytree with
    a partition spec for each leaf; a part of it may have any depth. Leaves of fewer than
    `minimum_size` elements are replicated. Of each other leaf one dim is split over the n devices
    of `axis`, and n must divide its size.
    Leaves under `params["layers"]` are stacked, [l, ...]: a loop takes one layer after the other,
    so dim l is not split.

    Math: a device holds size/n elements of a leaf if size >= minimum_size, and all of it otherwise
    Source: Xu et al. 2021 (GSPMD), section 3.2
    """
    raise NotImplementedError(
        "return a partition spec for each leaf: large ones split over `axis`, small ones whole"
    )
