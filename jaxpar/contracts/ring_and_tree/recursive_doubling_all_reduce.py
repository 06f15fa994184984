"""An all-reduce in log2 n exchanges between partners."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.ring_and_tree.common import DOUBLING, distances, ring_case
from jaxpar.contracts.steps import hop


def _sum(case: Case, x: Array) -> list[Expected]:
    return [Expected(on_every_device(case, axis_first(case, x).sum(axis=0)))]


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    first, last = pick(rng, (3, 5, 6)), pick(rng, (10, 11, 12))
    return (
        ring_case(
            f"{axis}=4,{other}=3",
            ArraySpec((12 * first, 1, 3, 2), f"b_{axis}_{other} t h d", "bfloat16"),
            axis=axis,
        ),
        ring_case(
            f"{axis}=1,{other}=2", ArraySpec((2 * first, last), f"b_{axis}_{other} d"), axis=axis
        ),
        # A step more than in the stub.
        ring_case(f"{axis}=16", ArraySpec((16 * 2, last), f"b_{axis} d"), axis=axis),
    )


CONTRACT = Contract(
    kind="program",
    task="return on every device the sum of x over `axis`, in log2 n permutes",
    reference=collectives.recursive_doubling_all_reduce,
    oracle=_sum,
    cases=(
        ring_case("tp=8", ArraySpec((8 * 40,), "b_tp"), axis="tp"),
        ring_case("dp=4,tp=4", ArraySpec((16 * 7, 6), "b_dp_tp d"), axis="tp"),
        ring_case(
            "dp=2,tp=3", ArraySpec((6 * 4, 5, 2), "b_dp_tp t d", "int32", "large"), axis="dp"
        ),
    ),
    draw=_drawn,
    errors=(
        BadCall(ring_case("cp=6", ArraySpec((6 * 4,), "b_cp"), axis="cp"), "n = 6"),
        BadCall(ring_case("dp=3,tp=2", ArraySpec((6 * 4,), "b_dp_tp"), axis="dp"), "n = 3"),
        BadCall(ring_case("tp=5", ArraySpec((5 * 4,), "b_tp"), axis="tp"), "n = 5"),
        BadCall(ring_case("ep=12", ArraySpec((12 * 4,), "b_ep"), axis="ep"), "n = 12"),
    ),
    gradient=("x",),
    communication=Communication(
        "permutes only, log2 n of them, each of x",
        forward=((DOUBLING,),),
        backward="forward",
    ),
    hints=(
        "If partners swap their sums and add, each sum is over twice as many devices as before.",
        "Partners are 1 apart, then 2, then 4, because sums that overlap would count a device "
        "twice.",
        "The partner of device j at distance d is j ^ d. Raise ValueError if n & (n - 1).",
    ),
    minimal="In each step a sum can come to cover at most twice as many devices as before, so a "
    "sum over n devices takes log2 n steps. For large x a ring sends less; for small x the number "
    "of steps decides the time.",
    harder="Halve what is sent in each step (recursive halving), then double it back: the bytes "
    "of a ring in 2 log2 n steps.",
)


@wrong("values")
def same_partner(x: Array, *, axis: str) -> Array:
    """The partner is one place away in every step; the distance must double."""
    for _ in distances(lax.axis_size(axis)):
        x = x + hop(x, axis)
    return x


@wrong("values")
def distances_by_one(x: Array, *, axis: str) -> Array:
    """The distances are 1, 2, 3, so some x are counted twice; they must double: 1, 2, 4."""
    for k, _ in enumerate(distances(lax.axis_size(axis)), start=1):
        x = x + hop(x, axis, k)
    return x


@wrong("values")
def three_steps(x: Array, *, axis: str) -> Array:
    """You always make three steps; make log2 n, where n is the size of the axis."""
    for distance in (1, 2, 4):
        x = x + hop(x, axis, distance)
    return x


@wrong("values")
def sends_first_x_only(x: Array, *, axis: str) -> Array:
    """Each step sends the device's own x; send the sum so far."""
    total = x
    for distance in distances(lax.axis_size(axis)):
        total = total + hop(x, axis, distance)
    return total


@wrong("values")
def one_of_each_pair_sends(x: Array, *, axis: str) -> Array:
    """In each pair one device sends and the other does not, so half of the sums lack a part; let
    both send."""
    n = lax.axis_size(axis)
    for distance in distances(n):
        pairs = [(j, j ^ distance) for j in range(n) if j & distance]
        x = x + lax.ppermute(x, axis, pairs)
    return x


@wrong("values")
def keeps_partners(x: Array, *, axis: str) -> Array:
    """What arrives replaces the sum so far; add it to the sum."""
    for distance in distances(lax.axis_size(axis)):
        x = hop(x, axis, distance)
    return x


@wrong("values")
def doubles_in_float32(x: Array, *, axis: str) -> Array:
    """The sum starts from jnp.zeros, which are float32 whatever x is; start from x, or give the
    zeros x.dtype."""
    total = jnp.zeros(x.shape) + x
    for distance in distances(lax.axis_size(axis)):
        total = total + hop(total, axis, distance)
    return total


@wrong("values")
def rounds_in_float32(x: Array, *, axis: str) -> Array:
    """x is summed in float32, which rounds large integers; keep the dtype of x."""
    total = x.astype(jnp.float32)
    for distance in distances(lax.axis_size(axis)):
        total = total + hop(total, axis, distance)
    return total.astype(x.dtype)


@wrong("values")
def refuses_one_device(x: Array, *, axis: str) -> Array:
    """An axis of one device is refused; 1 is a power of two, and the sum is x."""
    n = lax.axis_size(axis)
    if n < 2 or n & (n - 1):
        raise ValueError(f"{n} devices are not a power of two")
    for distance in distances(n):
        x = x + hop(x, axis, distance)
    return x


@wrong("gradient")
def doubling_cuts_gradient(x: Array, *, axis: str) -> Array:
    """The gradient does not come back from the partners; each x gets the sum over all devices."""
    for distance in distances(lax.axis_size(axis)):
        x = x + lax.stop_gradient(hop(x, axis, distance))
    return x


@wrong("communication")
def ring_of_whole_x(x: Array, *, axis: str) -> Array:
    """x goes round the ring in n-1 steps; with partners at 1, 2, 4, ... it takes log2 n."""
    total = x
    for _ in range(lax.axis_size(axis) - 1):
        x = hop(x, axis)
        total = total + x
    return total


@wrong("communication")
def one_all_reduce(x: Array, *, axis: str) -> Array:
    """lax.psum does it in one call; build it from lax.ppermute here."""
    return lax.psum(x, axis)


@wrong("communication")
def gathers_to_sum(x: Array, *, axis: str) -> Array:
    """Every x is gathered and added up on every device: n-1 times x, and not by permutes."""
    return lax.all_gather(x, axis).sum(axis=0)


@wrong("errors")
def any_size(x: Array, *, axis: str) -> Array:
    """An axis whose size is not a power of two must raise ValueError; here some devices would be
    counted twice."""
    for distance in distances(lax.axis_size(axis)):
        x = x + hop(x, axis, distance)
    return x
