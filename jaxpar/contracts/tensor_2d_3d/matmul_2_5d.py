"""The product of two matrices in blocks, on several squares of devices: 2.5D."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import ring_bytes, work_is_split
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    among_zeros,
    enter,
    gathered,
    own_shard,
    with_gradient_divided,
    with_gradient_of_device_zero,
)
from jaxpar.contracts.tensor_2d_3d import summa_matmul
from jaxpar.contracts.tensor_2d_3d.common import (
    BACKWARD,
    FORWARD,
    ROUNDS_HOLD_LESS,
    matrix_product,
    split_blocks,
    square,
)
from jaxpar.contracts.tensor_2d_3d.summa_matmul import by_gathers
from jaxpar.parallel import tensor_nd


def _in_2_5d(case: Case, x: Array, w: Array) -> list[Expected]:
    return split_blocks(case, matrix_product(case, x, w), ("depth", "rows"), "cols")


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    rows, cols, depth = axis_names(rng, 3, besides=("dp", "tpx", "tpy", "tpz"))
    axes = {"rows": rows, "cols": cols, "depth": depth}
    m, n = pick(rng, range(13, 17)), pick(rng, range(17, 21))
    k = pick(rng, (11, 13))  # q does not divide the columns of a block of x
    mesh = mesh_of(rng, **{rows: 2, cols: 2, depth: 4})
    deep = mesh_of(rng, **{rows: 1, cols: 1, depth: 5})
    return (
        square(mesh, 8 * m, 2 * k, 2 * n, dtype="bfloat16", **axes),
        square(deep, 20 * (m - 10), 2 * k + 1, n, **axes),
    )


_OVER_DEPTH = Limit(("all_reduce",), "depth", ring_bytes(2, "w", "depth"))

CONTRACT = Contract(
    kind="program",
    task="return this device's block of x @ w, where the rows of x are split over `depth`, too",
    reference=tensor_nd.matmul_2_5d,
    oracle=_in_2_5d,
    cases=(
        square("dp=2,tpx=2,tpy=2,tpz=2", 2 * 24, 20, 16, rows="tpx", cols="tpy", depth="tpz"),
        square("tpx=3,tpy=2,tpz=2", 30, 28, 24, rows="tpy", cols="tpz", depth="tpx"),
        square("tpx=1,tpy=3,tpz=3", 15, 18, 12, rows="tpz", cols="tpy", depth="tpx"),
    ),
    draw=_drawn,
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
    memory=ROUNDS_HOLD_LESS,
    flops=work_is_split(),
    sharding=True,
    hints=(
        "Each square has its own rows of x, and all of w. So forward it needs nothing from the "
        "others.",
        "w is the same in all squares, and each uses it with other rows: its gradient is a sum "
        "over `depth`. JAX adds that sum where w first meets something that varies over `depth`.",
        'lax.pcast(w, depth, to="varying") says where: before w is gathered, its gradient is one '
        "block; afterwards, it is q of them. Then go on as in summa_matmul.",
    ),
    minimal="Every square has all of w, so none waits for another. To keep the copies of w equal, "
    "their gradients need one all-reduce, as in data parallelism.",
    harder="Split each block of w over the devices along `depth`, and gather it before its use: "
    "FSDP over `depth`.",
)


def _in_each_square(matmul: Callable[..., Array]) -> Callable[..., Array]:
    """The same answer, or mistake, in each square; the gradient of w is summed over `depth`."""

    @wraps(matmul)  # so that a mistake keeps its sentence, and what it fails by
    def function(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
        return matmul(x, enter(w, depth), rows=rows, cols=cols)

    return function


_right = _in_each_square(by_gathers)

x_along_rows = _in_each_square(summa_matmul.x_along_rows)
w_along_cols = _in_each_square(summa_matmul.w_along_cols)
blocks_along_wrong_axes = _in_each_square(summa_matmul.blocks_along_wrong_axes)
inner_blocks_interleaved = _in_each_square(summa_matmul.inner_blocks_interleaved)
round_missing = _in_each_square(summa_matmul.round_missing)
products_summed = _in_each_square(summa_matmul.products_summed)
own_blocks_only = _in_each_square(summa_matmul.own_blocks_only)
cannon_not_skewed = _in_each_square(summa_matmul.cannon_not_skewed)


@wrong("values")
def summed_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The results are summed over `depth`; each square has its own rows of x, and of y."""
    return lax.psum(_right(x, w, rows=rows, cols=cols, depth=depth), depth)


gradient_of_own_block = _in_each_square(summa_matmul.gradient_of_own_block)


@wrong("gradient")
def depth_not_summed(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The gradient of w is that of one square; sum it over `depth`."""
    w = with_gradient_of_device_zero(enter(w, depth), depth)
    return by_gathers(x, w, rows=rows, cols=cols)


@wrong("gradient")
def depth_averaged(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The gradient of w is averaged over `depth`; sum it."""
    return _right(x, with_gradient_divided(w, depth), rows=rows, cols=cols, depth=depth)


@wrong("sharding")
def product_whole(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """Every device returns the whole product; it must return its own block."""
    y = _in_each_square(summa_matmul.product_whole)(x, w, rows=rows, cols=cols, depth=depth)
    return gathered(y, depth)


block_gradients_all_reduced = _in_each_square(summa_matmul.block_gradients_all_reduced)
blocks_gathered_by_sum = _in_each_square(summa_matmul.blocks_gathered_by_sum)
blocks_gathered_over_both = _in_each_square(summa_matmul.blocks_gathered_over_both)
blocks_gathered_in_rounds = _in_each_square(summa_matmul.blocks_gathered_in_rounds)


@wrong("communication")
def depth_cast_implicit(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """The gradient of w is summed over `depth` as a whole column of blocks; lax.pcast(w, depth,
    to='varying') before w is gathered leaves one block to sum."""
    return by_gathers(x, w, rows=rows, cols=cols)


@wrong("communication")
def w_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """w is sent over `depth`; it is equal in all squares already."""
    w = lax.psum(jnp.where(lax.axis_index(depth) == 0, w, 0), depth)
    return _right(x, w, rows=rows, cols=cols, depth=depth)


@wrong("communication")
def x_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """x is gathered over `depth`, and every square computes all rows; each needs its own rows
    only."""
    y = _right(gathered(x, depth), w, rows=rows, cols=cols, depth=depth)
    return own_shard(y, depth)


@wrong("flops")
def rows_of_all_squares(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    """Every square multiplies the rows of all squares, with zeros for those that it does not hold;
    multiply its own rows only."""
    x, w = gathered(x, cols, 1), gathered(enter(w, depth), rows)
    return own_shard(among_zeros(x, depth) @ w, depth)


square_not_checked = _in_each_square(summa_matmul.square_not_checked)
