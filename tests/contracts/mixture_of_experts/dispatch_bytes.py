"""Answers to dispatch_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(tokens, width, experts, top_k, capacity_factor, devices, element_bytes):
    if min(tokens, width, experts, top_k, capacity_factor, devices, element_bytes) <= 0:
        raise ValueError("all must be positive")
    if top_k > experts or experts % devices:
        raise ValueError("top_k or devices")


def _capacity(tokens, experts, top_k, capacity_factor):
    return math.ceil(tokens * top_k / experts * capacity_factor)


@right
def sent_by_rows(tokens, width, *, experts, top_k, capacity_factor, devices, element_bytes):
    _check(tokens, width, experts, top_k, capacity_factor, devices, element_bytes)
    own = experts // devices
    rows = own * _capacity(tokens, experts, top_k, capacity_factor)  # to one other device
    row = width * element_bytes
    others = devices - 1
    return 2 * others * rows * row, others * tokens * (2 * row + 8 * top_k)


@right
def sent_as_a_list(tokens, width, *, experts, top_k, capacity_factor, devices, element_bytes):
    _check(tokens, width, experts, top_k, capacity_factor, devices, element_bytes)
    buffer = experts * _capacity(tokens, experts, top_k, capacity_factor) * width * element_bytes
    shard = tokens * width * element_bytes
    gathered = (devices - 1) * (shard + tokens * top_k * (4 + 4))
    return [
        2 * buffer * (devices - 1) / devices,
        gathered + (devices * shard) * (devices - 1) / devices,
    ]


@right
def sent_in_fractions(tokens, width, *, experts, top_k, capacity_factor, devices, element_bytes):
    _check(tokens, width, experts, top_k, capacity_factor, devices, element_bytes)
    part = Fraction(devices - 1, devices)
    rows = experts * _capacity(tokens, experts, top_k, capacity_factor)
    exchanged = part * 2 * rows * width * Fraction(element_bytes)
    gathered = (devices - 1) * tokens * (2 * width * Fraction(element_bytes) + 8 * top_k)
    return float(exchanged), float(gathered)


@right
def sent_element_by_element(
    tokens, width, *, experts, top_k, capacity_factor, devices, element_bytes
):
    numbers = tokens, width, experts, top_k, capacity_factor, devices, element_bytes
    if not all(number > 0 for number in numbers):
        raise ValueError(numbers)
    if not (top_k <= experts and experts / devices == experts // devices):
        raise ValueError(numbers)
    capacity = -int(-(tokens * top_k / experts * capacity_factor) // 1)
    shape = (2, experts - experts // devices, capacity, width)
    weights = (devices - 1) * tokens * top_k * np.dtype("float32").itemsize
    numbers = (devices - 1) * tokens * top_k * np.dtype("int32").itemsize
    x = (devices - 1) * tokens * width * element_bytes
    return float(math.prod(shape) * element_bytes), float(2 * x + weights + numbers)


@wrong("values")
def sent_with_a_row_more(tokens, width, **how):
    """One row more than needed where the division leaves no rest."""
    _check(tokens, width, *(how[name] for name in _NAMES))
    capacity = int(tokens * how["top_k"] / how["experts"] * how["capacity_factor"]) + 1
    exchanged, gathered = sent_by_rows(tokens, width, **how)
    right = _capacity(tokens, how["experts"], how["top_k"], how["capacity_factor"])
    return exchanged / right * capacity, gathered


_NAMES = ("experts", "top_k", "capacity_factor", "devices", "element_bytes")


@wrong("values")
def sent_with_rounded_loads(tokens, width, **how):
    """The even load is rounded before the factor."""
    _check(tokens, width, *(how[name] for name in _NAMES))
    capacity = math.ceil(math.ceil(tokens * how["top_k"] / how["experts"]) * how["capacity_factor"])
    exchanged, gathered = sent_by_rows(tokens, width, **how)
    right = _capacity(tokens, how["experts"], how["top_k"], how["capacity_factor"])
    return exchanged / right * capacity, gathered


@wrong("values")
def sent_with_rooms_for_all_tokens_at_most(tokens, width, **how):
    """No expert has more rows than there are tokens."""
    exchanged, gathered = sent_by_rows(tokens, width, **how)
    right = _capacity(tokens, how["experts"], how["top_k"], how["capacity_factor"])
    return exchanged / right * min(right, tokens), gathered


@wrong("values")
def sent_the_better_way(tokens, width, **how):
    return (min(sent_by_rows(tokens, width, **how)),) * 2


@wrong("values")
def sent_by_two_devices_or_more(tokens, width, **how):
    if how["devices"] == 1:
        raise ValueError("one device sends nothing")
    return sent_by_rows(tokens, width, **how)


@wrong("values")
def sent_in_whole_bytes(tokens, width, **how):
    exchanged, gathered = sent_by_rows(tokens, width, **how)
    return 2 * math.ceil(exchanged / 2), math.ceil(gathered)


@wrong("values")
def sent_where_only_products_are_checked(tokens, width, **how):
    numbers = (tokens, width, *(how[name] for name in _NAMES))
    if math.prod(numbers) <= 0 or how["top_k"] > how["experts"] or how["experts"] % how["devices"]:
        raise ValueError(numbers)
    right = _capacity(tokens, how["experts"], how["top_k"], how["capacity_factor"])
    rows, others = how["experts"] // how["devices"] * right, how["devices"] - 1
    row = width * how["element_bytes"]
    return 2 * others * rows * row, others * tokens * (2 * row + 8 * how["top_k"])


@wrong("values")
def sent_by_at_most_64_devices(tokens, width, **how):
    few = how | {"devices": min(how["devices"], 64)}
    sent_by_rows(tokens, width, **how)
    if how["experts"] % few["devices"]:
        few["devices"] = how["devices"]
    return sent_by_rows(tokens, width, **few)
