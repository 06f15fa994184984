"""A gather: the arrays of all devices, on the root only."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Shaped

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.collectives.common import ALL_BUT_ALL_REDUCE, from_root, rooted
from jaxpar.contracts.draws import all_axes, axis_names, pick
from jaxpar.contracts.steps import hop
from jaxpar.contracts.variants import Variant


def _gathered(case: Case, x: Array) -> list[Expected]:
    blocks = axis_first(case, x)  # [n, *others, ...]
    n, others = len(blocks), len(case.sizes) - 1
    gathered = jnp.moveaxis(blocks, 0, others)  # [*others, n, ...]
    held = jnp.zeros((n, *gathered.shape), x.dtype).at[case.kwargs["root"]].set(gathered)
    return [Expected(mesh_order(case, held))]


def gather(x: Shaped[Array, ...], *, axis: str, root: int) -> Shaped[Array, "n ..."]:
    """Every device's x on the root, the last device's first; zeros on the others.

    Math: y[j] = x_(n-1-j) on the root, 0 elsewhere
    """
    return collectives.gather(x, axis=axis, root=root)[::-1]


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """The axis last in its mesh, of one device, and of more devices than in the stub.

    The root is one in the middle, the first, and the last.
    """
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, many = pick(rng, (5, 6)), pick(rng, range(9, 13))
    mesh, wide = f"{other}=2,{axis}={n}", pick(rng, (7, 9, 11))
    several = ArraySpec((2 * n * 5, wide), f"b_{all_axes(mesh)} d", "bfloat16")
    alone = ArraySpec((2, 3, 5, wide), f"b_{axis}_{other} h t d", "int32", "large")
    wider = ArraySpec((many * 3, wide), f"b_{axis} d", "int32", "large")
    return (
        Case(mesh, {"x": several}, {"axis": axis, "root": pick(rng, range(1, n - 1))}),
        Case(f"{axis}=1,{other}=2", {"x": alone}, {"axis": axis, "root": 0}),
        Case(f"{axis}={many}", {"x": wider}, {"axis": axis, "root": many - 1}),
    )


CONTRACT = Contract(
    kind="program",
    task="return [n, ...] in device order on the root, and zeros of that shape elsewhere",
    reference=collectives.gather,
    oracle=_gathered,
    cases=rooted(
        ("tp=8", (8 * 60,), "b_tp", "tp", 5),
        ("dp=4,tp=2", (8 * 4, 3, 4), "b_dp_tp t d", "dp", 0),
    ),
    draw=_drawn,
    gradient=("x",),
    communication=Communication(
        "no all-reduce; no device receives more than n-1 times x",
        forward=((Limit(ALL_BUT_ALL_REDUCE, "axis", lambda s: (s.n() - 1) * s.bytes("x")),),),
        backward="forward",
    ),
    hints=(
        "One program runs on every device, so all of them may receive what only the root keeps.",
        "lax.all_gather stacks the x of all devices in device order.",
        "Keep it where lax.axis_index(axis) == root; jnp.where gives zeros elsewhere.",
    ),
    minimal="The root must receive the n-1 arrays that it does not hold: n-1 times x.",
    harder="Let only the root receive: n-1 permutes of one pair each. What does it cost in time?",
    variants=(
        Variant(
            gather,
            "return [n, ...] on the root, the last device's x first, and zeros of that shape "
            "elsewhere",
            after=jnp.flipud,
        ),
    ),
)


@wrong("values")
def gather_on_every_device(x: Array, *, axis: str, root: int) -> Array:
    """Every device returns the gathered array; all but the root must return zeros."""
    return lax.all_gather(x, axis)


@wrong("values")
def gather_to_zero(x: Array, *, axis: str, root: int) -> Array:
    """The array ends up on device 0; it belongs on `root`."""
    return from_root(lax.all_gather(x, axis), axis, 0)


@wrong("values")
def gather_counts_from_root(x: Array, *, axis: str, root: int) -> Array:
    """The stack begins with the root's x; y[j] must come from device j."""
    return from_root(jnp.roll(lax.all_gather(x, axis), -root, axis=0), axis, root)


@wrong("values")
def arrival_order(x: Array, *, axis: str, root: int) -> Array:
    """The stack is in order of arrival round the ring; y[j] must come from device j."""
    arrived = [x]
    for _ in range(lax.axis_size(axis) - 1):
        arrived.append(hop(arrived[-1], axis))
    return from_root(jnp.stack(arrived), axis, root)


@wrong("values")
def concatenates(x: Array, *, axis: str, root: int) -> Array:
    """The arrays are concatenated along dim 0; stack them along a new first dim."""
    return from_root(lax.all_gather(x, axis, tiled=True), axis, root)


@wrong("values")
def others_keep_their_slot(x: Array, *, axis: str, root: int) -> Array:
    """The other devices return their own x in its slot; they must return zeros."""
    i = lax.axis_index(axis)
    y = lax.all_gather(x, axis)
    own = jnp.where((jnp.arange(len(y)) == i).reshape(-1, *(1,) * x.ndim), y, jnp.zeros_like(y))
    return jnp.where(i == root, y, own)


@wrong("values")
def no_root_is_last(x: Array, *, axis: str, root: int) -> Array:
    """Root 0 is taken for no root, because 0 is false in Python; device 0 may be the root."""
    return from_root(lax.all_gather(x, axis), axis, root or lax.axis_size(axis) - 1)


@wrong("values")
def collects_in_float32(x: Array, *, axis: str, root: int) -> Array:
    """The slots are float32, whatever the dtype of x; make them with x.dtype."""
    n = lax.axis_size(axis)
    slots = jnp.zeros((n, *x.shape)).at[root].set(x.astype(jnp.float32))
    return lax.all_to_all(slots, axis, split_axis=0, concat_axis=0)


@wrong("values")
def eight_slots(x: Array, *, axis: str, root: int) -> Array:
    """The result has at most eight slots; it must have one for each device of the axis."""
    return from_root(lax.all_gather(x, axis)[:8], axis, root)


@wrong("values")
def root_of_first_axis(x: Array, *, axis: str, root: int) -> Array:
    """The root is looked for on the first axis of the mesh; it is a device of `axis`."""
    return from_root(lax.all_gather(x, axis), jax.sharding.get_abstract_mesh().axis_names[0], root)


@wrong("gradient")
def gather_cuts_gradient(x: Array, *, axis: str, root: int) -> Array:
    """The gradient does not come back from the root; the backward pass of a gather is a scatter."""
    return from_root(lax.all_gather(lax.stop_gradient(x), axis), axis, root)


@wrong("communication")
def slots_by_all_reduce(x: Array, *, axis: str, root: int) -> Array:
    """You all-reduce n slots, all zero but one; that sends twice the bytes of an all-gather."""
    slots = jnp.zeros((lax.axis_size(axis), *x.shape), x.dtype)
    return from_root(lax.psum(slots.at[lax.axis_index(axis)].set(x), axis), axis, root)


@wrong("communication")
def gathers_as_equal(x: Array, *, axis: str, root: int) -> Array:
    """all_gather(..., to="invarying") makes its backward pass an all-reduce of [n, ...]; the
    default makes it a reduce-scatter, half the bytes."""
    return from_root(lax.all_gather(x, axis, to="invarying"), axis, root)
