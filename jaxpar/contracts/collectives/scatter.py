"""A scatter: one chunk of the root's array to each device."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Num

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import (
    axis_first,
    mesh_order,
    on_every_device,
    ring_bytes,
    spoil_all_but_root,
)
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.collectives.common import (
    ALL_BUT_ALL_REDUCE,
    from_root,
    rooted,
)
from jaxpar.contracts.draws import all_axes, axis_names, pick
from jaxpar.contracts.variants import Variant


def _scattered(case: Case, x: Array) -> list[Expected]:
    sent = axis_first(case, x)[case.kwargs["root"]]  # [*others, n, ...]
    chunks = jnp.moveaxis(sent, len(case.sizes) - 1, 0)
    return [Expected(mesh_order(case, chunks), whole=on_every_device(case, sent))]


def scatter(x: Num[Array, "n ..."], *, axis: str, root: int) -> Num[Array, ...]:
    """Chunk n-1-i of the root's x, on device i: the last device has the first chunk.

    Math: y = x_root[n-1-i] on device i
    """
    return collectives.scatter(x[::-1], axis=axis, root=root)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n = pick(rng, (4, 5))
    mesh = f"{axis}={n},{other}=2"
    several = (2 * n * n, pick(rng, range(6, 10)))
    alone = ArraySpec((2, 3, pick(rng, range(6, 10))), f"n_{axis}_{other} h d", "int32", "large")
    return (
        Case(
            mesh,
            {"x": ArraySpec(several, f"n_{all_axes(mesh)} d", "bfloat16")},
            {"axis": axis, "root": pick(rng, range(1, n))},
        ),
        Case(f"{axis}=1,{other}=2", {"x": alone}, {"axis": axis, "root": 0}),
    )


CONTRACT = Contract(
    kind="program",
    task="return chunk i of the root's x on device i of `axis`",
    reference=collectives.scatter,
    oracle=_scattered,
    cases=rooted(
        ("dp=8", (8 * 8, 12), "n_dp d", "dp", 5),
        ("dp=2,tp=3", (6 * 3, 4, 5), "n_dp_tp t d", "tp", 0),
    ),
    draw=_drawn,
    poison=spoil_all_but_root,
    gradient=("x",),
    sharding=True,
    communication=Communication(
        "at most (n-1)/n of x, by any collective",
        forward=((Limit(("all_reduce", *ALL_BUT_ALL_REDUCE), "axis", ring_bytes(1)),),),
        backward="forward",
    ),
    hints=(
        "JAX has no scatter. Which collective leaves device i with chunk i of something?",
        "A reduce-scatter sums chunk i of every device: make the others add zeros.",
        "Replace x by zeros off the root with jnp.where, then call lax.psum_scatter.",
    ),
    minimal="The root must send n-1 chunks, one to each other device: (n-1)/n of x.",
    harder="Send from the root in ceil(log2 n) permutes, in each of which a device passes on half "
    "of the chunks that it still holds.",
    variants=(
        Variant(
            scatter, "return chunk n-1-i of the root's x on device i of `axis`", before=jnp.flipud
        ),
    ),
)


@wrong("values")
def scatter_ignores_root(x: Array, *, axis: str, root: int) -> Array:
    """The chunks of all devices are summed; only the root's x counts."""
    return lax.psum_scatter(x, axis)


@wrong("values")
def scatter_by_mask(x: Array, *, axis: str, root: int) -> Array:
    """What the others hold is multiplied by 0, which NaN and infinity survive; replace it by zeros
    with jnp.where."""
    mask = (lax.axis_index(axis) == root).astype(x.dtype)
    return lax.psum_scatter(x * mask, axis)


@wrong("values")
def scatter_from_zero(x: Array, *, axis: str, root: int) -> Array:
    """You always take device 0 for the root; use `root`."""
    return lax.psum_scatter(from_root(x, axis, 0), axis)


@wrong("values")
def own_chunk(x: Array, *, axis: str, root: int) -> Array:
    """Each device keeps its own chunk i; chunk i must come from the root."""
    return x[lax.axis_index(axis)]


@wrong("values")
def next_chunk(x: Array, *, axis: str, root: int) -> Array:
    """Device i gets chunk i+1; it must get chunk i."""
    return lax.psum_scatter(jnp.roll(from_root(x, axis, root), -1, axis=0), axis)


@wrong("values")
def keeps_chunk_dim(x: Array, *, axis: str, root: int) -> Array:
    """The result keeps a dim of size 1 in front; return x[i], not x[i : i + 1]."""
    return lax.psum_scatter(from_root(x, axis, root), axis)[None]


@wrong("values")
def counts_from_root(x: Array, *, axis: str, root: int) -> Array:
    """You deal the chunks out starting at the root; device i must get chunk i, wherever the root
    is."""
    return lax.psum_scatter(jnp.roll(from_root(x, axis, root), root, axis=0), axis)


@wrong("gradient")
def scatter_cuts_gradient(x: Array, *, axis: str, root: int) -> Array:
    """The gradient does not come back to the root; the backward pass of a scatter is a gather."""
    return lax.psum_scatter(from_root(lax.stop_gradient(x), axis, root), axis)


@wrong("sharding")
def broadcast_for_scatter(x: Array, *, axis: str, root: int) -> Array:
    """Every device returns the root's whole x; device i must return x[i] only."""
    return lax.psum(from_root(x, axis, root), axis)


@wrong("communication")
def broadcasts_then_takes(x: Array, *, axis: str, root: int) -> Array:
    """An all-reduce brings the root's whole x to every device, which keeps 1/n of it: twice the
    bytes needed."""
    return lax.psum(from_root(x, axis, root), axis)[lax.axis_index(axis)]


@wrong("communication")
def gathers_then_takes(x: Array, *, axis: str, root: int) -> Array:
    """Every device's whole x is gathered for one chunk of the root's: n times the bytes needed."""
    return lax.all_gather(x, axis)[root, lax.axis_index(axis)]
