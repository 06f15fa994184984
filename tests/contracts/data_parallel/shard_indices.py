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


@right
def by_sorting_random_numbers(num_examples, *, world_size, rank, epoch, seed):
    numbers = np.random.default_rng((epoch + 1, seed)).random(num_examples)
    order = sorted(range(num_examples), key=numbers.__getitem__)
    return _padded(order, world_size)[rank::world_size]


@right
def by_shuffled_blocks_of_ranks(num_examples, *, world_size, rank, epoch, seed):
    """Another random order of the devices in each round."""
    rng = np.random.default_rng([7, seed, epoch])
    order = _padded(rng.permutation(num_examples).tolist(), world_size)
    rounds = [order[i : i + world_size] for i in range(0, len(order), world_size)]
    return [part[rng.permutation(world_size)[rank]] for part in rounds]


@wrong("values")
def in_eight_bits(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, epoch).astype(np.uint8).tolist()
    return _padded(order, world_size)[rank::world_size]


@wrong("values")
def in_sixteen_bits(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, epoch).astype(np.int16).tolist()
    return _padded(order, world_size)[rank::world_size]


@wrong("values")
def in_half_precision(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, epoch)
    order = order.astype(np.float16).astype(int).tolist()
    return _padded(order, world_size)[rank::world_size]


@wrong("values")
def for_eight_devices_at_most(num_examples, *, world_size, rank, epoch, seed):
    order = _padded(_numpy_order(num_examples, seed, epoch).tolist(), world_size)
    return order[min(rank, 7) :: world_size]


@wrong("values")
def shuffled_in_the_first_epochs(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, seed, min(epoch, 5)).tolist()
    return _padded(order, world_size)[rank::world_size]


@wrong("values")
def nothing_without_a_seed(num_examples, *, world_size, rank, epoch, seed):
    """Seed 0 counts as none."""
    order = _numpy_order(num_examples, seed, epoch) if seed else np.arange(num_examples)
    return _padded(order.tolist(), world_size)[rank::world_size]


@wrong("values")
def two_devices_at_least(num_examples, *, world_size, rank, epoch, seed):
    world_size = max(world_size, 2)
    order = _padded(_numpy_order(num_examples, seed, epoch).tolist(), world_size)
    return order[rank::world_size]


@wrong("values")
def backwards_in_equal_steps(num_examples, *, world_size, rank, epoch, seed):
    step = 2 * (seed + 31 * epoch) + 1
    while math.gcd(step, num_examples) > 1:
        step += 2
    order = [-i * step % num_examples for i in range(num_examples)]
    length = -(-num_examples // world_size)
    return _padded(order, world_size)[rank * length : (rank + 1) * length]


@wrong("values")
def neighbours_stay_together(num_examples, *, world_size, rank, epoch, seed):
    """Shuffles pairs of neighbours, not examples."""
    pairs = _numpy_order(-(-num_examples // 2), seed, epoch).tolist()
    order = [i for pair in pairs for i in (2 * pair, 2 * pair + 1) if i < num_examples]
    length = -(-num_examples // world_size)
    return _padded(order, world_size)[rank * length : (rank + 1) * length]


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
def epoch_after_this_times_seed(num_examples, *, world_size, rank, epoch, seed):
    order = _numpy_order(num_examples, (epoch + 1) * seed).tolist()
    return _padded(order, world_size)[rank::world_size]


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
