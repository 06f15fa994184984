"""The norm of a pytree whose leaves are sharded over the devices."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import on_every_device
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.zero.common import matrices
from jaxpar.parallel import zero

_SCALAR_BYTES = 4


def _norm(case: Case, shards: Any) -> list[Expected]:
    """The last dim of each leaf is split over the other axes, for whose devices it is a norm."""
    others = [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]
    squares = jnp.float32(0)
    for leaf in jax.tree.leaves(shards):
        parts = leaf.reshape(-1, *others, leaf.shape[-1] // math.prod(others))
        squares += jnp.sum(parts**2, axis=(0, -1))
    return [Expected(on_every_device(case, jnp.sqrt(squares)))]


CONTRACT = Contract(
    kind="program",
    task="return the norm of all leaves together, where each leaf is split over `axis`",
    reference=zero.global_norm_of_shards,
    oracle=_norm,
    cases=(
        Case(
            "dp=8",
            {
                "shards": {
                    "embedding": ArraySpec((8 * 2, 5), "v_dp d"),
                    "layers": [matrices(2 + i, 3, 8, "d_dp f") for i in range(5)],
                }
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            {"shards": [ArraySpec((i + 1, 3 * 4, 2 * 3), "l d_fsdp f_tp") for i in range(10)]},
            {"axis": "fsdp"},
        ),
    ),
    draw=lambda rng: (
        Case(
            "tp=2,dp=4",
            {
                "shards": {
                    f"layer_{i}": ArraySpec((i + 2, 4 * 3, 2 * 5), "l d_dp f_tp") for i in range(6)
                }
            },
            {"axis": "dp"},
        ),
    ),
    communication=Communication(
        "one all-reduce of one number",
        forward=(
            (
                Limit(
                    ("all_reduce", "all_to_all", "permute"),
                    "axis",
                    lambda s: 2 * _SCALAR_BYTES * (s.n() - 1),
                ),
            ),
        ),
    ),
    hints=(
        "The norm is the square root of a sum of squares; each device has some of the squares.",
        "Add up the squares of all leaves on the device first: then there is one number to send.",
        "lax.psum of that number over the axis, and jnp.sqrt of the result.",
    ),
    minimal="Each device must send one number, and receive one.",
    harder="Let some leaves be replicated: each of them must count only once.",
)


def _squares(shards: Any) -> Array:
    """The sum of squares of all leaves on this device."""
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(shards)), jnp.float32(0))


@wrong("values")
def own_norm(shards: Any, *, axis: str) -> Array:
    """This is the norm of this device's shards alone; add up the squares of all devices before you
    take the root."""
    return jnp.sqrt(_squares(shards))


@wrong("values")
def adds_norms(shards: Any, *, axis: str) -> Array:
    """The norms of the devices' parts are added; add up squares, and take the root of their sum."""
    return lax.psum(jnp.sqrt(_squares(shards)), axis)


@wrong("values")
def averages_norms(shards: Any, *, axis: str) -> Array:
    """The norms of the devices' parts are averaged; add up squares, and take the root of their
    sum."""
    return lax.pmean(jnp.sqrt(_squares(shards)), axis)


@wrong("values")
def largest_norm(shards: Any, *, axis: str) -> Array:
    """This is the largest norm of any device's part; add up the squares of all."""
    return lax.pmax(jnp.sqrt(_squares(shards)), axis)


@wrong("values")
def averages_squares(shards: Any, *, axis: str) -> Array:
    """The sums of squares are averaged over the devices; add them up: the parts together are one
    vector."""
    return jnp.sqrt(lax.pmean(_squares(shards), axis))


@wrong("values")
def root_before_sum(shards: Any, *, axis: str) -> Array:
    """The norms of the leaves are added; add up the squares of all leaves, and take one root."""
    squares = lax.psum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(shards)]), axis)
    return jnp.sum(jnp.sqrt(squares))


@wrong("values")
def norm_without_root(shards: Any, *, axis: str) -> Array:
    """This is the square of the norm; take its root."""
    return lax.psum(_squares(shards), axis)


@wrong("values")
def squares_of_sums(shards: Any, *, axis: str) -> Array:
    """The devices' parts are added up, and then squared; they are different elements, so square
    them first."""
    return jnp.sqrt(_squares(lax.psum(shards, axis)))


@wrong("values")
def norm_over_whole_mesh(shards: Any, *, axis: str) -> Array:
    """The squares are added up over every device of the mesh; add them up over `axis` alone."""
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    return jnp.sqrt(lax.psum(_squares(shards), axes))


@wrong("communication")
def gathers_shards(shards: Any, *, axis: str) -> Array:
    """The parts of all devices are gathered; one number from each is enough."""
    return jnp.sqrt(_squares(lax.all_gather(shards, axis)))


@wrong("communication")
def adds_squares_one_by_one(shards: Any, *, axis: str) -> Array:
    """The squares are added up over the devices one by one; add them up on each device first, and
    send one number."""
    squares = lax.psum(jax.tree.map(lambda leaf: leaf**2, shards), axis)
    return jnp.sqrt(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(squares)))


@wrong("communication")
def norm_leaf_by_leaf(shards: Any, *, axis: str) -> Array:
    """Every leaf has an all-reduce of its own, and waits for it; add up the squares of all leaves
    first."""
    leaves = jax.tree.leaves(shards)
    return jnp.sqrt(sum(lax.psum(jnp.sum(leaf**2), axis) for leaf in leaves))
