"""The data position: which examples come next, from how many have been consumed; numpy only."""

import numpy as np
from jaxtyping import Int


def epoch_order(examples: int, *, epoch: int, seed: int) -> Int[np.ndarray, " {examples}"]:
    """The order in which an epoch goes through the examples, equal on every process.

    Math: a random permutation of 0 to examples - 1, for each seed and epoch another one
    Source: PyTorch, torch.utils.data.distributed.DistributedSampler
    """
    return np.random.default_rng([seed, epoch]).permutation(examples)


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
    _check(consumed, examples, batch, world_size, rank)
    size = batch // world_size
    first = consumed + rank * size
    indices, epoch = [], first // examples
    offset = first % examples
    while len(indices) < size:
        order = epoch_order(examples, epoch=epoch, seed=seed)
        indices += order[offset : offset + size - len(indices)].tolist()
        epoch, offset = epoch + 1, 0
    return indices


def _check(consumed: int, examples: int, batch: int, world_size: int, rank: int) -> None:
    if consumed < 0 or examples < 1 or batch < 1:
        raise ValueError(
            f"resume_indices: {consumed} consumed of {examples} examples, in batches of {batch}; "
            "give 0 or more consumed, and 1 or more of the others"
        )
    if not 0 <= rank < world_size:
        raise ValueError(
            f"resume_indices: rank {rank} of {world_size} devices; "
            f"use a rank from 0 to {world_size - 1}"
        )
    if batch % world_size:
        raise ValueError(
            f"resume_indices: a batch of {batch} for {world_size} devices; "
            f"use a multiple of {world_size}"
        )
