"""The maximum over the devices, and the index of the device that holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Int32, Num

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.collectives.common import NO_GATHER, chunk_bytes
from jaxpar.contracts.draws import all_axes, axis_names, pick
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


def _of_magnitudes(written: Contract) -> Contract:
    """The variant, in which two mistakes about signs are none."""
    kept = [m for m in written.mistakes if m.name not in ("magnitudes", "never_below_zero")]
    variant = Variant(
        reduce_max_location,
        "return (maximum of |x| over devices, int32 lowest index of a device that holds it)",
        before=jnp.abs,
    )
    return variant(replace(written, mistakes=tuple(kept)))


def _passes(times: int) -> Callable[[Sizes], int]:
    """Wire bytes of (n - 1)/n of two x and of the indices, padded, so many times."""

    def wire_bytes(sizes: Sizes) -> int:
        return times * (sizes.n() - 1) * (2 * chunk_bytes(sizes) + chunk_bytes(sizes, "int32"))

    return wire_bytes


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """The axis of more devices than in the stub, of one, and last in its mesh.

    No n but 1 divides the size of x.
    """
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    many, n, wide = pick(rng, (11, 12)), pick(rng, (3, 4, 6)), pick(rng, (13, 17))
    mesh, last = f"{other}=1,{axis}={many}", f"{other}=2,{axis}={n}"
    several = ArraySpec((many * 7, wide), f"b_{all_axes(mesh)} t", "bfloat16")
    alone = ArraySpec((2 * 3, 1, wide), f"b_{axis}_{other} t d")
    integers = ArraySpec((2 * n * 5, wide), f"b_{all_axes(last)} t", "int32", "large")
    return (
        Case(mesh, {"x": several}, {"axis": axis}),
        Case(f"{axis}=1,{other}=2", {"x": alone}, {"axis": axis}),
        Case(last, {"x": integers}, {"axis": axis}),
    )


def _almost_equal_integers(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts neighbours of the first device's integers on all, which float32 takes for equal ones.

    They take all 32 bits, so that no index fits beside them.
    """
    (x,) = inputs
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return
    blocks = x.reshape(*case.sizes.values(), -1)
    by_axis = np.moveaxis(blocks, list(case.sizes).index(case.kwargs["axis"]), 0)
    place = np.arange(by_axis.shape[-1])
    by_axis[0] *= 15  # below 2**31, since what is drawn is at most 2**27
    for i in reversed(range(len(by_axis))):
        by_axis[i] = by_axis[0] - (i + place) % 3


CONTRACT = Contract(
    kind="program",
    task="return (maximum over devices, int32 lowest index of a device that holds it)",
    reference=collectives.reduce_max_location,
    oracle=_maximum_and_holder,
    cases=(
        Case("tp=8", {"x": ArraySpec((8 * 1024,), "b_tp", draw="ties")}, {"axis": "tp"}),
        Case("dp=5,tp=2", {"x": ArraySpec((10 * 10, 4, 2), "b_dp_tp t d")}, {"axis": "dp"}),
    ),
    draw=_drawn,
    poison=_almost_equal_integers,
    communication=Communication(
        "at most two all-reduces of x and one of the indices; no gather",
        # JAX has no reduce-scatter of maxima: an all-to-all and a local maximum are one.
        forward=(
            (Limit(("all_reduce",), "axis", _passes(2), exact=True),),
            (Limit(("all_to_all", "all_gather"), "axis", _passes(1)),),
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
    variants=(_of_magnitudes,),
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


@wrong("values")
def magnitudes(x: Array, *, axis: str) -> Located:
    """This finds the largest absolute value; the largest value is asked for."""
    largest = lax.pmax(jnp.abs(x), axis)
    votes = jnp.where(jnp.abs(x) == largest, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(votes, axis)


@wrong("values")
def never_below_zero(x: Array, *, axis: str) -> Located:
    """The maximum begins at 0, which is wrong where all devices hold negative values."""
    largest = lax.pmax(jnp.maximum(x, 0), axis)
    votes = jnp.where(x == largest, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(votes, axis)


@wrong("values")
def others_vote_eight(x: Array, *, axis: str) -> Located:
    """Devices that do not hold the maximum vote 8, which is the index of a device on a longer axis;
    let them vote n."""
    largest = lax.pmax(x, axis)
    return largest, lax.pmin(jnp.where(x == largest, lax.axis_index(axis), 8), axis)


@wrong("values")
def compares_in_float32(x: Array, *, axis: str) -> Located:
    """Values are compared in float32, which takes large integers for equal that are not; compare
    them in their own dtype."""
    largest = lax.pmax(x, axis)
    holds = x.astype(jnp.float32) == largest.astype(jnp.float32)
    return largest, lax.pmin(jnp.where(holds, lax.axis_index(axis), lax.axis_size(axis)), axis)


@wrong("values")
def maximum_in_float32(x: Array, *, axis: str) -> Located:
    """The maximum is float32, whatever the dtype of x; begin with x itself."""
    largest = lax.pmax(x.astype(jnp.float32), axis)
    votes = jnp.where(x == largest, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(votes, axis)


@wrong("values")
def index_on_first_axis(x: Array, *, axis: str) -> Located:
    """The index is that on the first axis of the mesh; return the one on `axis`."""
    first = jax.sharding.get_abstract_mesh().axis_names[0]
    largest = lax.pmax(x, axis)
    return largest, lax.pmin(jnp.where(x == largest, lax.axis_index(first), 99), axis)


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
