"""Answers to resume_indices: right ones by other routes, and wrong ones."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(consumed, examples, batch, world_size, rank):
    if consumed < 0 or examples < 1 or batch < 1 or not 0 <= rank < world_size:
        raise ValueError("a number is out of range")
    if batch % world_size:
        raise ValueError("the devices do not divide the batch")


def _order(examples, seed, epoch):
    return np.random.default_rng([seed, epoch]).permutation(examples).tolist()


@right
def whole_epochs_joined(consumed, *, examples, batch, world_size, rank, seed):
    _check(consumed, examples, batch, world_size, rank)
    first, last = consumed // examples, (consumed + batch - 1) // examples
    stream = [i for epoch in range(first, last + 1) for i in _order(examples, seed, epoch)]
    start, size = consumed - first * examples, batch // world_size
    return stream[start + rank * size : start + (rank + 1) * size]


@right
def place_by_place(consumed, *, examples, batch, world_size, rank, seed):
    _check(consumed, examples, batch, world_size, rank)
    size = batch // world_size
    found = []
    for place in range(consumed + rank * size, consumed + (rank + 1) * size):
        found.append(_order(examples, seed, place // examples)[place % examples])
    return found


@wrong("values")
def shuffled_by_the_sum(consumed, *, examples, batch, world_size, rank, seed):
    """The generator of seed + epoch, as PyTorch has it."""
    _check(consumed, examples, batch, world_size, rank)
    size = batch // world_size
    places = range(consumed + rank * size, consumed + (rank + 1) * size)
    orders = {
        p // examples: np.random.default_rng(seed + p // examples).permutation(examples)
        for p in places
    }
    return [int(orders[p // examples][p % examples]) for p in places]


@wrong("values")
def epoch_of_the_last_example(consumed, *, examples, batch, world_size, rank, seed):
    """The epoch of consumed - 1, which is one too few where an epoch ends."""
    _check(consumed, examples, batch, world_size, rank)
    epoch = max(consumed - 1, 0) // examples
    order = _order(examples, seed, epoch) + _order(examples, seed, epoch + 1)
    start, size = consumed % examples, batch // world_size
    return (order * batch)[start + rank * size : start + (rank + 1) * size]


@wrong("values")
def other_ranks_forgotten(consumed, *, examples, batch, world_size, rank, seed):
    """Each device draws an order of its own."""
    _check(consumed, examples, batch, world_size, rank)
    how = {"examples": examples, "batch": batch, "world_size": world_size, "rank": rank}
    return whole_epochs_joined(consumed, **how, seed=seed + rank)


@wrong("values")
def sorted_within_the_batch(consumed, *, examples, batch, world_size, rank, seed):
    how = {"examples": examples, "batch": batch, "world_size": world_size, "rank": rank}
    return sorted(whole_epochs_joined(consumed, **how, seed=seed))


@wrong("values")
def seven_batches_at_most(consumed, *, examples, batch, world_size, rank, seed):
    """Knows the first hundred epochs by heart."""
    _check(consumed, examples, batch, world_size, rank)
    how = {"examples": examples, "batch": batch, "world_size": world_size, "rank": rank}
    return whole_epochs_joined(consumed % (100 * examples), **how, seed=seed)


@wrong("values")
def epoch_aligned_to_batches(consumed, *, examples, batch, world_size, rank, seed):
    """An epoch has only whole batches."""
    _check(consumed, examples, batch, world_size, rank)
    usable = max(examples // batch, 1) * batch
    epoch, start = divmod(consumed, usable)
    size = batch // world_size
    order = _order(examples, seed, epoch) * (1 + batch)
    return order[start + rank * size : start + (rank + 1) * size]
