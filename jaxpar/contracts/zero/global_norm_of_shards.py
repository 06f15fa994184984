"""The norm of a pytree whose leaves are sharded over the devices."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.zero.common import matrices
from jaxpar.parallel import zero

_SCALAR_BYTES = 4


def _norm(case: Case, shards: Any) -> list[Expected]:
    """The last dim of each leaf is split over the other axes, for whose devices it is a norm."""
    others = [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]
    squares = 0
    for leaf in jax.tree.leaves(shards):
        parts = leaf.reshape(-1, *others, leaf.shape[-1] // math.prod(others))
        squares += jnp.sum(parts**2, axis=(0, -1))
    return [Expected(on_every_device(case, jnp.sqrt(squares)))]


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """More leaves than in the stub, of low precision; one array on one device; a norm of 0."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, m = pick(rng, ((5, 2), (4, 3), (2, 5)))
    rows, columns = 11 * n, 2 * m * pick(rng, (4, 5))
    # Few of these elements are large, so that it shows if bfloat16 rounds their squares.
    few = ArraySpec((1, n, 4, columns), f"l d_{axis} a f_{other}", "bfloat16", "spread")
    # Squares of these are more than float16 holds.
    large = {
        f"w{i}": (ArraySpec((rows, columns), f"d_{axis} f_{other}", "float16", "wide"),)
        for i in range(pick(rng, range(8, 12)))
    }
    zeros = Made(
        Function("jax.numpy:zeros_like"),
        (ArraySpec((rows + n, columns), f"d_{axis} f_{other}"),),
    )
    alone = ArraySpec((pick(rng, range(6, 10)), 2 * 7), f"d_{axis} f_{other}")
    return (
        Case(mesh_of(rng, **{axis: n, other: m}), {"shards": ([few] * 5, large)}, {"axis": axis}),
        Case(f"{axis}=1,{other}=2", {"shards": alone}, {"axis": axis}),
        Case(f"{other}={m},{axis}={n}", {"shards": {"zeros": [zeros]}}, {"axis": axis}),
    )


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
    draw=_drawn,
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
    wide = (leaf.astype(jnp.float32) for leaf in jax.tree.leaves(shards))
    return sum((jnp.sum(leaf**2) for leaf in wide), jnp.float32(0))


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


@wrong("values")
def squares_of_low_precision(shards: Any, *, axis: str) -> Array:
    """The squares are computed in the dtype of the leaves: in float16 those of more than 255 are
    infinite, and bfloat16 keeps three digits; cast each leaf to float32 first."""
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(shards))
    return jnp.sqrt(lax.psum(squares, axis))


@wrong("values")
def norm_of_low_precision(shards: Any, *, axis: str) -> Array:
    """The norm is returned in the dtype of the leaves; it is a float32, whatever they are."""
    norm = jnp.sqrt(lax.psum(_squares(shards), axis))
    return norm.astype(jax.tree.leaves(shards)[0].dtype)


@wrong("values")
def divides_by_largest(shards: Any, *, axis: str) -> Array:
    """The elements are divided by the largest of them, which may be 0, and 0/0 is NaN; divide by 1
    there, since the norm is 0."""
    largest = jnp.stack([jnp.abs(leaf).max() for leaf in jax.tree.leaves(shards)]).max()
    largest = lax.pmax(largest.astype(jnp.float32), axis)
    scaled = jax.tree.map(lambda leaf: leaf / largest, shards)
    return largest * jnp.sqrt(lax.psum(_squares(scaled), axis))


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
