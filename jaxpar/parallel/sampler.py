"""Samplers: which examples each device takes, in plain Python and numpy, equal on every process."""

from collections.abc import Sequence
from itertools import pairwise

import jax
import numpy as np
from jaxtyping import Bool, PyTree


def shard_indices(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    """The indices of the examples that device `rank` takes in one epoch; all take equally many.

    Each epoch and each seed has another random order. If the number of devices does not divide the
    number of examples, some are repeated, as evenly as can be: how often two examples appear
    differs by 1 at most. Nothing is sent: the same arguments give the same answer on every device,
    in every process.

    Math: ceil(num_examples / world_size) numbers from 0 to num_examples - 1
    Memory: ceil(num_examples/world_size)
    Source: PyTorch, torch.utils.data.distributed.DistributedSampler

    Raises:
        ValueError: there are no examples, or there is no device `rank`.
    """
    if num_examples < 1:
        raise ValueError(f"shard_indices: {num_examples} examples to deal out; give 1 or more")
    if not 0 <= rank < world_size:
        raise ValueError(
            f"shard_indices: rank {rank} of {world_size} devices; "
            f"use a rank from 0 to {world_size - 1}"
        )
    order = np.random.default_rng([seed, epoch]).permutation(num_examples)
    # `resize` repeats the order from its start.
    padded = np.resize(order, -(-num_examples // world_size) * world_size)
    return padded[rank::world_size].tolist()


def seeded_split(num_examples: int, fractions: Sequence[float], *, seed: int) -> list[list[int]]:
    """Splits the examples at random into one part for each fraction.

    Math: part k begins at round(num_examples * (fractions[0] + ... + fractions[k-1]))
    Memory: num_examples
    Source: PyTorch, torch.utils.data.random_split

    Raises:
        ValueError: a fraction is not positive, they do not add up to 1, or a part is empty.
    """
    if min(fractions, default=0) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(
            f"seeded_split: fractions {list(fractions)} add up to {sum(fractions):g}; "
            "give positive fractions that add up to 1, as in [0.9, 0.1]"
        )
    ends = [0, *np.rint(num_examples * np.cumsum(fractions)).astype(int).tolist()]
    sizes = [end - start for start, end in pairwise(ends)]
    if 0 in sizes:
        raise ValueError(
            f"seeded_split: {num_examples} examples make parts of {sizes}; "
            "give more examples or larger fractions, so that no part is empty"
        )
    order = np.random.default_rng(seed).permutation(num_examples)
    return [order[start:end].tolist() for start, end in pairwise(ends)]


def pad_batch(
    batch: PyTree[np.ndarray], size: int
) -> tuple[PyTree[np.ndarray], Bool[np.ndarray, " size"]]:
    """Pads a batch of b examples with zeros to `size`, and returns a mask of the real ones.

    Math: mask[i] = i < b
    Memory: size*batch/b+size
    Source: Goyal et al. 2017 (Accurate, Large Minibatch SGD), section 3 (gradient aggregation)

    Raises:
        ValueError: the leaves have different numbers of examples, or more than `size` of them.
    """
    counts = sorted({len(leaf) for leaf in jax.tree.leaves(batch)})
    if len(counts) != 1 or counts[0] > size:
        raise ValueError(
            f"pad_batch: leaves with {counts} examples to pad to {size}; "
            f"give leaves with one number of examples, at most {size}"
        )

    def pad(leaf: np.ndarray) -> np.ndarray:
        missing = np.zeros((size - len(leaf), *leaf.shape[1:]), leaf.dtype)
        return np.concatenate([leaf, missing])

    return jax.tree.map(pad, batch), np.arange(size) < counts[0]
