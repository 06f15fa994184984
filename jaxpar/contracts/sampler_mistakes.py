"""Wrong answers to the sampler that people write."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Mistake


def _order(num_examples: int, *seeds: int) -> list[int]:
    return np.random.default_rng(list(seeds)).permutation(num_examples).tolist()


def _part(order: list[int], world_size: int, rank: int) -> list[int]:
    """This device's part of the order, after padding."""
    return np.resize(order, -(-len(order) // world_size) * world_size)[rank::world_size].tolist()


def _rank_in_seed(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    return _part(_order(num_examples, seed, epoch, rank), world_size, rank)


def _epoch_not_in_seed(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    return _part(_order(num_examples, seed), world_size, rank)


def _seed_not_used(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    return _part(_order(num_examples, epoch), world_size, rank)


def _not_shuffled(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    return _part(list(range(num_examples)), world_size, rank)


def _own_part_shuffled(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    own = _part(list(range(num_examples)), world_size, rank)
    return [own[i] for i in _order(len(own), seed, epoch)]


def _drawn_with_replacement(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    drawn = np.random.default_rng([seed, epoch]).choice(num_examples, num_examples)
    return _part(drawn.tolist(), world_size, rank)


def _rest_dropped(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    length = num_examples // world_size
    return _order(num_examples, seed, epoch)[rank : length * world_size : world_size]


def _rest_not_padded(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    return _order(num_examples, seed, epoch)[rank::world_size]


def _padded_with_last(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    order = _order(num_examples, seed, epoch)
    return (order + order[-1:] * (-num_examples % world_size))[rank::world_size]


def _padded_once(
    num_examples: int, *, world_size: int, rank: int, epoch: int, seed: int
) -> list[int]:
    order = _order(num_examples, seed, epoch)
    return (order + order[: -num_examples % world_size])[rank::world_size]


SHARD_INDICES = (
    Mistake("rank_in_seed", _rank_in_seed, "values"),
    Mistake("epoch_not_in_seed", _epoch_not_in_seed, "values"),
    Mistake("seed_not_used", _seed_not_used, "values"),
    Mistake("not_shuffled", _not_shuffled, "values"),
    Mistake("own_part_shuffled", _own_part_shuffled, "values"),
    Mistake("drawn_with_replacement", _drawn_with_replacement, "values"),
    Mistake("rest_dropped", _rest_dropped, "values"),
    Mistake("rest_not_padded", _rest_not_padded, "values"),
    Mistake("padded_with_last", _padded_with_last, "values"),
    Mistake("padded_once", _padded_once, "values"),
)
