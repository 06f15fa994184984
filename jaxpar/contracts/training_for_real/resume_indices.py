"""The examples of the next batch, from how many have been consumed."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.draws import pick
from jaxpar.long_run.data_position import epoch_order, resume_indices


def _positions(rng: np.random.Generator) -> list[Call]:
    """Batches of all ranks: in an epoch, over its end, longer than an epoch; then what is refused.

    A run that goes on has another batch size and another number of devices.
    """

    def calls_of(
        consumed: int, examples: int, batch: int, world_size: int, seed: int
    ) -> list[Call]:
        how = {"examples": examples, "batch": batch, "world_size": world_size, "seed": seed}
        return [((consumed,), how | {"rank": rank}) for rank in range(world_size)]

    seed = int(rng.integers(10, 10_000))
    calls = [*calls_of(0, 10, 4, 2, seed), *calls_of(8, 10, 4, 2, seed)]
    calls += [*calls_of(6, 10, 4, 1, seed), *calls_of(20, 10, 6, 3, 0)]
    calls += [*calls_of(29, 10, 4, 4, seed), *calls_of(7, 5, 12, 3, seed)]
    calls += [*calls_of(0, 1, 4, 2, seed), *calls_of(3, 2, 9, 9, seed + 1)]
    # One device's part has examples of three epochs and more.
    calls += [*calls_of(3, 2, 12, 2, seed), *calls_of(1, 3, 10, 1, seed)]
    for _ in range(8):
        examples = int(rng.integers(20, 90))
        world_size = pick(rng, (1, 2, 3, 4, 6, 8))
        batch = world_size * int(rng.integers(1, 9))
        epochs = int(rng.integers(1, 400))
        end = examples * epochs
        consumed = end - int(rng.integers(1, batch + 1))
        calls += calls_of(max(consumed, 0), examples, batch, world_size, seed + epochs)
        calls += calls_of(end + int(rng.integers(examples)), examples, batch, world_size, seed)
    late = int(rng.integers(2**24, 2**26))
    calls += calls_of(late, 1009, 24, 4, seed) + calls_of(late * 1000 + 7, 8191, 30, 5, seed)

    def refused(consumed: int, examples: int, batch: int, world_size: int, rank: int) -> Call:
        sizes = {"examples": examples, "batch": batch, "world_size": world_size}
        return (consumed,), sizes | {"rank": rank, "seed": seed}

    calls += [refused(-1, 10, 4, 2, 0), refused(8, 0, 4, 2, 0), refused(8, -10, 4, 2, 0)]
    calls += [refused(8, 10, 0, 2, 0), refused(8, 10, -4, 2, 0), refused(8, 10, 4, 3, 0)]
    calls += [refused(8, 10, 4, 2, 2), refused(8, 10, 4, 2, -1), refused(8, 10, 4, 0, 0)]
    calls += [refused(8, 10, 4, -2, 0), refused(8, 10, 2, 4, 1), refused(8, 10, 4, 8, 7)]
    return calls


CONTRACT = Contract(
    kind="value",
    task="return the examples of device `rank` in the next `batch` examples of the endless stream",
    reference=resume_indices,
    oracle=resume_indices,
    values=_positions,
    hints=(
        "Imagine one endless list: the order of epoch 0, then that of epoch 1, and so on. Between "
        "which two places of it are the examples of device `rank`?",
        "They are at consumed + rank * size + i, for i < size = batch // world_size. Place p is in "
        "epoch p // examples, at p % examples of its order.",
        "divmod(place, examples) gives both. np.random.default_rng([seed, epoch]).permutation("
        "examples).tolist() is the order; compute it once for each epoch that the batch touches, "
        "which may be more than two.",
    ),
    minimal="One number is the whole position: no device has to ask another, or read what "
    "it skips.",
    harder="Documents have different lengths, and a batch has a number of tokens. What must a "
    "checkpoint hold then?",
)


def _at(places, how: dict) -> list[int]:
    """The examples at these places of the stream."""
    orders = {}
    found = []
    for place in places:
        epoch, i = divmod(place, how["examples"])
        if epoch not in orders:
            orders[epoch] = epoch_order(how["examples"], epoch=epoch, seed=how["seed"]).tolist()
        found.append(orders[epoch][i])
    return found


def _checked(consumed: int, how: dict) -> tuple[int, range]:
    """The size of a device's part, and the places of the batch."""
    resume_indices(consumed, **how)  # raises where it must
    return how["batch"] // how["world_size"], range(consumed, consumed + how["batch"])


def _own(places, size: int, how: dict) -> list[int]:
    return _at(places, how)[how["rank"] * size : (how["rank"] + 1) * size]


@wrong("values")
def epoch_restarted(consumed: int, **how) -> list[int]:
    """You begin at the start of an epoch, so examples that were consumed come again; go on at
    consumed % examples of its order."""
    size, batch = _checked(consumed, how)
    start = consumed - consumed % how["examples"]
    return _own(range(start, start + len(batch)), size, how)


@wrong("values")
def epoch_not_advanced(consumed: int, **how) -> list[int]:
    """Every epoch has the order of epoch 0; the epoch is consumed // examples, and it is in the
    seed."""
    size, batch = _checked(consumed, how)
    return _own([place % how["examples"] for place in batch], size, how)


@wrong("values")
def batch_in_one_epoch(consumed: int, **how) -> list[int]:
    """Where the epoch ends in the middle of the batch, you go on with the start of the same order;
    the next epoch has another one."""
    size, batch = _checked(consumed, how)
    start = consumed - consumed % how["examples"]
    return _own([start + place % how["examples"] for place in batch], size, how)


@wrong("values")
def batch_cut_at_the_end(consumed: int, **how) -> list[int]:
    """The batch that an epoch's end divides has too few examples; fill it from the next epoch."""
    size, batch = _checked(consumed, how)
    end = consumed - consumed % how["examples"] + how["examples"]
    return _own(range(consumed, min(end, batch.stop)), size, how)


@wrong("values")
def tail_dropped(consumed: int, **how) -> list[int]:
    """Where less than a batch is left of an epoch, you skip it; the batch has the end of this epoch
    and the start of the next."""
    size, batch = _checked(consumed, how)
    end = consumed - consumed % how["examples"] + how["examples"]
    start = end if batch.stop > end else consumed
    return _own(range(start, start + len(batch)), size, how)


@wrong("values")
def two_epochs_at_most(consumed: int, **how) -> list[int]:
    """Your batch has examples of two epochs at most; if there are few examples, it goes through
    several."""
    size, batch = _checked(consumed, how)
    end = consumed - consumed % how["examples"] + 2 * how["examples"]
    return _own(range(consumed, min(end, batch.stop)), size, how)


@wrong("values")
def later_epochs_repeated(consumed: int, **how) -> list[int]:
    """From the second epoch of a device's part on, you repeat the same order; each epoch has its
    own."""
    size, _ = _checked(consumed, how)
    start, examples = consumed + how["rank"] * size, how["examples"]
    second = start - start % examples + examples
    places = range(start, start + size)
    return _at([p if p < second else second + p % examples for p in places], how)


@wrong("values")
def consumed_in_steps(consumed: int, **how) -> list[int]:
    """You take `consumed` for a number of steps; it counts examples, so that a run can go on with
    another batch size."""
    size, batch = _checked(consumed, how)
    start = consumed * how["batch"]
    return _own(range(start, start + len(batch)), size, how)


@wrong("values")
def consumed_by_one_device(consumed: int, **how) -> list[int]:
    """You take `consumed` for what one device consumed; it counts the examples of all devices."""
    size, batch = _checked(consumed, how)
    start = consumed * how["world_size"]
    return _own(range(start, start + len(batch)), size, how)


@wrong("values")
def dealt_out_one_by_one(consumed: int, **how) -> list[int]:
    """You deal the batch out one by one; rank 0 takes the first batch/world_size examples, rank 1
    the next ones."""
    _, batch = _checked(consumed, how)
    return _at(batch, how)[how["rank"] :: how["world_size"]]


@wrong("values")
def epoch_dealt_out_first(consumed: int, **how) -> list[int]:
    """You deal a whole epoch out to the devices, and then skip in each part; with another number of
    devices that gives other examples. Take the part of the next batch."""
    size, _ = _checked(consumed, how)
    epoch = consumed // how["examples"]
    order = epoch_order(how["examples"], epoch=epoch, seed=how["seed"]).tolist()
    own = order[how["rank"] :: how["world_size"]]
    start = consumed % how["examples"] // how["world_size"]
    return own[start : start + size]


@wrong("values")
def every_device_takes_the_batch(consumed: int, **how) -> list[int]:
    """Every device takes the whole batch; it takes batch/world_size examples of it."""
    _, batch = _checked(consumed, how)
    return _at(batch, how)


@wrong("values")
def first_part_everywhere(consumed: int, **how) -> list[int]:
    """Every device takes the part of rank 0; begin at rank * batch/world_size of the batch."""
    _checked(consumed, how)
    return resume_indices(consumed, **how | {"rank": 0})


@wrong("values")
def examples_in_file_order(consumed: int, **how) -> list[int]:
    """You take the examples in the order in which they are stored; each epoch has a random order,
    by the generator of [seed, epoch]."""
    size, batch = _checked(consumed, how)
    own = batch[how["rank"] * size : (how["rank"] + 1) * size]
    return [place % how["examples"] for place in own]


@wrong("values")
def rest_of_the_batch_lost(consumed: int, **how) -> list[int]:
    """Where the devices do not divide the batch, some of its examples are lost; raise
    ValueError."""
    world_size = how["world_size"]
    if world_size > 0 and how["batch"] % world_size:
        how = how | {"batch": max(how["batch"] // world_size, 1) * world_size}
    return resume_indices(consumed, **how)


@wrong("values")
def position_not_checked(consumed: int, **how) -> list[int]:
    """Raise ValueError where `consumed` is negative, there is no example, no batch or no device
    `rank`, or the devices do not divide the batch."""
    try:
        return resume_indices(consumed, **how)
    except ValueError:
        return []
