"""The tokens per device below which FSDP waits for the gather of a layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
from jaxpar.cost.roofline import tokens_that_hide_fsdp

# FLOPs in a second, bytes in a second inside a node and between nodes, of a device: dense peaks.
_H100 = (989e12, 450e9, 50e9)
_A100 = (312e12, 300e9, 25e9)
_B200 = (2250e12, 900e9, 50e9)
_HOME = (165e12, 31.5e9, 1.25e9)


def _clusters(rng: np.random.Generator) -> list[Call]:
    """One node, a part of one, several; clusters of today; any; then what is refused."""

    def call(fsdp: float, per_node: float, *speeds: float, each: float = 2) -> Call:
        flops, inside, between = speeds
        links = {"inside_bytes_per_second": inside, "between_bytes_per_second": between}
        how = {"devices_per_node": per_node, "flops_per_second": flops}
        return (fsdp,), how | links | {"parameter_bytes": each}

    calls = [call(4, 4, 1200, 3, 1), call(8, 4, 1200, 4, 2), call(8, 4, 1200, 3, 0.25)]
    calls += [call(1, 8, *_H100), call(8, 8, *_H100), call(4, 8, *_A100), call(64, 8, *_H100)]
    calls += [call(1024, 8, *_H100), call(256, 8, *_B200), call(4, 1, *_HOME), call(1, 1, *_HOME)]
    calls += [call(128, 8, *_A100, each=4), call(72, 72, *_B200, each=1), call(144, 72, *_B200)]
    # Links of which either is the slower one, and more of everything than there is today.
    calls += [call(16, 8, 1e15, 1e9, 1e12), call(16, 8, 1e15, 1e12, 1e9), call(3, 5, 7, 11, 13)]
    calls += [call(600_000, 300, 3e18, 4e14, 7e10, each=0.5), call(10, 2, 0.5, 0.25, 0.125)]
    calls += [call(300, 300, 3e18, 4e14, 1e9), call(2000, 1, 3e18, 1e9, 6e14)]
    spreads = (log_spread(rng, *ends, 9) for ends in ((1e12, 1e17), (1e10, 1e13), (1e9, 1e12)))
    for place, speeds in enumerate(zip(*spreads, strict=True)):
        per_node = int(rng.integers(2, 97))
        fsdp = per_node * int(rng.integers(2, 3000))
        if place % 3 == 0:  # a part of one node
            fsdp = int(rng.integers(2, per_node + 1))
        calls.append(call(fsdp, per_node, *speeds, each=float(rng.uniform(0.5, 4.5))))
    refused = [call(12, 8, *_H100), call(9, 8, *_H100), call(20, 8, *_A100)]
    for *sizes, each in not_positive((16, 8, *_H100, 2)):
        refused.append(call(*sizes, each=each))
    # One device alone needs no link, and the numbers are looked at all the same.
    refused += [call(1, 8, 989e12, 0, 50e9), call(1, 8, 989e12, 450e9, -1), call(1, 8, -1, 1, 1)]
    return [*calls, *refused]


CONTRACT = Contract(
    kind="value",
    task="return the tokens per device with which computing a layer takes as long as gathering it",
    reference=tokens_that_hide_fsdp,
    oracle=tokens_that_hide_fsdp,
    values=_clusters,
    hints=(
        "Let a layer have p parameters. How long does a device compute it for t tokens? How long "
        "does the gather take on each kind of link? p cancels.",
        "With k devices on each of m nodes, a device sends (k - 1)/k of the layer inside its node, "
        "and (m - 1)/m of 1/k of it by its network card. Both go on at once, so the slower counts.",
        "flops_per_second * parameter_bytes / 2 * max((k - 1) / k / inside, (m - 1) / m / k / "
        "between), with k = min(fsdp, devices_per_node) and m = fsdp / k; first raise ValueError "
        "for what is not positive, and where m is no whole number.",
    ),
    minimal="With fewer tokens a device waits, however well the gather overlaps; with more it "
    "never does.",
    harder="How many tokens does tensor parallelism need? Why does the answer not depend on the "
    "batch, and which size of the model takes its place?",
)


def _tokens(fsdp: int, how: dict[str, Any], seconds: float) -> float:
    """The tokens that hide a gather which takes so many seconds for each byte of the layer."""
    tokens_that_hide_fsdp(fsdp, **how)  # raises where it must
    return how["flops_per_second"] * how["parameter_bytes"] / 2 * seconds


def _levels(fsdp: int, how: dict[str, Any]) -> tuple[float, float]:
    """Seconds for each byte of the layer, inside nodes and between them."""
    tokens_that_hide_fsdp(fsdp, **how)  # raises where it must
    inner = min(fsdp, how["devices_per_node"])
    outer = fsdp // inner
    inside = (inner - 1) / inner / how["inside_bytes_per_second"]
    return inside, (outer - 1) / outer / inner / how["between_bytes_per_second"]


@wrong("values")
def tokens_of_one_card(fsdp: int, **how: Any) -> float:
    """Between nodes you let a device send the whole layer by its network card; all devices of a
    node send at once, so each sends only the parts that belong to its place: divide by the devices
    of a node."""
    inside, between = _levels(fsdp, how)
    return _tokens(fsdp, how, max(inside, between * min(fsdp, how["devices_per_node"])))


@wrong("values")
def tokens_of_levels_in_turn(fsdp: int, **how: Any) -> float:
    """You add the times on both kinds of links; both are busy at once, so take the larger."""
    return _tokens(fsdp, how, sum(_levels(fsdp, how)))


@wrong("values")
def tokens_of_the_faster_level(fsdp: int, **how: Any) -> float:
    """You take the smaller of the times on both kinds of links; the gather is ready when the slower
    one is."""
    return _tokens(fsdp, how, min(_levels(fsdp, how)))


@wrong("values")
def tokens_of_nvlink_alone(fsdp: int, **how: Any) -> float:
    """You count the links inside a node only; over several nodes the network may take longer."""
    return _tokens(fsdp, how, _levels(fsdp, how)[0])


@wrong("values")
def tokens_of_the_network_alone(fsdp: int, **how: Any) -> float:
    """You count the network only; inside a node the gather also takes time."""
    return _tokens(fsdp, how, _levels(fsdp, how)[1])


@wrong("values")
def tokens_of_many_devices(fsdp: int, **how: Any) -> float:
    """You leave the factors (k - 1)/k and (m - 1)/m out, as one may for many devices; a device
    does not send its own part to itself."""
    tokens_that_hide_fsdp(fsdp, **how)  # raises where it must
    inner = min(fsdp, how["devices_per_node"])
    inside, between = 1 / how["inside_bytes_per_second"], 1 / how["between_bytes_per_second"]
    return _tokens(fsdp, how, max(inside, between / inner if fsdp > inner else 0))


@wrong("values")
def tokens_in_one_ring(fsdp: int, **how: Any) -> float:
    """You let a device send (n - 1)/n of the layer on the slower of its links, in one ring over all
    devices; the gather has two levels, on which a device sends different amounts."""
    slowest = how["between_bytes_per_second"]
    if fsdp <= how["devices_per_node"]:
        slowest = how["inside_bytes_per_second"]
    return _tokens(fsdp, how, (fsdp - 1) / fsdp / slowest)


@wrong("values")
def tokens_of_two_bytes(fsdp: int, **how: Any) -> float:
    """You count 2 bytes for each parameter; `parameter_bytes` says how many they are."""
    return tokens_that_hide_fsdp(fsdp, **how) * 2 / how["parameter_bytes"]


@wrong("values")
def tokens_of_one_flop(fsdp: int, **how: Any) -> float:
    """The result is twice what it should be; a product takes 2 FLOPs for each parameter and token,
    a multiplication and an addition."""
    return tokens_that_hide_fsdp(fsdp, **how) * 2


@wrong("values")
def tokens_of_a_step(fsdp: int, **how: Any) -> float:
    """You count 6 FLOPs for each parameter and token, those of the whole step, against one gather;
    forward it is 2."""
    return tokens_that_hide_fsdp(fsdp, **how) / 3


@wrong("values")
def tokens_of_three_gathers(fsdp: int, **how: Any) -> float:
    """You count what a whole step sends against the FLOPs of the forward pass; forward there is one
    gather."""
    return tokens_that_hide_fsdp(fsdp, **how) * 3


@wrong("values")
def tokens_of_all_devices(fsdp: int, **how: Any) -> float:
    """These are the tokens of all devices together; return those of one."""
    return tokens_that_hide_fsdp(fsdp, **how) * fsdp


@wrong("values")
def tokens_in_whole(fsdp: int, **how: Any) -> float:
    """You round the tokens up; return the number as it is."""
    return math.ceil(tokens_that_hide_fsdp(fsdp, **how))


@wrong("values")
def tokens_alone_refused(fsdp: int, **how: Any) -> float:
    """One device alone is no error: it gathers nothing, so 0 tokens are enough."""
    if fsdp == 1:
        raise ValueError("one device")
    return tokens_that_hide_fsdp(fsdp, **how)


@wrong("values")
def tokens_alone_not_checked(fsdp: int, **how: Any) -> float:
    """You return 0 for one device before you have looked at the other numbers; raise ValueError
    first, where one is not positive."""
    return 0.0 if fsdp == 1 else tokens_that_hide_fsdp(fsdp, **how)


@wrong("values")
def tokens_of_nodes_in_part(fsdp: int, **how: Any) -> float:
    """Raise ValueError where there are more devices than in one node, and they do not fill whole
    nodes."""
    per_node = how["devices_per_node"]
    if fsdp > per_node > 0 and fsdp % per_node:
        fsdp = -(-fsdp // per_node) * per_node
    return tokens_that_hide_fsdp(fsdp, **how)
