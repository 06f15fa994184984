"""The product of two matrices on a cube of devices, each of which multiplies once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    among_zeros,
    gathered,
    gathered_by_sum,
    gathered_for_all_reduce,
    gathered_for_own_gradient,
    own_shard,
    scattered,
)
from jaxpar.contracts.tensor_2d_3d.common import (
    GATHERS,
    interleaved,
    layout_of,
    matrix_product,
    number_of_groups,
    operands,
    others,
    split_blocks,
)
from jaxpar.parallel import tensor_nd

SUMS = ("reduce_scatter", "permute", "all_to_all")


def _in_3d(case: Case, x: Array, w: Array) -> list[Expected]:
    return split_blocks(case, matrix_product(case, x, w), ("x_axis", "z_axis"), "y_axis")


def _reduce_scatter_of_y(sizes: Sizes) -> float:
    """Wire bytes of a reduce-scatter of x_i @ w_j."""
    x, n = sizes.case.args["x"], sizes.n("z_axis")
    rows = x.shape[0] // number_of_groups(sizes.case) // sizes.n("x_axis")
    bytes_of_row = sizes.n("x_axis") * sizes.bytes("w") // (x.shape[1] // n)
    return (n - 1) / n * rows * bytes_of_row


def _cube(mesh: str, m: int, k: int, n: int, *, dtype: str = "float32", **axes: str) -> Case:
    """A case of x [m, k] and w [k, n], split over `x_axis`, `y_axis` and `z_axis`."""
    x, y, z = axes["x_axis"], axes["y_axis"], axes["z_axis"]
    x_layout, w_layout = f"m{layout_of(x, y)} k_{z}", f"k_{z} n_{y}_{x}"
    return operands(mesh, (m, k, n), x_layout, w_layout, axes, dtype)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Each of the three axes has more devices than in the stub once, and a single one once."""
    x, y, z, other = axis_names(rng, 4, besides=("dp", "tpx", "tpy", "tpz"))
    axes = {"x_axis": x, "y_axis": y, "z_axis": z}
    k, n = pick(rng, range(11, 15)), pick(rng, (6, 8, 9))
    return (
        _cube(mesh_of(rng, **{x: 1, y: 5, z: 2}), 40, 2 * k, 5 * n, dtype="bfloat16", **axes),
        _cube(mesh_of(rng, **{x: 5, y: 2, z: 1}), 70, k, 10 * n, **axes),
        _cube(mesh_of(rng, **{x: 1, y: 1, z: 5, other: 2}), 50, 5 * k, n, **axes),
    )


CONTRACT = Contract(
    kind="program",
    task="return this device's rows of a block of x @ w, summed over `z_axis`",
    reference=tensor_nd.matmul_3d,
    oracle=_in_3d,
    cases=(
        _cube("dp=2,tpx=2,tpy=2,tpz=2", 48, 20, 28, x_axis="tpx", y_axis="tpy", z_axis="tpz"),
        _cube("tpx=3,tpy=3,tpz=1", 36, 27, 15, x_axis="tpy", y_axis="tpz", z_axis="tpx"),
        # so that each of the three axes has more than two devices once
        _cube("tpx=3,tpy=1,tpz=2", 24, 8, 18, x_axis="tpz", y_axis="tpx", z_axis="tpy"),
    ),
    draw=_drawn,
    errors=(
        BadCall(
            _cube("tpx=2,tpy=1,tpz=3", 8, 6, 4, x_axis="tpx", y_axis="tpy", z_axis="tpz"),
            "4 rows of y_ij, `z_axis` = 3",
        ),
    ),
    gradient=("x", "w"),
    communication=Communication(
        "forward the other blocks of x over `y_axis`, and of w over `x_axis`, and one "
        "reduce-scatter over `z_axis`; backward as many bytes over each",
        forward=(
            (
                Limit(GATHERS, "y_axis", others("x", "y_axis")),
                Limit(GATHERS, "x_axis", others("w", "x_axis")),
                Limit(SUMS, "z_axis", _reduce_scatter_of_y),
            ),
        ),
    ),
    flops=work_is_split(),
    sharding=True,
    hints=(
        "Device (i, j, l) of the cube multiplies x_il by w_lj, once. Its part of x is some rows of "
        "x_il, its part of w some columns of w_lj: who has the others?",
        "The other rows of x_il are along `y_axis`, the other columns of w_lj along `x_axis`. The "
        "products of the devices along `z_axis` add up to y_ij, of which each keeps its rows.",
        "lax.all_gather(x, y_axis, tiled=True); for w, add axis=1, which puts its columns side by "
        "side. Then lax.psum_scatter(..., z_axis, tiled=True).",
    ),
    minimal="In a cube, each device multiplies one block of x by one block of w. These two blocks "
    "and their product are the three faces of its work, and it holds 1/q of each face.",
    harder="Write an MLP with it, so that the result has the layout of x: which axes change "
    "places?",
)


def _multiplied(
    x: Array, w: Array, *, x_over: str, w_over: str, gather: Callable[..., Array] = gathered
) -> Array:
    """This device's product of the rows and columns that it gathers over these axes."""
    return gather(x, x_over, 0) @ gather(w, w_over, 1)


def _product_of_whole_matrices(x: Array, w: Array, x_axis: str, y_axis: str, z_axis: str) -> Array:
    x = gathered(gathered(x, y_axis), x_axis)
    w = gathered(gathered(w, x_axis, 1), y_axis, 1)
    return gathered(x, z_axis, 1) @ gathered(w, z_axis)


@wrong("values")
def x_over_x(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """x is gathered over `x_axis`; the other rows of block x_il are along `y_axis`."""
    return scattered(_multiplied(x, w, x_over=x_axis, w_over=x_axis), z_axis)


@wrong("values")
def w_over_y(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """w is gathered over `y_axis`; the other columns of block w_lj are along `x_axis`."""
    return scattered(_multiplied(x, w, x_over=y_axis, w_over=y_axis), z_axis)


@wrong("values")
def x_and_w_over_wrong_axes(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """x is gathered over `x_axis`, and w over `y_axis`; swap the two axes."""
    return scattered(_multiplied(x, w, x_over=x_axis, w_over=y_axis), z_axis)


@wrong("values")
def rows_of_blocks_interleaved(
    x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str
) -> Array:
    """The parts are interleaved; lax.all_gather with tiled=True puts them one after the other."""
    y_partial = _multiplied(x, w, x_over=y_axis, w_over=x_axis, gather=interleaved)
    return scattered(y_partial, z_axis)


@wrong("values")
def products_not_summed(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Each device keeps rows of its own product; sum over `z_axis`."""
    return own_shard(_multiplied(x, w, x_over=y_axis, w_over=x_axis), z_axis)


@wrong("values")
def summed_over_y(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Products are summed over `y_axis`; those of one block y_ij are along `z_axis`."""
    return scattered(_multiplied(x, w, x_over=y_axis, w_over=x_axis), y_axis)


@wrong("values")
def columns_scattered(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Each device keeps columns of the sum; the result has its rows split over `z_axis`."""
    return scattered(_multiplied(x, w, x_over=y_axis, w_over=x_axis), z_axis, 1)


@wrong("values")
def all_rows_of_block(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Each device along `z_axis` returns all rows of its block; leave each device only its own
    rows, by lax.psum_scatter."""
    return lax.psum(_multiplied(x, w, x_over=y_axis, w_over=x_axis), z_axis)


@wrong("values")
def x_over_x_and_y(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """x is gathered over `x_axis`, too; a device computes the rows of its own place on `x_axis`
    only."""
    rows = gathered(gathered(x, y_axis), x_axis)
    return scattered(rows @ gathered(w, x_axis, 1), z_axis)


@wrong("gradient")
def gradient_of_own_block(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """The gradient of a block is that of this device's own use of it; sum over all that used it, as
    the derivative of lax.all_gather does."""
    y_partial = _multiplied(x, w, x_over=y_axis, w_over=x_axis, gather=gathered_for_own_gradient)
    return scattered(y_partial, z_axis)


@wrong("sharding")
def product_whole(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Every device returns the whole product; it must return its own block."""
    return _product_of_whole_matrices(x, w, x_axis, y_axis, z_axis)


@wrong("communication")
def product_all_reduced(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """The whole block is summed on all devices of `z_axis`, and rows are cut from it: twice the
    bytes of lax.psum_scatter."""
    y = lax.psum(_multiplied(x, w, x_over=y_axis, w_over=x_axis), z_axis)
    return own_shard(y, z_axis)


@wrong("communication")
def inner_dim_gathered(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """x and w are gathered over `z_axis`, too, and every device there computes the same block;
    multiply your own part of the inner dim, and sum."""
    x, w = gathered(x, z_axis, 1), gathered(w, z_axis, 0)
    return own_shard(_multiplied(x, w, x_over=y_axis, w_over=x_axis), z_axis)


@wrong("communication")
def matrices_gathered(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Whole matrices are gathered over all three axes; one block of each is enough."""
    y = _product_of_whole_matrices(x, w, x_axis, y_axis, z_axis)
    return own_shard(own_shard(own_shard(y, x_axis), z_axis), y_axis, 1)


@wrong("communication")
def rows_of_x_gathered(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Rows of x are gathered over `x_axis`, and not used."""
    rows = own_shard(gathered(gathered(x, y_axis), x_axis), x_axis)
    return scattered(rows @ gathered(w, x_axis, 1), z_axis)


@wrong("communication")
def block_gradients_all_reduced(
    x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str
) -> Array:
    """The gradient of what was gathered is summed whole on all devices: twice the bytes of a
    reduce-scatter, which is the derivative of lax.all_gather without `to`."""
    y_partial = _multiplied(x, w, x_over=y_axis, w_over=x_axis, gather=gathered_for_all_reduce)
    return scattered(y_partial, z_axis)


@wrong("communication")
def blocks_gathered_by_sum(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Blocks are padded with zeros and summed all at once: twice the bytes of lax.all_gather, and
    just as much memory."""
    y_partial = _multiplied(x, w, x_over=y_axis, w_over=x_axis, gather=gathered_by_sum)
    return scattered(y_partial, z_axis)


@wrong("flops")
def rows_of_all_along_x(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Every device multiplies as many rows as all devices along `x_axis` have, with zeros for those
    of the others; multiply block x_il only."""
    rows, columns = gathered(x, y_axis), gathered(w, x_axis, 1)
    return scattered(own_shard(among_zeros(rows, x_axis) @ columns, x_axis), z_axis)


@wrong("errors")
def rows_dropped(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    """Where `z_axis` does not divide the rows of y_ij, the last ones are left out of the result
    without a word; raise ValueError."""
    y_partial = _multiplied(x, w, x_over=y_axis, w_over=x_axis)
    n = lax.axis_size(z_axis)
    return scattered(y_partial[: len(y_partial) // n * n], z_axis)
