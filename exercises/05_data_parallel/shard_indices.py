"""Exercise shard_indices (lesson 05): which examples each device takes.

Your task: return the examples of device `rank`, from a shuffle that depends on epoch and seed.

Save it while `jaxpar` runs, or check it with `jaxpar check shard_indices`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example, where other results may be as right:
#   shard_indices(10, world_size=4, rank=0, epoch=1, seed=852) -> [8, 2, 0]
#   shard_indices(10, world_size=4, rank=1, epoch=1, seed=852) -> [3, 5, 9]
#   shard_indices(10, world_size=4, rank=2, epoch=1, seed=852) -> [4, 1, 8]
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def shard_indices(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    """The indices of the examples that device `rank` takes in one epoch; all take equally many.

    Each epoch and each seed has another random order. If the number of devices does not divide the
    number of examples, some are repeated, as evenly as can be: how often two examples appear
    differs by 1 at most. Nothing is sent: the same arguments give the same answer on every device,
    in every process.

    Math: ceil(num_examples / world_size) numbers from 0 to num_examples - 1
    Source: PyTorch, torch.utils.data.distributed.DistributedSampler
    """
    raise NotImplementedError(
        "return the examples of device `rank`, from a shuffle that depends on epoch and seed"
    )
