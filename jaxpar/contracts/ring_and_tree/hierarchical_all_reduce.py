"""An all-reduce on two levels of links, which sends as little as it can over the slow ones."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.ring_and_tree.common import chunks, ring_case

_KINDS = ("all_reduce", "permute", "all_to_all")


def _sum_over_both(case: Case, x: Array) -> list[Expected]:
    blocks = x.reshape(*case.sizes.values(), -1, *x.shape[1:])
    both = tuple(list(case.sizes).index(case.kwargs[level]) for level in ("outer", "inner"))
    return [Expected(jnp.broadcast_to(blocks.sum(axis=both, keepdims=True), blocks.shape))]


def _chunk_bytes(sizes: Sizes, *levels: str) -> int:
    """Bytes of one chunk of x, where each level in turn cuts what it has for its devices."""
    x = sizes.case.args["x"]
    elements = math.prod(x.shape) // math.prod(sizes.case.sizes.values())
    for level in levels:
        elements = -(-elements // sizes.n(level))
    return elements * jnp.dtype(x.dtype).itemsize


def _over_inner(sizes: Sizes) -> int:
    """Wire bytes of one all-reduce of x, padded."""
    chunk_bytes = sizes.n("outer") * _chunk_bytes(sizes, "inner", "outer")
    return 2 * (sizes.n("inner") - 1) * chunk_bytes


def _over_outer(sizes: Sizes) -> int:
    """Wire bytes of one all-reduce of 1/n_inner of x, padded."""
    return 2 * (sizes.n("outer") - 1) * _chunk_bytes(sizes, "inner", "outer")


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    inner, outer = axis_names(rng, 2, besides=("node", "device", "dp", "cp", "tp"))
    axes = {"inner": inner, "outer": outer}
    nodes, many, alone = pick(rng, (3, 5)), pick(rng, (6, 7)), pick(rng, (5, 6, 7))
    even = (2 * nodes * 2 * nodes, 1, 3, 1)  # both levels divide it
    row = pick(rng, (9, 13, 15))
    return (
        ring_case(
            f"{inner}=2,{outer}={nodes}",
            ArraySpec(even, f"b_{inner}_{outer} t h d", "bfloat16"),
            **axes,
        ),
        ring_case(
            f"{outer}={many},{inner}=1",
            ArraySpec((many * 3, row), f"b_{outer}_{inner} d", "int32", "large"),
            **axes,
        ),
        ring_case(
            f"{outer}=1,{inner}={alone}",
            ArraySpec((alone * 17, 1, 3), f"b_{outer}_{inner} t d", "int32", "large"),
            **axes,
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return the sum of x over `inner` and `outer`, sending only 1/n_inner of x over `outer`",
    reference=collectives.hierarchical_all_reduce,
    oracle=_sum_over_both,
    cases=(
        ring_case(
            "node=2,device=4",
            ArraySpec((8 * 7, 19), "b_node_device d"),
            inner="device",
            outer="node",
        ),
        ring_case(
            "node=4,device=3", ArraySpec((12 * 71,), "b_node_device"), inner="device", outer="node"
        ),
        ring_case(
            "dp=2,cp=2,tp=3", ArraySpec((12 * 5, 11, 2), "b_dp_cp_tp t d"), inner="tp", outer="dp"
        ),
    ),
    draw=_drawn,
    gradient=("x",),
    communication=Communication(
        "over outer one all-reduce of ceil(1/n_inner of x), over inner one all-reduce of x",
        forward=((Limit(_KINDS, "outer", _over_outer), Limit(_KINDS, "inner", _over_inner)),),
        backward="forward",
    ),
    hints=(
        "An all-reduce is a reduce-scatter and an all-gather. Between the two, a device holds 1/n "
        "of the sum over its node: only that has to be summed with the other nodes.",
        "Reduce-scatter over inner, all-reduce over outer, all-gather over inner. Flatten x and "
        "pad it first, so that it divides into n_inner chunks.",
        "jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1) makes the chunks; after "
        "lax.psum_scatter, lax.psum and lax.all_gather, cut to x.size and reshape.",
    ),
    minimal="A node must send its sum, which is as large as x, to the other nodes; its devices "
    "divide that work, and each sends 1/n_inner of it. Inside a node it takes the bytes of one "
    "all-reduce.",
    harder="Write it for three levels: device, node, and rack.",
)


def _join(chunk: Array, axis: str, x: Array) -> Array:
    """The chunks of all devices as one array of the shape of x."""
    whole = lax.all_gather(chunk, axis, to="invarying")
    return whole.ravel()[: x.size].reshape(x.shape)


def _node_sum(x: Array, axis: str) -> Array:
    """This device's chunk of the sum over its node."""
    return lax.psum_scatter(chunks(x, lax.axis_size(axis)), axis)


@wrong("values")
def only_within_nodes(x: Array, *, inner: str, outer: str) -> Array:
    """The sum is over `inner` only; the chunks must be all-reduced over `outer`, too."""
    return _join(_node_sum(x, inner), inner, x)


def _own_chunk(x: Array, axis: str) -> Array:
    return chunks(x, lax.axis_size(axis))[lax.axis_index(axis)]


@wrong("values")
def only_between_nodes(x: Array, *, inner: str, outer: str) -> Array:
    """The sum is over `outer` only; first sum over `inner` with a reduce-scatter."""
    return _join(lax.psum(_own_chunk(x, inner), outer), inner, x)


@wrong("values")
def sums_node_twice(x: Array, *, inner: str, outer: str) -> Array:
    """An all-reduce and a reduce-scatter both sum over `inner`, so the result is n_inner times too
    large."""
    chunk = _node_sum(lax.psum(x, inner), inner)
    return _join(lax.psum(chunk, outer), inner, x)


@wrong("values")
def drops_remainder(x: Array, *, inner: str, outer: str) -> Array:
    """The elements of x that are left over when it is cut into n_inner chunks are not summed; pad
    x."""
    n = lax.axis_size(inner)
    flat = x.ravel()
    even = flat[: x.size // n * n]
    total = _join(lax.psum(_node_sum(even, inner), outer), inner, even)
    return jnp.concatenate([total, flat[even.size :]]).reshape(x.shape)


@wrong("values")
def keeps_padding(x: Array, *, inner: str, outer: str) -> Array:
    """The result is flat and keeps the padding; cut it to x.size and give it the shape of x."""
    chunk = lax.psum(_node_sum(x, inner), outer)
    return lax.all_gather(chunk, inner, tiled=True)


@wrong("values")
def pads_with_float32(x: Array, *, inner: str, outer: str) -> Array:
    """x is padded with jnp.zeros, which are float32 whatever x is, and the sum is float32, too; pad
    with zeros of x.dtype, or with jnp.pad."""
    n = lax.axis_size(inner)
    padded = jnp.concatenate([x.ravel(), jnp.zeros(-x.size % n)]).reshape(n, -1)
    return _join(lax.psum(lax.psum_scatter(padded, inner), outer), inner, x)


@wrong("values")
def levels_in_float32(x: Array, *, inner: str, outer: str) -> Array:
    """x is summed in float32, which rounds large integers, and sends a bfloat16 in twice its bytes;
    keep the dtype of x."""
    chunk = lax.psum(_node_sum(x.astype(jnp.float32), inner), outer)
    return _join(chunk, inner, x).astype(x.dtype)


@wrong("gradient")
def levels_cut_gradient(x: Array, *, inner: str, outer: str) -> Array:
    """The gradient stops before the reduce-scatter over `inner`; it must reach the x of every
    device."""
    chunk = _node_sum(x, inner)
    return _join(lax.psum(lax.stop_gradient(chunk), outer), inner, x)


@wrong("communication")
def flat_sum(x: Array, *, inner: str, outer: str) -> Array:
    """One all-reduce over both axes sends all of x between nodes; reduce-scatter over `inner`
    first."""
    return lax.psum(x, (outer, inner))


@wrong("communication")
def whole_x_between_nodes(x: Array, *, inner: str, outer: str) -> Array:
    """You all-reduce all of x over `outer`; let each of the n_inner devices all-reduce 1/n_inner of
    it."""
    return lax.psum(lax.psum(x, inner), outer)


@wrong("communication")
def swaps_levels(x: Array, *, inner: str, outer: str) -> Array:
    """`inner` and `outer` are swapped: the slow links carry whole arrays, and the fast ones
    parts."""
    chunk = lax.psum(_node_sum(x, outer), inner)
    return _join(chunk, outer, x)


@wrong("communication")
def all_reduces_then_cuts(x: Array, *, inner: str, outer: str) -> Array:
    """An all-reduce over `inner` sends twice what a reduce-scatter does, and the device keeps one
    chunk of it."""
    chunk = _own_chunk(lax.psum(x, inner), inner)
    return _join(lax.psum(chunk, outer), inner, x)


@wrong("communication")
def pads_what_divides(x: Array, *, inner: str, outer: str) -> Array:
    """x is padded even where n_inner divides its size: n - x.size % n is n there; pad by
    -x.size % n, which is 0."""
    n = lax.axis_size(inner)
    padded = jnp.pad(x.ravel(), (0, n - x.size % n))
    chunk = lax.psum(lax.psum_scatter(padded, inner, tiled=True), outer)
    return _join(chunk, inner, x)


@wrong("communication")
def gathers_node(x: Array, *, inner: str, outer: str) -> Array:
    """Every x of the node is gathered to be added up; a reduce-scatter sends 1/n_inner of that."""
    node = lax.all_gather(x, inner).sum(axis=0)
    return _join(lax.psum(_own_chunk(node, inner), outer), inner, x)


@wrong("communication")
def gathers_chunks_between_nodes(x: Array, *, inner: str, outer: str) -> Array:
    """The chunks of all nodes are gathered to be added up; an all-reduce sends less from four nodes
    on."""
    chunk = lax.all_gather(_node_sum(x, inner), outer).sum(axis=0)
    return _join(chunk, inner, x)
