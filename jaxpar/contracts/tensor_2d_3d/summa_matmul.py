"""Exercise summa_matmul: blocks of a product, on a square of devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.tensor_2d_3d.common import (
    BACKWARD,
    FORWARD,
    all_reduced_backward,
    brought,
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


def _in_2d(case: Case, x: jax.Array, w: jax.Array) -> list[Expected]:
    return split_blocks(case, matrix_product(case, x, w), ("rows",), "cols")


CONTRACT = Contract(
    kind="program",
    task="return block (i, j) of x @ w on device (i, j) of a square of devices",
    reference=tensor_nd.summa_matmul,
    oracle=_in_2d,
    cases=(
        square("dp=2,tpx=2,tpy=2", 2 * 48, 80, 112, rows="tpx", cols="tpy"),
        square("tpy=3,tpz=3", 78, 126, 102, rows="tpz", cols="tpy"),  # not in the mesh's order
    ),
    hidden=(square("tpy=2,tpx=2", 40, 72, 88, rows="tpy", cols="tpx"),),
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
    memory=MemoryLimit(
        "if you send more than gathers do, two blocks of x and of w at a time: at most twice the "
        "library's bytes of intermediate results",
        multiple=2,
        traded=(6, 1),
    ),
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
    "of q of each. Rounds hold less, and gathers send less.",
    harder="Send as little as gathers, and hold as little as rounds: what if each round brings a "
    "part of every device's block?",
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


@wrong("gradient")
def gradient_of_own_block(*args: Any, **how: Any) -> Any:
    """The gradient of a block is that of this device's own use of it; sum over all that used it, as
    the derivative of lax.all_gather does."""
    return (by_gathers(own_gradient))(*args, **how)


@wrong("sharding")
def product_whole(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """Every device returns the whole product; it must return its own block."""
    side(rows, cols)
    return whole_matrices(x, w, rows, cols)


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


@wrong("memory")
def rounds_unrolled(*args: Any, **how: Any) -> Any:
    """A Python loop puts all rounds into one program, and the compiler brings all blocks before it
    multiplies; use lax.scan."""
    return (unrolled(missing=0))(*args, **how)


@wrong("memory")
def rounds_kept(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """The blocks of all rounds are kept and multiplied at the end; multiply in each round, and
    carry the sum."""
    q = side(rows, cols)

    def one_round(_: None, k: Array) -> tuple[None, tuple[Array, Array]]:
        here = lax.pcast(brought(x, k, cols), cols, to="varying")
        return None, (here, lax.pcast(brought(w, k, rows), rows, to="varying"))

    blocks = lax.scan(one_round, None, jnp.arange(q))[1]
    return jnp.einsum("qmk,qkn->mn", *blocks)


@wrong("errors")
def square_not_checked(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    """A mesh with different sizes of `rows` and `cols` is not refused; compare lax.axis_size of
    both, and raise ValueError."""
    return gathered(x, cols, 1) @ gathered(w, rows, 0)
