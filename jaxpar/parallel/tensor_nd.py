"""Tensor parallelism in two and three dimensions: x, w and y = x @ w are split into blocks.

The dims in a signature are those of a layout, but with the names of the axis arguments: the m rows
of an x "m_rows k_cols" are split over the axis that `rows` names, and its k columns over `cols`.

In the sizes of `Comm:`, q is the size of the axes `rows` and `cols`, n_x that of `x_axis`, and so
on; h is the number of elements of a block of the hidden activations.
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
    x: Float[Array, "m_rows k_cols"], w: Float[Array, "k_rows n_cols"], *, rows: str, cols: str
) -> Float[Array, "m_rows n_cols"]:
    """Multiplies two matrices that are split into blocks over a square of q*q devices.

    x is "m_rows k_cols", w is "k_rows n_cols", and the result is "m_rows n_cols": device (i, j) has
    block (i, j) of each.

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
    missing = -x.shape[1] % q  # zeros that make the q parts equally large
    x_parts = jnp.pad(x, ((0, 0), (0, missing))).reshape(len(x), q, -1).swapaxes(0, 1)  # [q, m, p]
    w_parts = jnp.pad(w, ((0, missing), (0, 0))).reshape(q, -1, w.shape[1])  # [q, p, n]

    def one_round(y: Array, parts: tuple[Array, Array]) -> tuple[Array, None]:
        x_column = lax.all_gather(parts[0], cols, axis=1, tiled=True)  # [m, q*p]
        w_row = lax.all_gather(parts[1], rows, tiled=True)  # [q*p, n]
        return y + x_column @ w_row, None

    y = jnp.zeros((len(x), w.shape[1]), jnp.result_type(x, w))
    y = lax.pcast(y, tuple(varying_axes(x) | varying_axes(w)), to="varying")
    # Without the checkpoint, what every round gathers would be kept for the backward pass.
    return lax.scan(jax.checkpoint(one_round, prevent_cse=False), y, (x_parts, w_parts))[0]


def cannon_matmul(
    x: Float[Array, "m_rows k_cols"], w: Float[Array, "k_rows n_cols"], *, rows: str, cols: str
) -> Float[Array, "m_rows n_cols"]:
    """Computes what `summa_matmul` does, but passes blocks on to neighbours and gathers nothing.

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
    stride = dict(zip(axes, (q, 1), strict=True))

    def number(i: int, j: int) -> int:
        return i % q * stride[rows] + j % q * stride[cols]

    # Only blocks x_il and w_lj with the same l can be multiplied. So row i of x moves i places to
    # the left, and column j of w moves j places up; device (i, j) then has l = i + j of both.
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
    x: Float[Array, "m_depth_rows k_cols"],
    w: Float[Array, "k_rows n_cols"],
    *,
    rows: str,
    cols: str,
    depth: str,
) -> Float[Array, "m_depth_rows n_cols"]:
    """Multiplies on several squares of q*q devices, which split the rows of x and replicate w.

    x is "m_depth_rows k_cols", w is "k_rows n_cols", and the result is "m_depth_rows n_cols". w is
    equal over `depth`, and typed so; its gradient is the sum over all squares.

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
    # The cast comes before the gather, so that the gradient that is summed is only a block.
    w = lax.pcast(w, depth, to="varying")
    return summa_matmul(x, w, rows=rows, cols=cols)


def matmul_3d(
    x: Float[Array, "m_x_y k_z"],
    w: Float[Array, "k_z n_y_x"],
    *,
    x_axis: str,
    y_axis: str,
    z_axis: str,
) -> Float[Array, "m_x_z n_y"]:
    """Multiplies on a cube of devices, each of which computes a single product of two blocks.

    x is "m_x_y k_z", w is "k_z n_y_x", and the result is "m_x_z n_y", where x, y and z stand for
    the axes that `x_axis`, `y_axis` and `z_axis` name. Their sizes may differ.

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
    x: Float[Array, "m_rows d_cols"],
    w_up: Float[Array, "d_rows f_cols"],
    w_down: Float[Array, "f_rows d_cols"],
    *,
    rows: str,
    cols: str,
) -> Float[Array, "m_rows d_cols"]:
    """The MLP of GPT with every matrix in blocks on a square; the result has the layout of x.

    x is "m_rows d_cols", w_up is "d_rows f_cols", and w_down is "f_rows d_cols".

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
    x: Float[Array, "m_depth_rows d_cols"],
    w_up: Float[Array, "d_rows f_cols"],
    w_down: Float[Array, "f_rows d_cols"],
    *,
    rows: str,
    cols: str,
    depth: str,
) -> Float[Array, "m_depth_rows d_cols"]:
    """The MLP of GPT on several squares: as `mlp_2d`, except that x is "m_depth_rows d_cols".

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
    x: Float[Array, "m_x_y d_z"],
    w_up: Float[Array, "d_z f_y_x"],
    w_down: Float[Array, "f_y d_z_x"],
    *,
    x_axis: str,
    y_axis: str,
    z_axis: str,
) -> Float[Array, "m_x_y d_z"]:
    """The MLP of GPT on a cube; the result has the layout of x.

    The second product exchanges the axes y and z. x is "m_x_y d_z", w_up is "d_z f_y_x", and w_down
    is "f_y d_z_x".

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
    """The size q of both axes, after checking that it is the same."""
    q, other = lax.axis_size(rows), lax.axis_size(cols)
    if q != other:
        raise ValueError(
            f"{where}: mesh axis {rows} has size {q}, {cols} has size {other}; the devices must "
            f"be a square; use {min(q, other)} of each"
        )
    return q
