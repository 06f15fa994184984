"""A distributed sampler: which examples each device takes in an epoch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, combinations, pairwise
from typing import Any, NamedTuple

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.parallel.sampler import shard_indices

_MUCH_THE_SAME = 1 / 3  # of the pairs on one device; on 6 devices chance repeats about 1/6
_MANY = 10  # numbers that a shuffle leaves in order only once in millions
_MANY_STEPS = 40  # from one example to the next; of so many, chance makes none a quarter


class Deal(NamedTuple):
    """The arguments that all ranks have in common in one epoch."""

    num_examples: int
    world_size: int
    epoch: int
    seed: int

    def __str__(self) -> str:
        return (
            f"{self.num_examples} examples on {self.world_size} devices, "
            f"epoch {self.epoch}, seed {self.seed}"
        )


def _calls(rng: np.random.Generator) -> list[Call]:
    """Sizes that divide and that do not, fewer examples than devices; then several epochs.

    Then sizes that one might forget: one device, one example, as many of these as of those, and
    more examples than small integers count.
    """
    seed, examples = int(rng.integers(10, 1000)), int(rng.integers(20, 40))
    sizes = [(10, 4), (3, 8), (examples, int(rng.integers(5, 9)))]
    deals = [Deal(*pair, epoch=int(rng.integers(4)), seed=seed) for pair in sizes]
    many = 6 * int(rng.integers(10, 13))  # enough to tell two epochs apart
    deals += [Deal(many, 6, epoch, seed) for epoch in range(3)] + [Deal(many, 6, 0, seed + 7)]
    late = 25_200 * int(rng.integers(1, 4))  # orders that come again after 1 to 10 epochs show
    deals += [Deal(many, 6, late, seed), Deal(many, 6, late + 1, seed)]
    deals += [Deal(many, 6, 1, 0), Deal(many, 6, 2, 0)]
    devices = int(rng.integers(11, 14))
    deals += [Deal(int(rng.integers(41, 50)), 1, late, seed), Deal(1, 3, 1, seed)]
    deals += [Deal(devices, devices, 2, seed), Deal(2, devices, 0, 0)]
    deals += [Deal(int(rng.integers(33_000, 34_000)), 9, late, seed)]
    return [
        ((num_examples,), {"world_size": n, "rank": rank, "epoch": epoch, "seed": seed})
        for num_examples, n, epoch, seed in deals
        for rank in range(n)
    ]


def _complaint(calls: list[Call], results: list[Any]) -> str | None:
    """What is wrong with the first epoch that is dealt out wrong, or with two that are alike."""
    deals: defaultdict[Deal, list] = defaultdict(list)
    for ((num_examples,), how), result in zip(calls, results, strict=True):
        deal = Deal(num_examples, how["world_size"], how["epoch"], how["seed"])
        deals[deal].append(result)
    wrong = (f"{deal}: {text}" for deal in deals for text in _wrong_deal(deal, deals[deal]))
    return next(chain(wrong, _alike(deals)), None)


def _wrong_deal(deal: Deal, parts: list[Any]) -> Iterator[str]:
    """What is wrong with the parts of all ranks."""
    length = -(-deal.num_examples // deal.world_size)
    for rank, part in enumerate(parts):
        if not isinstance(part, list) or not all(type(i) is int for i in part):
            yield f"rank {rank}: {str(part)[:80]}; a list of integers is expected"
        elif len(part) != length:
            yield f"rank {rank} takes {len(part)} examples; every rank must take {length}"
        elif length >= _MANY and part == sorted(part):
            yield f"rank {rank} takes its examples in ascending order; take them as they are dealt"
        elif any(not 0 <= i < deal.num_examples for i in part):
            yield f"rank {rank} takes {str(part)[:80]}; examples are 0 to {deal.num_examples - 1}"
    steps = _steps(parts, deal.num_examples)
    if sum(steps.values()) >= _MANY_STEPS:
        ((step, times),) = steps.most_common(1)
        if times > sum(steps.values()) / 4:
            yield f"most examples come {step} after the one before; take them in a random order"
    fewest, rest = divmod(length * deal.world_size, deal.num_examples)
    counts = Counter(chain.from_iterable(parts))
    for i in range(deal.num_examples):
        if not fewest <= counts[i] <= fewest + (rest > 0):
            right = f"{fewest} or {fewest + 1}" if rest else fewest
            yield f"example {i} appears {counts[i]} times, where {right} is right"


def _steps(parts: list[list[int]], num_examples: int) -> Counter[int]:
    """How often an example on a device is so many after the one before, going round."""
    return Counter((b - a) % num_examples for part in parts for a, b in pairwise(part))


def _alike(deals: dict[Deal, list[list[int]]]) -> Iterator[str]:
    """Two epochs or seeds that put much the same examples together on a device."""
    for one, other in combinations(deals, 2):
        if one[:2] == other[:2]:
            before, after = _pairs(deals[one]), _pairs(deals[other])
            if len(before & after) > _MUCH_THE_SAME * len(before):
                yield (
                    f"{one}: much the same examples are together on a device as in epoch "
                    f"{other.epoch}, seed {other.seed}; deal all examples out anew"
                )


def _pairs(parts: list[list[int]]) -> set[tuple[int, int]]:
    """The pairs of examples that are on one device."""
    return {pair for part in parts for pair in combinations(sorted(part), 2)}


CONTRACT = Contract(
    kind="value",
    task="return the examples of device `rank`, from a shuffle that depends on epoch and seed",
    reference=shard_indices,
    oracle=shard_indices,
    values=_calls,
    complaint=_complaint,
    hints=(
        "Every device computes the same order of all examples, and takes its own part of it: so "
        "no device has to ask another.",
        "np.random.default_rng([seed, epoch]).permutation(num_examples) is such an order. Make it "
        "longer until world_size divides its length, by going on from its own beginning.",
        "np.resize(order, length * world_size) repeats it so; then take [rank::world_size].",
    ),
    minimal="Equal seeds give equal orders, so nothing has to be sent.",
    harder="Make it resumable: skip the first k examples of an epoch without dealing anew.",
)


def _order(num_examples: int, *seeds: int) -> list[int]:
    return np.random.default_rng(list(seeds)).permutation(num_examples).tolist()


def _dealt(order: list[int], world_size: int, rank: int) -> list[int]:
    """The examples of one device, if the order is padded and dealt out one by one."""
    return np.resize(order, -(-len(order) // world_size) * world_size)[rank::world_size].tolist()


@wrong("values")
def rank_in_seed(num_examples, *, world_size, rank, epoch, seed):
    """`rank` is in the seed, so every device has an order of its own: some examples come twice and
    others never. Shuffle by seed and epoch only."""
    return _dealt(_order(num_examples, seed, epoch, rank), world_size, rank)


@wrong("values")
def epoch_not_in_seed(num_examples, *, world_size, rank, epoch, seed):
    """Every epoch deals the examples out in the same way; shuffle by `epoch`, too."""
    return _dealt(_order(num_examples, seed), world_size, rank)


@wrong("values")
def seed_not_used(num_examples, *, world_size, rank, epoch, seed):
    """Every seed deals the examples out in the same way; shuffle by `seed`, too."""
    return _dealt(_order(num_examples, epoch), world_size, rank)


@wrong("values")
def not_shuffled(num_examples, *, world_size, rank, epoch, seed):
    """The examples are dealt out in the order in which they come; shuffle them."""
    return _dealt(list(range(num_examples)), world_size, rank)


@wrong("values")
def own_part_shuffled(num_examples, *, world_size, rank, epoch, seed):
    """Each device shuffles its own part, which is the same in every epoch; shuffle all examples,
    then deal them out."""
    own = _dealt(list(range(num_examples)), world_size, rank)
    return [own[i] for i in _order(len(own), seed, epoch)]


@wrong("values")
def drawn_with_replacement(num_examples, *, world_size, rank, epoch, seed):
    """Examples are drawn with replacement, so that some come twice and others never; use a
    permutation."""
    drawn = np.random.default_rng([seed, epoch]).choice(num_examples, num_examples)
    return _dealt(drawn.tolist(), world_size, rank)


@wrong("values")
def rest_dropped(num_examples, *, world_size, rank, epoch, seed):
    """The examples that are left over are dropped; repeat some, so that each device has one
    more."""
    length = num_examples // world_size
    return _order(num_examples, seed, epoch)[rank : length * world_size : world_size]


@wrong("values")
def rest_not_padded(num_examples, *, world_size, rank, epoch, seed):
    """Some devices have one example more than others, which would have to wait for them; repeat
    some examples until all have the same number."""
    return _order(num_examples, seed, epoch)[rank::world_size]


@wrong("values")
def padded_with_last(num_examples, *, world_size, rank, epoch, seed):
    """The padding is the last example, over and over; go on from the first."""
    order = _order(num_examples, seed, epoch)
    return (order + order[-1:] * (-num_examples % world_size))[rank::world_size]


@wrong("values")
def padded_once(num_examples, *, world_size, rank, epoch, seed):
    """You repeat the examples only once, which is too few where there are more than twice as many
    devices as examples; go round until each device has one."""
    order = _order(num_examples, seed, epoch)
    return (order + order[: -num_examples % world_size])[rank::world_size]


@wrong("values")
def rank_of_process(num_examples, *, world_size, rank, epoch, seed):
    """Every device takes what device 0 must take: `rank` is not used, and jax.process_index() is
    the number of a process, which may have many devices."""
    return _dealt(_order(num_examples, seed, epoch), world_size, 0)


@wrong("values")
def epochs_come_again(num_examples, *, world_size, rank, epoch, seed):
    """Only a few epochs have orders of their own, which come again after that; shuffle by `epoch`
    itself, not by its remainder."""
    return _dealt(_order(num_examples, seed, epoch % 10), world_size, rank)


@wrong("values")
def order_in_equal_steps(num_examples, *, world_size, rank, epoch, seed):
    """The order begins at a random example and goes on in equal steps, which is no shuffle; use a
    random permutation."""
    start, step = np.random.default_rng([seed, epoch]).integers(num_examples, size=2).tolist()
    while np.gcd(step, num_examples) > 1:
        step += 1
    order = [(start + i * step) % num_examples for i in range(num_examples)]
    return _dealt(order, world_size, rank)
