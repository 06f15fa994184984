"""Answers to shard_indices: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import jax
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def as_pytorch(num_examples, *, world_size, rank, epoch, seed):
    order = list(range(num_examples))
    np.random.default_rng(seed + epoch).shuffle(order)
    total = -(-num_examples // world_size) * world_size
    missing = total - len(order)
    if missing <= len(order):
        order += order[:missing]
    else:
        order += (order * math.ceil(missing / len(order)))[:missing]
    return order[rank:total:world_size]


def _padded(order, world_size):
    length = math.ceil(len(order) / world_size)
    return [order[i % len(order)] for i in range(length * world_size)]


def _numpy_order(num_examples, *seeds):
    return np.random.default_rng(seeds).permutation(num_examples)


@right
def in_blocks(num_examples, *, world_size, rank, epoch, seed):
    order = _padded(_numpy_order(num_examples, epoch, seed), world_size)
    return np.array_split(order, world_size)[rank]


@right
def by_jax(num_examples, *, world_size, rank, epoch, seed):
    key = jax.random.fold_in(jax.random.key(seed), epoch)
    order = np.asarray(jax.random.permutation(key, num_examples))
    return [
        order[i % num_examples] for i in range(rank, len(_padded(order, world_size)), world_size)
    ]


@right
def by_random_keys_backwards(num_examples, *, world_size, rank, epoch, seed):
    keys = np.random.RandomState(seed * 100 + epoch).rand(num_examples)
    order = _padded(np.argsort(keys).tolist(), world_size)
    return tuple(order[::-1][rank::world_size])


@right
def pads_from_any_place(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, epoch, 1).tolist()
    order += _padded(order[::-1], world_size)[num_examples:]
    return order[rank::world_size]


@wrong("values")
def parts_move_on(num_examples, *, world_size, rank, epoch, seed):
    order = _padded(list(range(num_examples)), world_size)
    return order[(rank + epoch + seed) % world_size :: world_size]


@wrong("values")
def order_moves_on(num_examples, *, world_size, rank, epoch, seed):
    start = _numpy_order(num_examples, seed, epoch)[0]
    order = [(start + i) % num_examples for i in range(num_examples)]
    length = -(-num_examples // world_size)
    return _padded(order, world_size)[rank * length : (rank + 1) * length]


@wrong("values")
def epoch_times_seed(num_examples, *, world_size, rank, epoch, seed):
    return _padded(_numpy_order(num_examples, epoch * seed).tolist(), world_size)[rank::world_size]


@wrong("values")
def odd_epochs_backwards(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed).tolist()
    return _padded(order[:: (-1) ** epoch], world_size)[rank::world_size]


@wrong("values")
def overlapping_blocks(num_examples, *, world_size, rank, epoch, seed):
    length = -(-num_examples // world_size)
    start = min(rank * length, max(num_examples - length, 0))
    return _numpy_order(num_examples, seed, epoch).tolist()[start : start + length]


_calls = 0


@wrong("values")
def counts_its_calls(num_examples, *, world_size, rank, epoch, seed):
    global _calls
    _calls += 1
    order = _numpy_order(num_examples, seed, _calls // world_size).tolist()
    return _padded(order, world_size)[rank::world_size]


@wrong("values")
def as_floats(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, epoch).astype(float)
    return _padded(order.tolist(), world_size)[rank::world_size]


@wrong("values")
def from_one(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, epoch) + 1
    return _padded(order.tolist(), world_size)[rank::world_size]


@wrong("values")
def in_ascending_order(num_examples, *, world_size, rank, epoch, seed):
    order = _padded(_numpy_order(num_examples, seed, epoch).tolist(), world_size)
    return sorted(order[rank::world_size])


@wrong("values")
def everything_everywhere(num_examples, *, world_size, rank, epoch, seed):
    return _numpy_order(num_examples, seed, epoch)


class _Numbers:
    shape = ()

    def tolist(self):
        raise KeyError("elsewhere")


@wrong("values")
def with_code_of_its_own(num_examples, *, world_size, rank, epoch, seed):
    return _Numbers()
