"""The maximum over the devices, and the index of the device that holds it."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Int32, Num

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device, ring_bytes
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.collectives.common import NO_GATHER
from jaxpar.contracts.variants import Variant


def _maximum_and_holder(case: Case, x: Array) -> list[Expected]:
    blocks = axis_first(case, x)
    holder = blocks.argmax(axis=0).astype(jnp.int32)  # of equal ones the first
    return [Expected(on_every_device(case, part)) for part in (blocks.max(axis=0), holder)]


def reduce_max_location(
    x: Num[Array, ...], *, axis: str
) -> tuple[Num[Array, ...], Int32[Array, ...]]:
    """The largest absolute value of all devices and the index of the device that holds it.

    On every device, element by element. Where several devices hold it, the lowest index.

    Math: y = max_j |x_j|, and min {j : |x_j| = y}
    """
    return collectives.reduce_max_location(jnp.abs(x), axis=axis)


CONTRACT = Contract(
    kind="program",
    task="return (maximum over devices, int32 lowest index of a device that holds it)",
    reference=collectives.reduce_max_location,
    oracle=_maximum_and_holder,
    cases=(
        Case("tp=8", {"x": ArraySpec((8 * 1024,), "b_tp", draw="ties")}, {"axis": "tp"}),
        Case("dp=5,tp=2", {"x": ArraySpec((10 * 10, 4, 2), "b_dp_tp t d")}, {"axis": "dp"}),
    ),
    draw=lambda rng: (
        Case("pp=2,cp=3", {"x": ArraySpec((6 * 12, 5), "b_pp_cp t", draw="ties")}, {"axis": "cp"}),
    ),
    communication=Communication(
        "at most three all-reduces of x; no gather",
        # JAX has no reduce-scatter of maxima: an all-to-all and a local maximum are one.
        forward=(
            (Limit(("all_reduce",), "axis", ring_bytes(6), exact=True),),
            (Limit(("all_to_all", "all_gather"), "axis", ring_bytes(3)),),
        ),
    ),
    memory=NO_GATHER,
    hints=(
        "Find the maximum first. Then each device knows whether it holds it.",
        "Let each holder vote with its index, and everybody else with something larger.",
        "lax.pmax of x; then lax.pmin of jnp.where(x == largest, index, n).",
    ),
    minimal="A device knows whether to vote only once it knows the maximum: two all-reduces, one "
    "after the other. JAX has no all-reduce that does both.",
    harder="Send 3/4 of that: an all-to-all, a local maximum and argmax, and two all-gathers.",
    variants=(
        Variant(
            reduce_max_location,
            "return (maximum of |x| over devices, int32 lowest index of a device that holds it)",
            before=jnp.abs,
        ),
    ),
)


Located = tuple[Array, Array]  # the maximum, and the index of the device that holds it


@wrong("values")
def highest_index(x: Array, *, axis: str) -> Located:
    """On ties this gives the highest index; the lowest is asked for."""
    largest = lax.pmax(x, axis)
    return largest, lax.pmax(jnp.where(x == largest, lax.axis_index(axis), -1), axis)


@wrong("values")
def others_vote_zero(x: Array, *, axis: str) -> Located:
    """Devices that do not hold the maximum vote 0, and win the minimum; let them vote n."""
    largest = lax.pmax(x, axis)
    return largest, lax.pmin(jnp.where(x == largest, lax.axis_index(axis), 0), axis)


@wrong("values")
def adds_indices(x: Array, *, axis: str) -> Located:
    """The indices of all holders are added, which is wrong on ties; take their minimum."""
    largest = lax.pmax(x, axis)
    return largest, lax.psum(jnp.where(x == largest, lax.axis_index(axis), 0), axis)


@wrong("values")
def never_agrees(x: Array, *, axis: str) -> Located:
    """Each device returns its own vote; take the minimum of the votes over the devices."""
    largest = lax.pmax(x, axis)
    return largest, jnp.where(x == largest, lax.axis_index(axis), lax.axis_size(axis))


@wrong("values")
def index_as_float(x: Array, *, axis: str) -> Located:
    """The index has the dtype of x; return it as int32."""
    largest, i = lax.pmax(x, axis), lax.axis_index(axis).astype(x.dtype)
    return largest, lax.pmin(jnp.where(x == largest, i, jnp.inf), axis)


@wrong("values")
def index_of_element(x: Array, *, axis: str) -> Located:
    """The index is that of an element within x; return that of a device."""
    return lax.pmax(x, axis), lax.pmax(jnp.argmax(x, axis=0).astype(jnp.int32), axis)


@wrong("values")
def one_maximum_for_all(x: Array, *, axis: str) -> Located:
    """One maximum is taken over all elements; take one per element, over the devices."""
    largest = lax.pmax(jnp.max(x), axis)
    holder = jnp.where(jnp.max(x) == largest, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(holder, axis)


@wrong("communication")
def gathers_for_location(x: Array, *, axis: str) -> Located:
    """Every x is gathered on every device; two all-reduces of x are enough."""
    everything = lax.all_gather(x, axis)
    return jnp.max(everything, axis=0), jnp.argmax(everything, axis=0).astype(jnp.int32)


@wrong("communication")
def slots_for_location(x: Array, *, axis: str) -> Located:
    """An all-reduce of n slots gathers every x on every device; two all-reduces of x are enough."""
    slots = jnp.zeros((lax.axis_size(axis), *x.shape), x.dtype)
    everything = lax.psum(slots.at[lax.axis_index(axis)].set(x), axis)
    return jnp.max(everything, axis=0), jnp.argmax(everything, axis=0).astype(jnp.int32)
