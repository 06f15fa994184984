"""Exercise resume_indices (lesson 20): the examples that come next, on any number of devices.

Your task: return the examples of device `rank` in the next `batch` examples of the endless stream.

Save it while `jaxpar` runs, or check it with `jaxpar check resume_indices`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   resume_indices(0, examples=10, batch=4, world_size=2, seed=8507, rank=0) -> [6, 2]
#   resume_indices(0, examples=10, batch=4, world_size=2, seed=8507, rank=1) -> [8, 9]
#   resume_indices(8, examples=10, batch=4, world_size=2, seed=8507, rank=0) -> [7, 5]
#   resume_indices(-1, examples=10, batch=4, world_size=2, rank=0, seed=8507) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def resume_indices(
    consumed: int, *, examples: int, batch: int, world_size: int, rank: int, seed: int
) -> list[int]:
    """The examples that device `rank` takes of the next batch, after `consumed` examples.

    Epochs follow each other without a gap: epoch 0, 1, 2, ... each go through all examples once, in
    the order np.random.default_rng([seed, epoch]).permutation(examples). The next batch is the next
    `batch` examples of this stream, also where an epoch ends in the middle of it. Its first
    batch/world_size examples are those of rank 0, the next ones those of rank 1, and so on.
    `consumed` counts the examples of all devices together, so a run can go on with another batch
    size, or on another number of devices.

    Math: the examples at consumed + rank*batch/world_size + i of the stream, i < batch/world_size
    Source: PyTorch, torch.utils.data.distributed.DistributedSampler

    Raises:
        ValueError: `consumed` is negative, there are no examples, no batch or no device `rank`, or
            `world_size` does not divide the batch.
    """
    raise NotImplementedError(
        "return the examples of device `rank` in the next `batch` examples of the endless stream"
    )
