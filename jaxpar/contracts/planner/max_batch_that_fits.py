"""How many examples fit on a device that also holds the weights and other states."""

from __future__ import annotations

import math

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread
from jaxpar.cost.inference import max_batch_that_fits

# Device, parameters in 16 bits, an example of 8192 tokens of Llama 3 8B; of 2048 of OPT-13B.
_SERVERS = (
    (80 * 10**9, 16_060_522_496, 131_072 * 8192),
    (24 * 10**9, 16_060_522_496, 131_072 * 8192),
    (40 * 10**9, 26 * 10**9, 819_200 * 2048),
    (80 * 10**9, 141_107_412_992, 327_680 * 8192),
)


def _batches(rng: np.random.Generator) -> list[Call]:
    """A few bytes, floats, published models, what just fits or not, any, then what is refused."""
    calls = [(100, 30, 20), (100, 40, 20), (100, 101, 20), (100, 100, 20), (100, 0, 101), (0, 0, 1)]
    calls += [(10**6, 3000, 1000), (10**6, 3000, 10), (100.5, 30.25, 20.0)]
    calls += _SERVERS
    # Nothing on the device, an example of a byte and of less, floats that leave nothing, and more
    # examples than anybody has: no limit is right.
    calls += [(20, 0, 20), (21, 20, 1), (12.5, 3.0, 0.5), (0.75, 0.25, 0.125), (0.0, 0.0, 0.5)]
    calls += [(1.5e9, 0.5e9, 1e3), (2**50, 0, 1), (10**15, 1, 1000), (10**12, 2 * 10**12, 1)]
    calls += [(10**15, 10**15 - 7000, 1000), (10**15, 10, 4 * 10**14)]
    spreads = log_spread(rng, 1e3, 1e12, 6), log_spread(rng, 1e3, 1e10, 6)
    for states, each in zip(*(map(int, spread) for spread in spreads), strict=True):
        full = states + int(rng.integers(3, 300)) * each
        rest = int(rng.integers(2, each))
        calls += [(full, states, each), (full - 1, states, each), (full + rest, states, each)]
        calls.append((states - 1 - int(rng.integers(1, states)), states, each))
    refused = [(100, 30, 0), (100, 30, -20), (-100, 30, 20), (100, -30, 20), (-30, -100, 20)]
    # Where the states do not fit, or nothing does, and what comes to a batch of 0 or more.
    refused += [(100, 130, each) for each in (0, -20)] + [(0, 0, each) for each in (0, -20)]
    refused += [(100, 100, 0), (-100, -30, 20), (-100, 0, 20), (0, -30, 20), (-100, 30, -20)]
    refused += [(100, 30, -0.5), (-0.5, 0, 20), (100, -0.5, 20), (-30, -30, 20), (20, -10, 1000)]
    return [(call, {}) for call in [*calls, *refused]]


CONTRACT = Contract(
    kind="value",
    task="return how many examples fit beside the states, or 0 if the states alone do not fit",
    reference=max_batch_that_fits,
    oracle=max_batch_that_fits,
    values=_batches,
    hints=(
        "How many bytes of the device are left when it holds the states? How many examples fit "
        "into those?",
        "Only whole examples count, and one that fills the memory to its last byte still fits. "
        "If the states need more than there is, what is left is negative: the answer is 0.",
        "max(0, int((device_bytes - state_bytes) // bytes_per_example)), after ValueError for "
        "bytes_per_example <= 0 and for a negative number of the other two.",
    ),
    minimal="One example more would not fit.",
    harder="With kv_cache_bytes: how many people can Llama 3 8B answer on your device, with 2,000 "
    "tokens each? How many with the cache in 8 bits?",
)


def _room(device_bytes: int, state_bytes: int, bytes_per_example: int) -> float:
    """How many examples fit, where the last one may fit in part only."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return max(0, (device_bytes - state_bytes) / bytes_per_example)


@wrong("values")
def batch_rounded_up(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """The batch is rounded up, and its last example does not fit; round down."""
    return math.ceil(_room(device_bytes, state_bytes, bytes_per_example))


@wrong("values")
def batch_rounded(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """The batch is rounded to the nearest number; half an example does not fit, so round down."""
    return round(_room(device_bytes, state_bytes, bytes_per_example))


@wrong("values")
def batch_no_whole_number(device_bytes: int, state_bytes: int, bytes_per_example: int) -> float:
    """A batch is a whole number; return an int, rounded down."""
    return _room(device_bytes, state_bytes, bytes_per_example)


@wrong("values")
def batch_without_states(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """You forget the states; subtract them from device_bytes first."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return math.floor(device_bytes / bytes_per_example)


@wrong("values")
def batch_states_twice(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """You count the states twice; the device holds them once."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return max(0, math.floor((device_bytes - 2 * state_bytes) / bytes_per_example))


@wrong("values")
def batch_states_for_each(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """You give each example states of its own; the device holds them once, for all examples."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return int(device_bytes // (state_bytes + bytes_per_example))


@wrong("values")
def batch_below_zero(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """Where the states do not fit, your batch is negative; return 0."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return int((device_bytes - state_bytes) // bytes_per_example)


@wrong("values")
def batch_at_least_one(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """Where no example fits you still return 1; return 0."""
    return max(1, max_batch_that_fits(device_bytes, state_bytes, bytes_per_example))


@wrong("values")
def batch_one_byte_free(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """What fills the memory to its last byte fits; ask for <=, not <."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return max(0, int((device_bytes - state_bytes - 1) // bytes_per_example))


@wrong("values")
def batch_power_of_two(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """The batch is rounded down to a power of two; any number is allowed."""
    batch = max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)
    return 2 ** (batch.bit_length() - 1) if batch else 0


@wrong("values")
def batch_in_gib(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """The device is in GiB, and what it holds in GB; use bytes for both."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    free_gb = device_bytes / 2**30 - state_bytes / 1e9
    return max(0, math.floor(free_gb / (bytes_per_example / 1e9)))


@wrong("values")
def batch_tenth_kept(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """You leave a tenth of the memory empty; use all of device_bytes."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return max(0, math.floor((0.9 * device_bytes - state_bytes) / bytes_per_example))


@wrong("values")
def batch_in_float32(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """You divide in float32, as jnp does, and that rounds a batch up which nearly fits; use
    Python's own numbers and //."""
    return math.floor(np.float32(_room(device_bytes, state_bytes, bytes_per_example)))


@wrong("values")
def batch_zero_before_the_checks(
    device_bytes: int, state_bytes: int, bytes_per_example: int
) -> int:
    """You return 0 where the states do not fit before you have looked at the other numbers; raise
    ValueError first."""
    if 0 <= device_bytes <= state_bytes:
        return 0
    return max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)


@wrong("values")
def batch_of_whole_bytes(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """You refuse an example of less than a byte; any number above 0 is allowed."""
    if bytes_per_example < 1:
        raise ValueError("bytes_per_example")
    return max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)


@wrong("values")
def batch_too_large_refused(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """States that do not fit are no error; the answer is 0."""
    if state_bytes > device_bytes:
        raise ValueError("the states do not fit")
    return max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)


@wrong("values")
def batch_of_anything(device_bytes: int, state_bytes: int, bytes_per_example: int) -> int:
    """Raise ValueError where bytes_per_example is 0 or below, or another number is negative."""
    if bytes_per_example == 0:
        return 0
    return max(0, int((device_bytes - state_bytes) // bytes_per_example))


@wrong("values")
def batch_float_of_floats(device_bytes: int, state_bytes: int, bytes_per_example: int) -> float:
    """With floats, // returns a float; convert it to an int."""
    max_batch_that_fits(device_bytes, state_bytes, bytes_per_example)  # raises where it must
    return max(0, (device_bytes - state_bytes) // bytes_per_example)
