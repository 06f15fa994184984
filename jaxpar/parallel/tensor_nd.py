"""Tensor parallelism in two and three dimensions: of x, w and y = x @ w each device holds a block.

Layouts name the arguments that name the axes: x "m_rows k_cols" has its rows split over `rows`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import get_abstract_mesh
from jaxtyping import Float

from jaxpar import nn
from jaxpar.mesh import divide, varying_axes


def summa_matmul(
    x: Float[Array, "m k"], w: Float[Array, "k n"], *, rows: str, cols: str
) -> Float[Array, "m n"]:
    """The product of two matrices that lie in blocks on a square of q*q devices.

    x is "m_rows k_cols", w "k_rows n_cols" and the result "m_rows n_cols": device (i, j) has block
    (i, j) of each.

    Math: y_ij = sum_l x_il @ w_lj
    Comm:
        forward: all_gather(cols) x + all_gather(rows) w
        backward: all_gather(cols) x + all_gather(rows) w + reduce_scatter(cols) q*x
            + reduce_scatter(rows) q*w
    Memory: y
    Source: van de Geijn and Watts 1997 (SUMMA)

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    q = _side("summa_matmul", rows, cols)
    missing = -x.shape[1] % q  # zeros, so that q parts are alike
    x_parts = jnp.pad(x, ((0, 0), (0, missing))).reshape(len(x), q, -1).swapaxes(0, 1)  # [q, m, p]
    w_parts = jnp.pad(w, ((0, missing), (0, 0))).reshape(q, -1, w.shape[1])  # [q, p, n]

    def one_round(y: Array, parts: tuple[Array, Array]) -> tuple[Array, None]:
        x_column = lax.all_gather(parts[0], cols, axis=1, tiled=True)  # [m, q*p]
        w_row = lax.all_gather(parts[1], rows, tiled=True)  # [q*p, n]
        return y + x_column @ w_row, None

    y = jnp.zeros((len(x), w.shape[1]), jnp.result_type(x, w))
    y = lax.pcast(y, tuple(varying_axes(x) | varying_axes(w)), to="varying")
    # Without the checkpoint what every round gathers would be kept for the backward pass.
    return lax.scan(jax.checkpoint(one_round, prevent_cse=False), y, (x_parts, w_parts))[0]


def cannon_matmul(
    x: Float[Array, "m k"], w: Float[Array, "k n"], *, rows: str, cols: str
) -> Float[Array, "m n"]:
    """As `summa_matmul`, but blocks go from neighbour to neighbour: no device gathers anything.

    Math: y_ij = sum_r x_il @ w_lj, where l = (i + j + r) mod q
    Comm:
        forward: permute(cols) q*x + permute(rows) q*w
        backward: permute(cols) q*x + permute(rows) q*w
    Memory: y
    Source: Cannon 1969

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    q = _side("cannon_matmul", rows, cols)
    # A permute over two axes numbers the devices in the order of the mesh.
    axes = tuple(sorted((rows, cols), key=get_abstract_mesh().axis_names.index))
    step = dict(zip(axes, (q, 1), strict=True))

    def number(i: int, j: int) -> int:
        return i % q * step[rows] + j % q * step[cols]

    # Blocks whose inner numbers differ do not fit: row i of x goes i to the left, column j of w
    # j up, and device (i, j) then has l = i + j of both.
    places = [(i, j) for i in range(q) for j in range(q)]
    x = lax.ppermute(x, axes, [(number(i, i + j), number(i, j)) for i, j in places])
    w = lax.ppermute(w, axes, [(number(i + j, j), number(i, j)) for i, j in places])
    to_previous = [((i + 1) % q, i) for i in range(q)]
    y = x @ w
    for _ in range(q - 1):
        x, w = lax.ppermute(x, cols, to_previous), lax.ppermute(w, rows, to_previous)
        y += x @ w
    return y


def matmul_2_5d(
    x: Float[Array, "m k"], w: Float[Array, "k n"], *, rows: str, cols: str, depth: str
) -> Float[Array, "m n"]:
    """The product on d squares of q*q devices, each with its rows of x, and all with the same w.

    x is "m_depth_rows k_cols", w "k_rows n_cols" and the result "m_depth_rows n_cols". w is equal
    over `depth`, and typed so; its gradient is the sum over all squares.

    Math: y_hij = sum_l x_hil @ w_lj on square h
    Comm:
        forward: all_gather(cols) x + all_gather(rows) w
        backward: all_gather(cols) x + all_gather(rows) w + reduce_scatter(cols) q*x
            + reduce_scatter(rows) q*w + all_reduce(depth) w
    Memory: y
    Source: Wang, Xu, Bian and You 2022 (Tesseract)

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    _side("matmul_2_5d", rows, cols)
    w = lax.pcast(w, depth, to="varying")  # before it is gathered: its gradient is then a block
    return summa_matmul(x, w, rows=rows, cols=cols)


def matmul_3d(
    x: Float[Array, "m k"], w: Float[Array, "k n"], *, x_axis: str, y_axis: str, z_axis: str
) -> Float[Array, "s o"]:
    """The product on a cube of devices, each of which multiplies once.

    x is "m_x_y k_z", w "k_z n_y_x" and the result "m_x_z n_y", where x, y and z stand for the axes
    that `x_axis`, `y_axis` and `z_axis` name. Their sizes may differ.

    Math: y_ij = sum_l x_il @ w_lj on device (i, j, l), which then keeps its rows of y_ij
    Comm:
        forward: all_gather(y_axis) x + all_gather(x_axis) w + reduce_scatter(z_axis) n_z*y
        backward: reduce_scatter(y_axis) n_y*x + reduce_scatter(x_axis) n_x*w + all_gather(z_axis) y
    Memory: y
    Source: Agarwal et al. 1995 (3D product); Bian, Xu, Wang and You 2021 (its use in a model)

    Raises:
        ValueError: the size of `z_axis` does not divide the rows of y_ij.
    """
    x_i = lax.all_gather(x, y_axis, tiled=True)  # "m_x k_z"
    w_j = lax.all_gather(w, x_axis, axis=1, tiled=True)  # "k_z n_y"
    divide("matmul_3d", "m", len(x_i), z_axis, lax.axis_size(z_axis))
    return lax.psum_scatter(x_i @ w_j, z_axis, tiled=True)


def mlp_2d(
    x: Float[Array, "m d"],
    w_up: Float[Array, "d f"],
    w_down: Float[Array, "f d"],
    *,
    rows: str,
    cols: str,
) -> Float[Array, "m d"]:
    """The MLP of GPT in two dimensions: the result lies as x does, and every matrix in blocks.

    x is "m_rows d_cols", w_up "d_rows f_cols", w_down "f_rows d_cols".

    Math: y = gelu(x @ w_up) @ w_down
    Comm:
        forward: all_gather(cols) x+h + all_gather(rows) w_up+w_down
        backward: all_gather(cols) x+h + all_gather(rows) w_up+w_down + reduce_scatter(cols) q*(x+h)
            + reduce_scatter(rows) q*(w_up+w_down)
    Memory: x
    Source: Xu, Li, Gong and You 2021 (Optimus)

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    product = partial(summa_matmul, rows=rows, cols=cols)
    return product(nn.gelu(product(x, w_up)), w_down)


def mlp_2_5d(
    x: Float[Array, "m d"],
    w_up: Float[Array, "d f"],
    w_down: Float[Array, "f d"],
    *,
    rows: str,
    cols: str,
    depth: str,
) -> Float[Array, "m d"]:
    """The MLP of GPT on `depth` squares: as `mlp_2d`, and x is "m_depth_rows d_cols".

    Math: y = gelu(x @ w_up) @ w_down
    Comm:
        forward: all_gather(cols) x+h + all_gather(rows) w_up+w_down
        backward: all_gather(cols) x+h + all_gather(rows) w_up+w_down + reduce_scatter(cols) q*(x+h)
            + reduce_scatter(rows) q*(w_up+w_down) + all_reduce(depth) w_up+w_down
    Memory: x
    Source: Wang, Xu, Bian and You 2022 (Tesseract)

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    product = partial(matmul_2_5d, rows=rows, cols=cols, depth=depth)
    return product(nn.gelu(product(x, w_up)), w_down)


def mlp_3d(
    x: Float[Array, "m d"],
    w_up: Float[Array, "d g"],
    w_down: Float[Array, "f e"],
    *,
    x_axis: str,
    y_axis: str,
    z_axis: str,
) -> Float[Array, "m d"]:
    """The MLP of GPT in three dimensions; y and z change places, so that the result lies as x does.

    x is "m_x_y d_z", w_up "d_z f_y_x", w_down "f_y d_z_x".

    Math: y = gelu(x @ w_up) @ w_down
    Comm:
        forward: all_gather(y_axis) x + all_gather(x_axis) w_up + reduce_scatter(z_axis) n_z*h
            + all_gather(z_axis) h + all_gather(x_axis) w_down + reduce_scatter(y_axis) n_y*x
        backward: reduce_scatter(y_axis) n_y*x + reduce_scatter(x_axis) n_x*w_up
            + all_gather(z_axis) h + reduce_scatter(z_axis) n_z*h
            + reduce_scatter(x_axis) n_x*w_down + all_gather(y_axis) x
    Memory: x
    Source: Bian, Xu, Wang and You 2021 (3D parallelism)

    Raises:
        ValueError: the size of `z_axis` does not divide the rows of x on `x_axis`.
    """
    h = nn.gelu(matmul_3d(x, w_up, x_axis=x_axis, y_axis=y_axis, z_axis=z_axis))  # "m_x_z f_y"
    return matmul_3d(h, w_down, x_axis=x_axis, y_axis=z_axis, z_axis=y_axis)


def _side(where: str, rows: str, cols: str) -> int:
    """The size q of both axes."""
    q, other = lax.axis_size(rows), lax.axis_size(cols)
    if q != other:
        raise ValueError(
            f"{where}: mesh axis {rows} has size {q}, {cols} has size {other}; the devices must "
            f"be a square; use {min(q, other)} of each"
        )
    return q
