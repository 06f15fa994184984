"""Each device adds its index on a mesh axis to its shard of x."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import all_axes, axis_names, pick


def _plus_rank(case: Case, x: jax.Array) -> list[Expected]:
    if x.ndim == 0:  # every device has the same
        others = tuple(case.sizes[axis] for axis in case.sizes if axis != case.kwargs["axis"])
        blocks = jnp.broadcast_to(x, (case.sizes[case.kwargs["axis"]], *others))
    else:
        blocks = axis_first(case, x)
    ranks = jnp.arange(len(blocks), dtype=x.dtype).reshape(-1, *(1,) * (blocks.ndim - 1))
    return [Expected(mesh_order(case, blocks + ranks))]


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """The axis last in its mesh, alone with more devices than in the stub, and of one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, many, wide = pick(rng, (5, 6)), pick(rng, range(9, 13)), pick(rng, range(7, 10))
    mesh = f"{other}=2,{axis}={n}"
    return (
        Case(
            mesh,
            {"x": ArraySpec((2 * n * 5, wide), f"b_{all_axes(mesh)} t", "float16")},
            {"axis": axis},
        ),
        Case(
            f"{axis}=1,{other}={many}", {"x": ArraySpec((), "", "int32", "large")}, {"axis": axis}
        ),
        Case(
            f"{axis}={many}",
            {"x": ArraySpec((many * 7, wide), f"b_{axis} t", "int32", "large")},
            {"axis": axis},
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return x plus the index of this device on `axis`, in the dtype of x",
    reference=collectives.add_rank,
    oracle=_plus_rank,
    cases=(
        Case("tp=8", {"x": ArraySpec((8 * 6,), "b_tp")}, {"axis": "tp"}),
        Case(
            "dp=3,tp=2", {"x": ArraySpec((6 * 2, 3, 4), "b_dp_tp t d", "bfloat16")}, {"axis": "dp"}
        ),
    ),
    draw=_drawn,
    gradient=("x",),
    communication=Communication("nothing is sent", forward=((),), backward="forward"),
    hints=(
        "Every device runs the same program; only its index on the axis differs.",
        "jax.lax has a function that gives the index of this device on a mesh axis.",
        "lax.axis_index(axis) is an int32 scalar; adding it to x keeps the dtype of x.",
    ),
    minimal="A device knows its own index: nothing has to be sent.",
    harder="Add the rank in the whole mesh, from the indices on its axes and their sizes.",
)


@wrong("values")
def size_for_index(x: jax.Array, *, axis: str) -> jax.Array:
    """This adds the number of devices on the axis; add the index of this device."""
    return x + lax.axis_size(axis)


@wrong("values")
def rank_in_whole_mesh(x: jax.Array, *, axis: str) -> jax.Array:
    """This adds the rank in the whole mesh; add the index on `axis` alone."""
    return x + lax.axis_index(jax.sharding.get_abstract_mesh().axis_names)


@wrong("values")
def rank_from_one(x: jax.Array, *, axis: str) -> jax.Array:
    """Indices are counted from one here; the first device of an axis has index 0."""
    return x + lax.axis_index(axis) + 1


@wrong("values")
def axis_by_its_name(x: jax.Array, *, axis: str) -> jax.Array:
    """The axis is always "tp" here; use the one that the argument `axis` names."""
    return x + lax.axis_index("tp").astype(x.dtype)


@wrong("values")
def row_for_rank(x: jax.Array, *, axis: str) -> jax.Array:
    """You add the row number within the device's own x; add the index of the device to every
    element."""
    rows = jnp.arange(x.shape[0], dtype=x.dtype)
    return x + rows.reshape(-1, *(1,) * (x.ndim - 1))


@wrong("values")
def rank_widens_x(x: jax.Array, *, axis: str) -> jax.Array:
    """The result is float32 where x is bfloat16; convert the index to the dtype of x."""
    return x + lax.axis_index(axis).astype(jnp.float32)


@wrong("values")
def adds_in_float32(x: jax.Array, *, axis: str) -> jax.Array:
    """The sum is computed in float32 and converted back, which rounds large integers; convert the
    index to the dtype of x instead."""
    return (x.astype(jnp.float32) + lax.axis_index(axis)).astype(x.dtype)


@wrong("values")
def eight_ranks_at_most(x: jax.Array, *, axis: str) -> jax.Array:
    """Ranks above 7 are missing; an axis may have more than eight devices."""
    return x + jnp.arange(8, dtype=x.dtype)[lax.axis_index(axis)]


@wrong("values")
def first_axis_of_mesh(x: jax.Array, *, axis: str) -> jax.Array:
    """This adds the index on the first axis of the mesh; add the one on the axis that the argument
    `axis` names."""
    return x + lax.axis_index(jax.sharding.get_abstract_mesh().axis_names[0]).astype(x.dtype)


@wrong("gradient")
def rank_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    """The gradient does not pass through x; adding a constant leaves it as it is."""
    return lax.stop_gradient(x) + lax.axis_index(axis)


@wrong("communication")
def gathers_to_add_rank(x: jax.Array, *, axis: str) -> jax.Array:
    """Every device's x is gathered to add the rank; a device needs only its own x and index."""
    everything = lax.all_gather(x, axis)  # [n, ...]
    ranks = jnp.arange(len(everything), dtype=x.dtype).reshape(-1, *(1,) * x.ndim)
    return (everything + ranks)[lax.axis_index(axis)]
