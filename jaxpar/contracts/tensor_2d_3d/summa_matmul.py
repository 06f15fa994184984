"""The product of two matrices in blocks, on a square of devices."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    among_zeros,
    enter,
    gathered,
    gathered_by_sum,
    gathered_for_all_reduce,
    gathered_for_own_gradient,
    hop,
    own_shard,
)
from jaxpar.contracts.tensor_2d_3d.common import (
    BACKWARD,
    FORWARD,
    ROUNDS_HOLD_LESS,
    interleaved,
    matrix_product,
    split_blocks,
    square,
)
from jaxpar.mesh import varying_axes
from jaxpar.parallel import tensor_nd


def _in_2d(case: Case, x: Array, w: Array) -> list[Expected]:
    return split_blocks(case, matrix_product(case, x, w), ("rows",), "cols")


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    rows, cols, other = axis_names(rng, 3, besides=("dp", "tpx", "tpy", "tpz"))
    m, n = pick(rng, range(28, 34)), pick(rng, range(57, 63))
    k = pick(rng, (45, 47, 49))  # q does not divide the columns of a block of x
    mesh = mesh_of(rng, **{rows: 2, cols: 2, other: 3})
    alone = mesh_of(rng, **{rows: 1, cols: 1, other: 2})
    return (
        square(mesh, 6 * m, 2 * k, 2 * n, dtype="bfloat16", rows=rows, cols=cols),
        square(alone, 2 * (m + 10), k, n, rows=rows, cols=cols),
    )


CONTRACT = Contract(
    kind="program",
    task="return block (i, j) of x @ w on device (i, j) of a square of devices",
    reference=tensor_nd.summa_matmul,
    oracle=_in_2d,
    cases=(
        square("dp=2,tpx=2,tpy=2", 2 * 48, 80, 112, rows="tpx", cols="tpy"),
        square("tpy=3,tpz=3", 78, 126, 102, rows="tpz", cols="tpy"),  # not in the mesh's order
    ),
    draw=_drawn,
    errors=(
        BadCall(
            Case(
                "tpx=2,tpy=3",
                {"x": ArraySpec((8, 12), "m_tpx k_tpy"), "w": ArraySpec((8, 9), "k_tpx n_tpy")},
                {"rows": "tpx", "cols": "tpy"},
            ),
            "`rows` = 2, `cols` = 3",
        ),
    ),
    gradient=("x", "w"),
    communication=Communication(
        "forward the q-1 other blocks of x over `cols`, and of w over `rows`, by gathers; or twice "
        "that in rounds of a block at a time; backward at most twice what forward may send",
        forward=FORWARD,
        backward=BACKWARD,
    ),
    memory=ROUNDS_HOLD_LESS,
    flops=work_is_split(),
    sharding=True,
    hints=(
        "y_ij is the sum over l of x_il @ w_lj. Device (i, j) has x_ij and w_ij: what else does it "
        "need, and along which axis of the mesh are they?",
        "The blocks x_il are on the devices of its row, which differ by their place on `cols`; the "
        "w_lj are in its column, along `rows`.",
        "Gather both with tiled=True: x along `cols` side by side (axis=1), w along `rows` one "
        "above the other, and multiply once. Or in round l, in lax.scan, lax.psum of x where "
        "lax.axis_index(cols) == l, else of zeros; of w alike.",
    ),
    minimal="A block of y needs a row of blocks of x and a column of blocks of w; a device has one "
    "block of the q in each. Rounds hold less, and gathers send less.",
    harder="Send as little as gathers, and hold as little as rounds: what if each round brings a "
    "part of every device's block?",
)


def side(rows: str, cols: str) -> int:
    """The size of both axes; ValueError if these differ."""
    q = lax.axis_size(rows)
    if q != lax.axis_size(cols):
        raise ValueError("the devices must be a square")
    return q


def by_gathers(
    x: Array, w: Array, *, rows: str, cols: str, gather: Callable[..., Array] = gathered
) -> Array:
    """The right product, but for the way in which blocks are gathered."""
    side(rows, cols)
    return gather(x, cols, 1) @ gather(w, rows, 0)


def brought(x: Array, root: Array | int, axis: str) -> Array:
    """The root's x, by a sum of zeros with it."""
    return lax.psum(jnp.where(lax.axis_index(axis) == root, x, 0), axis)


def zeros_of_product(x: Array, w: Array) -> Array:
    """Zeros in the shape of x @ w, which vary over the axes that the product varies over."""
    y = jnp.zeros((len(x), w.shape[1]), x.dtype)
    return lax.pcast(y, tuple(varying_axes(x) | varying_axes(w)), to="varying")


def _in_unrolled_rounds(x: Array, w: Array, rows: str, cols: str, rounds: int) -> Array:
    y = jnp.zeros((len(x), w.shape[1]), x.dtype)
    for k in range(rounds):
        y += brought(x, k, cols) @ brought(w, k, rows)
    return y


def rounds_of_cannon(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The sum of q products, between which blocks of x move to the left, and blocks of w up."""
    q = side(rows, cols)
    y = x @ w
    for _ in range(q - 1):
        x, w = hop(x, cols, -1), hop(w, rows, -1)
        y += x @ w
    return y


def _product_of_whole_matrices(x: Array, w: Array, rows: str, cols: str) -> Array:
    side(rows, cols)
    return gathered(gathered(x, cols, 1), rows) @ gathered(gathered(w, cols, 1), rows)


@wrong("values")
def x_along_rows(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The blocks of x come from the devices along `rows`; those that y_ij needs are in the same row
    of devices, along `cols`."""
    side(rows, cols)
    return gathered(x, rows, 1) @ gathered(w, rows)


@wrong("values")
def w_along_cols(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The blocks of w come from the devices along `cols`; those that y_ij needs are in the same
    column of devices, along `rows`."""
    side(rows, cols)
    return gathered(x, cols, 1) @ gathered(w, cols)


@wrong("values")
def blocks_along_wrong_axes(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The blocks of x come from the devices along `rows`, and those of w from the devices along
    `cols`; send x along `cols`, and w along `rows`."""
    side(rows, cols)
    return gathered(x, rows, 1) @ gathered(w, cols)


@wrong("values")
def inner_blocks_interleaved(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The rows of w's blocks are interleaved, and those of x's columns are not; gather both with
    tiled=True."""
    side(rows, cols)
    return gathered(x, cols, 1) @ interleaved(w, rows, 0)


@wrong("values")
def round_missing(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """One round is missing: there are q, one for each block of the inner dim."""
    return _in_unrolled_rounds(x, w, rows, cols, side(rows, cols) - 1)


@wrong("values")
def products_summed(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The products of different devices are summed over `rows`; y_ij is a sum of products that
    device (i, j) computes itself, of blocks that come to it."""
    side(rows, cols)
    return lax.psum(x @ w, rows)


@wrong("values")
def own_blocks_only(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Each device multiplies its own blocks only, whose inner indices do not match; bring the other
    blocks of its row and column."""
    side(rows, cols)
    return x @ w


@wrong("values")
def cannon_not_skewed(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Blocks move on, but do not match at the start: first move row i of x by i places, and column
    j of w by j."""
    return rounds_of_cannon(x, w, rows=rows, cols=cols)


@wrong("gradient")
def gradient_of_own_block(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The gradient of a block is that of this device's own use of it; sum over all that used it, as
    the derivative of lax.all_gather does."""
    return by_gathers(x, w, rows=rows, cols=cols, gather=gathered_for_own_gradient)


@wrong("sharding")
def product_whole(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Every device returns the whole product; it must return its own block."""
    return _product_of_whole_matrices(x, w, rows, cols)


@wrong("communication")
def block_gradients_all_reduced(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The gradient of what was gathered is summed whole on all devices: twice the bytes of a
    reduce-scatter, which is the derivative of lax.all_gather without `to`."""
    return by_gathers(x, w, rows=rows, cols=cols, gather=gathered_for_all_reduce)


@wrong("communication")
def blocks_gathered_by_sum(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Blocks are padded with zeros and summed all at once: twice the bytes of lax.all_gather, and
    just as much memory."""
    return by_gathers(x, w, rows=rows, cols=cols, gather=gathered_by_sum)


@wrong("communication")
def blocks_gathered_over_both(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Whole matrices are gathered on every device; a block of y needs one row of blocks of x, and
    one column of blocks of w."""
    y = _product_of_whole_matrices(x, w, rows, cols)
    return own_shard(own_shard(y, rows), cols, 1)


@wrong("communication")
def blocks_gathered_in_rounds(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Every round gathers all blocks and uses one: q times the bytes; gather once, or bring one
    block in each round."""
    q = side(rows, cols)

    def one_round(y: Array, k: Array) -> tuple[Array, None]:
        return y + lax.all_gather(x, cols)[k] @ lax.all_gather(w, rows)[k], None

    return lax.scan(one_round, zeros_of_product(x, w), jnp.arange(q))[0]


@wrong("memory")
def rounds_unrolled(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """A Python loop puts all rounds into one program, and the compiler brings all blocks before it
    multiplies; use lax.scan."""
    return _in_unrolled_rounds(x, w, rows, cols, side(rows, cols))


@wrong("memory")
def rounds_kept(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The blocks of all rounds are kept and multiplied at the end; multiply in each round, and
    carry the sum."""
    q = side(rows, cols)

    def one_round(_: None, k: Array) -> tuple[None, tuple[Array, Array]]:
        return None, (enter(brought(x, k, cols), cols), enter(brought(w, k, rows), rows))

    blocks = lax.scan(one_round, None, jnp.arange(q))[1]
    return jnp.einsum("qmk,qkn->mn", *blocks)


@wrong("flops")
def rows_of_all_devices(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Every device multiplies as many rows as all devices along `rows` have, with zeros for those
    of the others; multiply your own rows only."""
    side(rows, cols)
    x, w = gathered(x, cols, 1), gathered(w, rows)
    return own_shard(among_zeros(x, rows) @ w, rows)


@wrong("errors")
def square_not_checked(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """A mesh with different sizes of `rows` and `cols` is not refused; compare lax.axis_size of
    both, and raise ValueError."""
    return gathered(x, cols, 1) @ gathered(w, rows)
