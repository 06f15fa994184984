"""What experts on different devices send: by all-to-alls, and by a gather."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, log_uniform, not_positive
from jaxpar.cost.experts import ROUTE_BYTES, dispatch_bytes

Sent = tuple[float, float]
NAMES = ("experts", "top_k", "capacity_factor", "devices", "element_bytes")

# Width, experts, choices: Switch-Base, Mixtral 8x7B, Qwen3 235B, DeepSeek-V2 and V3.
_LAYERS = ((768, 128, 1), (4096, 8, 2), (4096, 128, 8), (5120, 160, 6), (7168, 256, 8))

_SOME = (12, 6, 8, 2, 1.25, 4, 2)


def _calls(rng: np.random.Generator) -> list[Call]:
    """A few tokens, layers of published models, any sizes, then what is refused."""

    def call(tokens: int, width: int, *how: float) -> Call:
        return (tokens, width), dict(zip(NAMES, how, strict=True))

    calls = [
        call(64, 32, 8, 2, 1.25, 4, 4),
        call(64, 32, 8, 2, 1.25, 1, 4),
        call(10, 3, 4, 1, 1.0, 2, 2),
        call(1, 1, 1, 1, 1.0, 1, 1),
        call(7, 5, 6, 6, 0.5, 3, 0.375),  # all experts; 3.5 rows, so 4; 3 bits
        call(100, 8, 64, 2, 0.01, 64, 2),  # a small part of a row, so one
        call(10, 3, 4, 2, 3.0, 2, 2),  # more rows than tokens
    ]
    for width, experts, top_k in _LAYERS:
        for devices in (2, experts // 2, experts):
            factor = log_uniform(rng, 0.5, 4)
            calls.append(call(4096, width, experts, top_k, factor, devices, 2))
    spreads = (log_spread(rng, 1, high, 24) for high in (1e6, 2e4))
    for tokens, width in zip(*spreads, strict=True):
        devices = int(log_uniform(rng, 1, 600))
        experts = devices * int(log_uniform(rng, 1, 20))
        top_k = int(rng.integers(1, min(experts, 12) + 1))
        each = float(rng.choice([0.375, 0.5, 1, 2, 4, 8]))
        calls.append(
            call(int(tokens), int(width), experts, top_k, log_uniform(rng, 0.3, 8), devices, each)
        )
    calls += [((t, d), dict(zip(NAMES, how, strict=True))) for t, d, *how in not_positive(_SOME)]
    calls += [call(12, 6, 8, k, 1.25, 4, 2) for k in (9, 16)]
    calls += [call(12, 6, 8, 2, 1.25, n, 2) for n in (3, 16)]
    return [*calls, call(12, 6, 12, 2, 1.0, 8, 2)]


def _sent(tokens: int, width: int, **how: Any) -> list[float]:
    """By counting rows and elements."""
    experts, top_k, factor, devices, each = (how[name] for name in NAMES)
    dispatch_bytes(tokens, width, **how)  # refuses what must be refused
    rows = experts * math.ceil(tokens * top_k / experts * factor)
    elsewhere = (devices - 1) / devices
    tokens_of_others = (devices - 1) * tokens
    return [
        float(2 * rows * width * each * elsewhere),
        float(tokens_of_others * (2 * width * each + top_k * 8)),
    ]


CONTRACT = Contract(
    kind="value",
    task="return the bytes that a device sends by all-to-alls, and those by gather and scatter",
    reference=dispatch_bytes,
    oracle=_sent,
    values=_calls,
    hints=(
        "How many rows are there for the tokens of one device, on all devices together? Of these, "
        "1/n are its own, and are not sent.",
        "math.ceil(tokens * top_k / experts * capacity_factor) rows for each expert. An all-to-all "
        "sends (n-1)/n of what it takes, an all-gather n-1 times it, a reduce-scatter (n-1)/n.",
        "The first: 2 * (n-1)/n * experts * rows * width * element_bytes. The second: (n-1) * "
        "tokens * (2 * width * element_bytes + top_k * 8). First raise ValueError where a number "
        "is 0 or below, top_k is above experts, or devices does not divide experts.",
    ),
    minimal="Without what is sent to say who goes where, the first is less where top_k * "
    "capacity_factor is below the number of devices.",
    harder="Write it for devices in nodes, where a token goes over the network once to each node "
    "(DeepEP).",
)


def _changed(tokens: int, width: int, how: dict[str, Any], **change: Any) -> Sent:
    """The right bytes for other numbers, where these are not refused."""
    dispatch_bytes(tokens, width, **how)
    return dispatch_bytes(tokens, width, **how | change)


def _parts(tokens: int, width: int, how: dict[str, Any]) -> tuple[float, float, float, float]:
    """The bytes of rows on all devices, of the tokens, of their routes, and how many devices."""
    dispatch_bytes(tokens, width, **how)
    experts, top_k, factor, devices, each = (how[name] for name in NAMES)
    rows = experts * math.ceil(tokens * top_k / experts * factor)
    return rows * width * each, tokens * width * each, tokens * top_k * ROUTE_BYTES, devices


@wrong("values")
def exchanged_with_oneself(tokens: int, width: int, **how: Any) -> Sent:
    """All rows are counted; 1/n of them are for this device's own experts, and are not sent."""
    rows, *_ = _parts(tokens, width, how)
    return 2 * rows, dispatch_bytes(tokens, width, **how)[1]


@wrong("values")
def there_and_not_back(tokens: int, width: int, **how: Any) -> Sent:
    """Rows are counted once, and so are tokens; the results come back."""
    rows, x, routes, n = _parts(tokens, width, how)
    return (n - 1) / n * rows, (n - 1) * (x + routes)


@wrong("values")
def one_choice_alone(tokens: int, width: int, **how: Any) -> Sent:
    """Rows are those of one choice for each token; there are `top_k`."""
    return _changed(tokens, width, how, top_k=1)


@wrong("values")
def rows_not_rounded(tokens: int, width: int, **how: Any) -> Sent:
    """The rows of an expert are not rounded; there are whole ones only: round up."""
    _, x, _, n = _parts(tokens, width, how)
    exchanged = 2 * (n - 1) / n * x * how["top_k"] * how["capacity_factor"]
    return exchanged, dispatch_bytes(tokens, width, **how)[1]


@wrong("values")
def rows_rounded_down(tokens: int, width: int, **how: Any) -> Sent:
    """The rows of an expert are rounded down; round up, so that an even load finds room."""
    _, _, _, n = _parts(tokens, width, how)
    capacity = int(tokens * how["top_k"] / how["experts"] * how["capacity_factor"])
    row = width * how["element_bytes"]
    exchanged = 2 * (n - 1) / n * how["experts"] * capacity * row
    return exchanged, dispatch_bytes(tokens, width, **how)[1]


@wrong("values")
def rows_rounded_in_all(tokens: int, width: int, **how: Any) -> Sent:
    """All rows together are rounded up; each expert has whole rows of its own, so round those."""
    _, _, _, n = _parts(tokens, width, how)
    rows = math.ceil(tokens * how["top_k"] * how["capacity_factor"])
    exchanged = 2 * (n - 1) / n * rows * width * how["element_bytes"]
    return exchanged, dispatch_bytes(tokens, width, **how)[1]


@wrong("values")
def rows_of_one_device(tokens: int, width: int, **how: Any) -> Sent:
    """The rows of one device's experts are counted; a device has rows for all experts, and sends
    those of all others."""
    exchanged, gathered = dispatch_bytes(tokens, width, **how)
    return exchanged / how["devices"], gathered


@wrong("values")
def rows_for_tokens_of_everyone(tokens: int, width: int, **how: Any) -> Sent:
    """Each device has rows for the tokens of all devices; it sends its own tokens alone, so that
    its rows are for these."""
    _, gathered = dispatch_bytes(tokens, width, **how)
    return dispatch_bytes(tokens * how["devices"], width, **how)[0], gathered


@wrong("values")
def without_the_factor(tokens: int, width: int, **how: Any) -> Sent:
    """You leave `capacity_factor` out; it multiplies the rows of an even load."""
    return _changed(tokens, width, how, capacity_factor=1.0)


@wrong("values")
def experts_for_devices(tokens: int, width: int, **how: Any) -> Sent:
    """(n-1)/n is of the experts; what stays is for all experts of a device, so n are devices."""
    return _changed(tokens, width, how, devices=how["experts"])


@wrong("values")
def routes_forgotten(tokens: int, width: int, **how: Any) -> Sent:
    """In the second way only tokens are gathered; each choice has a weight and a number too, 8
    bytes together."""
    _, x, _, n = _parts(tokens, width, how)
    return dispatch_bytes(tokens, width, **how)[0], 2 * (n - 1) * x


@wrong("values")
def routes_of_tokens(tokens: int, width: int, **how: Any) -> Sent:
    """There are 8 bytes for each token; there are as many for each of its choices."""
    _, x, _, n = _parts(tokens, width, how)
    return dispatch_bytes(tokens, width, **how)[0], (n - 1) * (2 * x + 8 * tokens)


@wrong("values")
def half_of_a_route(tokens: int, width: int, **how: Any) -> Sent:
    """Each choice takes 4 bytes; it has a weight and the number of an expert, 4 bytes each."""
    _, x, routes, n = _parts(tokens, width, how)
    return dispatch_bytes(tokens, width, **how)[0], (n - 1) * (2 * x + routes / 2)


@wrong("values")
def sums_in_32_bits(tokens: int, width: int, **how: Any) -> Sent:
    """The sums come back in 4 bytes an element; they are as wide as the tokens."""
    _, x, routes, n = _parts(tokens, width, how)
    return dispatch_bytes(tokens, width, **how)[0], (n - 1) * (x + 4 * tokens * width + routes)


@wrong("values")
def routes_both_ways(tokens: int, width: int, **how: Any) -> Sent:
    """Weights and numbers are counted both ways; only sums come back."""
    _, x, routes, n = _parts(tokens, width, how)
    return dispatch_bytes(tokens, width, **how)[0], 2 * (n - 1) * (x + routes)


@wrong("values")
def gathered_for_each_choice(tokens: int, width: int, **how: Any) -> Sent:
    """In the second way a token is counted for each of its choices; it is gathered once."""
    _, x, routes, n = _parts(tokens, width, how)
    gathered = (n - 1) * (2 * x * how["top_k"] + routes)
    return dispatch_bytes(tokens, width, **how)[0], gathered


@wrong("values")
def summed_on_every_device(tokens: int, width: int, **how: Any) -> Sent:
    """The sums come back by an all-reduce, which sends twice as much as a reduce-scatter."""
    _, x, routes, n = _parts(tokens, width, how)
    return dispatch_bytes(tokens, width, **how)[0], (n - 1) * (3 * x + routes)


@wrong("values")
def shard_of_the_gather(tokens: int, width: int, **how: Any) -> Sent:
    """An all-gather sends n-1 times what a device has; you count (n-1)/n of it."""
    sent = dispatch_bytes(tokens, width, **how)
    return sent[0], sent[1] / how["devices"]


@wrong("values")
def ways_exchanged(tokens: int, width: int, **how: Any) -> Sent:
    """The two numbers are in the wrong order; that of the all-to-alls comes first."""
    exchanged, gathered = dispatch_bytes(tokens, width, **how)
    return gathered, exchanged


@wrong("values")
def always_16_bits(tokens: int, width: int, **how: Any) -> Sent:
    """Elements always take 2 bytes; use `element_bytes`."""
    return _changed(tokens, width, how, element_bytes=2)


@wrong("values")
def routes_as_elements(tokens: int, width: int, **how: Any) -> Sent:
    """Weights and numbers take `element_bytes` each; they take 4 bytes, whatever tokens do."""
    _, x, routes, n = _parts(tokens, width, how)
    gathered = (n - 1) * (2 * x + routes / 4 * how["element_bytes"])
    return dispatch_bytes(tokens, width, **how)[0], gathered


@wrong("values")
def more_choices_than_experts(tokens: int, width: int, **how: Any) -> Sent:
    """Raise ValueError where top_k is above the number of experts, too."""
    numbers = {name: how[name] for name in NAMES}
    if numbers["top_k"] > numbers["experts"] > 0:
        numbers["top_k"] = numbers["experts"]
    return dispatch_bytes(tokens, width, **numbers)


@wrong("values")
def part_of_an_expert(tokens: int, width: int, **how: Any) -> Sent:
    """Raise ValueError where the devices do not divide the experts, too."""
    experts, devices = how["experts"], how["devices"]
    if experts > 0 and devices > 0 and experts % devices:
        how["devices"] = math.gcd(experts, devices)
    return dispatch_bytes(tokens, width, **how)
