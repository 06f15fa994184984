"""Each device adds its index on a mesh axis to its shard of x."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order
from jaxpar.contracts.case import ArraySpec, Case


def _plus_rank(case: Case, x: jax.Array) -> list[Expected]:
    blocks = axis_first(case, x)
    ranks = jnp.arange(len(blocks), dtype=x.dtype).reshape(-1, *(1,) * (blocks.ndim - 1))
    return [Expected(mesh_order(case, blocks + ranks))]


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
    draw=lambda rng: (
        Case("pp=2,cp=4", {"x": ArraySpec((8 * 3, 5), "b_pp_cp t")}, {"axis": "cp"}),
    ),
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
