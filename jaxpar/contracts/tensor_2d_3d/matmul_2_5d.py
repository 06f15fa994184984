"""Exercise matmul_2_5d: several squares, and one matrix in all."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import share
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.tensor_2d_3d.common import (
    BACKWARD,
    FORWARD,
    Matmul,
    all_reduced_backward,
    by_gathers,
    gathered,
    gathered_by_sum,
    matrix_product,
    one_interleaved,
    own_gradient,
    own_part,
    side,
    split_blocks,
    square,
    unrolled,
    whole_matrices,
)
from jaxpar.mesh import varying_axes
from jaxpar.parallel import tensor_nd


def _in_2_5d(case: Case, x: jax.Array, w: jax.Array) -> list[Expected]:
    return split_blocks(case, matrix_product(case, x, w), ("depth", "rows"), "cols")


_OVER_DEPTH = Limit(("all_reduce",), "depth", share(2, "w", "depth"))


CONTRACT = Contract(
    kind="program",
    task="return this device's block of x @ w; the squares along `depth` share the rows of x",
    reference=tensor_nd.matmul_2_5d,
    oracle=_in_2_5d,
    cases=(
        square("dp=2,tpx=2,tpy=2,tpz=2", 2 * 24, 20, 16, rows="tpx", cols="tpy", depth="tpz"),
        square("tpx=3,tpy=2,tpz=2", 30, 28, 24, rows="tpy", cols="tpz", depth="tpx"),
        square("tpx=1,tpy=3,tpz=3", 15, 18, 12, rows="tpz", cols="tpy", depth="tpx"),
    ),
    hidden=(square("tpy=2,tpz=2,tpx=2", 28, 24, 10, rows="tpz", cols="tpx", depth="tpy"),),
    errors=(
        BadCall(
            Case(
                "tpx=2,tpy=3,tpz=2",
                {"x": ArraySpec((8, 12), "m_tpz_tpx k_tpy"), "w": ArraySpec((8, 9), "k_tpx n_tpy")},
                {"rows": "tpx", "cols": "tpy", "depth": "tpz"},
            ),
            "`rows` = 2, `cols` = 3",
        ),
    ),
    gradient=("x", "w"),
    communication=Communication(
        "in each square as for summa_matmul; over `depth` nothing forward, and backward one "
        "all-reduce of the gradient of a block of w",
        forward=FORWARD,
        backward=tuple((*option, _OVER_DEPTH) for option in BACKWARD),
    ),
    sharding=True,
    hints=(
        "A square has its own rows of x, and all of w. So forward it needs nothing of the others.",
        "w is the same in all squares, and each uses it with other rows: its gradient is a sum "
        "over `depth`. JAX adds that sum where w first meets something that varies over `depth`.",
        'lax.pcast(w, depth, to="varying") says where: before you gather w its gradient is a '
        "block, afterwards q of them. Then go on as in summa_matmul.",
    ),
    minimal="Every square has all of w, so none waits for another; that all w stay equal takes one "
    "all-reduce of their gradients, as in data parallelism.",
    harder="Let the devices along `depth` share each block of w, and gather it before its use: "
    "FSDP over depth.",
)


@wrong("values")
def x_along_rows(*args: Any, **how: Any) -> Any:
    """The blocks of x come from along `rows`; those that y_ij needs are in the same row of devices,
    along `cols`."""
    return (by_gathers(x_over="rows"))(*args, **how)


@wrong("values")
def w_along_cols(*args: Any, **how: Any) -> Any:
    """The blocks of w come from along `cols`; those that y_ij needs are in the same column of
    devices, along `rows`."""
    return (by_gathers(w_over="cols"))(*args, **how)


@wrong("values")
def blocks_along_wrong_axes(*args: Any, **how: Any) -> Any:
    """Blocks of x come from along `rows`, of w from along `cols`; x goes along `cols`, and w along
    `rows`."""
    return (by_gathers(x_over="rows", w_over="cols"))(*args, **how)


@wrong("values")
def inner_blocks_interleaved(*args: Any, **how: Any) -> Any:
    """The rows of w's blocks are interleaved, and those of x's columns are not; gather both with
    tiled=True."""
    return (by_gathers(lambda *given: one_interleaved(*given)))(*args, **how)


@wrong("values")
def round_missing(*args: Any, **how: Any) -> Any:
    """One round is missing: there are q, one for each block of the inner dim."""
    return (unrolled(missing=1))(*args, **how)


@wrong("values")
def products_summed(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The products of different devices are summed over `rows`; y_ij is a sum of products that
    device (i, j) computes itself, of blocks that come to it."""
    side(rows, cols)
    return lax.psum(x @ w, rows)


@wrong("values")
def own_blocks_only(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Each device multiplies its own blocks only, whose inner numbers differ; bring the other
    blocks of its row and column."""
    side(rows, cols)
    return x @ w


@wrong("values")
def cannon_not_skewed(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Blocks move on, but do not fit at the start: first move row i of x by i places, and column j
    of w by j."""
    q = side(rows, cols)
    to_previous = [((i + 1) % q, i) for i in range(q)]
    y = x @ w
    for _ in range(q - 1):
        x, w = lax.ppermute(x, cols, to_previous), lax.ppermute(w, rows, to_previous)
        y += x @ w
    return y


def _in_each_square(matmul: Matmul) -> Matmul:
    """The same mistake in 2.5D; the gradient of w is summed over depth."""

    def function(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
        return matmul(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)

    return function


_right = by_gathers()


@wrong("values")
def summed_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The results are summed over `depth`; each square has its own rows of x, and of y."""
    y = _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)
    return lax.psum(y, depth)


@wrong("gradient")
def gradient_of_own_block(*args: Any, **how: Any) -> Any:
    """The gradient of a block is that of this device's own use of it; sum over all that used it, as
    the derivative of lax.all_gather does."""
    return (by_gathers(own_gradient))(*args, **how)


@wrong("gradient")
def depth_not_summed(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The gradient of w is that of one square; sum it over `depth`."""
    w = lax.pcast(w, depth, to="varying")
    w = jnp.where(lax.axis_index(depth) == 0, w, lax.stop_gradient(w))
    return _right(x, w, rows=rows, cols=cols)


@wrong("gradient")
def depth_averaged(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The gradient of w is averaged over `depth`; sum it."""
    fixed = lax.stop_gradient(w)
    w = fixed + (w - fixed) / lax.axis_size(depth)
    return _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)


def _whole_result(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    side(rows, cols)
    return whole_matrices(x, w, rows, cols)


@wrong("sharding")
def product_whole(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """Every device returns the whole product; it must return its own block."""
    y = _in_each_square(_whole_result)(x, w, rows=rows, cols=cols, depth=depth)
    return gathered(y, depth, 0)


@wrong("communication")
def block_gradients_all_reduced(*args: Any, **how: Any) -> Any:
    """The gradient of what was gathered is summed whole on all devices: twice the bytes of a
    reduce-scatter, which is the derivative of lax.all_gather without `to`."""
    return (by_gathers(all_reduced_backward))(*args, **how)


@wrong("communication")
def blocks_gathered_by_sum(*args: Any, **how: Any) -> Any:
    """Blocks are put into zeros and summed all at once: twice the bytes of lax.all_gather, and as
    much memory."""
    return (by_gathers(gathered_by_sum))(*args, **how)


@wrong("communication")
def blocks_gathered_over_both(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Whole matrices are gathered on every device; a block of y needs one row of blocks of x, and
    one column of blocks of w."""
    side(rows, cols)
    return own_part(own_part(whole_matrices(x, w, rows, cols), rows, 0), cols, 1)


@wrong("communication")
def blocks_gathered_in_rounds(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Every round gathers all blocks and uses one: q times the bytes; gather once, or bring one
    block in each round."""
    q = side(rows, cols)

    def one_round(y: Array, k: Array) -> tuple[Array, None]:
        return y + lax.all_gather(x, cols)[k] @ lax.all_gather(w, rows)[k], None

    y = jnp.zeros((len(x), w.shape[1]), x.dtype)
    y = lax.pcast(y, tuple(varying_axes(x) | varying_axes(w)), to="varying")
    return lax.scan(one_round, y, jnp.arange(q))[0]


@wrong("communication")
def depth_cast_implicit(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The gradient of w is summed over `depth` as a whole column of blocks; lax.pcast(w, depth,
    to='varying') before w is gathered leaves one block to sum."""
    return _right(x, w, rows=rows, cols=cols)


@wrong("communication")
def w_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """w is sent over `depth`; it is equal in all squares already."""
    w = lax.psum(jnp.where(lax.axis_index(depth) == 0, w, 0), depth)
    return _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)


@wrong("communication")
def x_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """x is gathered over `depth`, and every square computes all rows; each needs its own rows
    only."""
    x = gathered(x, depth, 0)
    y = _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)
    return own_part(y, depth, 0)


def _unchecked(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    return gathered(x, cols, 1) @ gathered(w, rows, 0)


@wrong("errors")
def square_not_checked(*args: Any, **how: Any) -> Any:
    """A mesh with different sizes of `rows` and `cols` is not refused; compare lax.axis_size of
    both, and raise ValueError."""
    return (_in_each_square(_unchecked))(*args, **how)
