"""What the exercises of the lesson on tensor 2d 3d have in common."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Expected, Limit
from jaxpar.contracts.case import ArraySpec, Case, Sizes

GATHERS = ("all_gather", "permute", "all_to_all")


GATHERS_AND_SUMS = ("reduce_scatter", *GATHERS)


ROUNDS = ("all_reduce", "permute")


COLLECTIVES_OF_A_ROUND = 8


def matrix_product(case: Case, x: jax.Array, w: jax.Array) -> jax.Array:
    """Of each device of dp, if there is that axis, its own product; [m, n]."""
    dp = case.sizes.get("dp", 1)
    blocks = jnp.einsum(
        "dmk,dkn->dmn", x.reshape(dp, -1, x.shape[1]), w.reshape(dp, -1, w.shape[1])
    )
    return blocks.reshape(-1, w.shape[1])


def split_blocks(case: Case, y: jax.Array, rows: tuple[str, ...], columns: str) -> list[Expected]:
    """What each device holds of y: rows split over dp and these axes, columns over `columns`."""
    sizes = case.sizes
    dp = ["dp"] if "dp" in sizes else []
    row_axes = [*dp, *(case.kwargs[name] for name in rows)]
    column_axis = case.kwargs[columns]
    cut = y.reshape(
        *(sizes[axis] for axis in row_axes),
        -1,
        sizes[column_axis],
        y.shape[1] // sizes[column_axis],
    )
    dims = [*row_axes, "m", column_axis, "n"]
    blocks = cut.transpose(*(dims.index(name) for name in (*sizes, "m", "n")))
    groups = [n if axis == "dp" else 1 for axis, n in sizes.items()]
    whole = y.reshape(*groups, -1, y.shape[1])
    return [Expected(blocks, jnp.broadcast_to(whole, (*sizes.values(), *whole.shape[-2:])))]


def others(name: str, over: str, times: int = 1) -> Callable[[Sizes], float]:
    """Bytes of the blocks of all other devices on the axis."""
    return lambda sizes: times * (sizes.n(over) - 1) * sizes.bytes(name)


def routes(name: str, over: str, *, passes: int = 1) -> tuple[Limit, Limit]:
    """A matrix goes over its axis by gathers, or in rounds of a block at a time at twice that."""

    def one_block_each(sizes: Sizes) -> list[int]:
        return [sizes.bytes(name)] * (COLLECTIVES_OF_A_ROUND * sizes.n(over))

    kinds = GATHERS if passes == 1 else GATHERS_AND_SUMS
    return (
        Limit(kinds, over, others(name, over, passes)),
        Limit(ROUNDS, over, others(name, over, 2 * passes), operand_bytes=one_block_each),
    )


def square(mesh: str, m: int, k: int, n: int, **axes: str) -> Case:
    """A case of x [m, k] and w [k, n], cut over `rows` and `cols`; x over `depth`, too."""
    dp = "dp" * mesh.startswith("dp")
    over_m = layout_of(dp, axes.get("depth", ""), axes["rows"])
    layouts = f"m{over_m} k_{axes['cols']}", f"k{layout_of(dp, axes['rows'])} n_{axes['cols']}"
    return operands(mesh, (m, k, n), layouts, axes)


def operands(mesh: str, sizes: tuple[int, ...], layouts: tuple[str, str], axes: dict) -> Case:
    """A case of x and w with these layouts; copies of w for each device of dp."""
    (m, k, n), (of_x, of_w) = sizes, layouts
    copies = int(mesh[3]) if mesh.startswith("dp") else 1  # each with a w of its own
    return Case(mesh, {"x": ArraySpec((m, k), of_x), "w": ArraySpec((copies * k, n), of_w)}, axes)


def layout_of(*names: str) -> str:
    """The axes of one dim, as layouts append them."""
    return "".join(f"_{name}" for name in names if name)


FORWARD = tuple(product(routes("x", "cols"), routes("w", "rows")))


# Of the two products of the gradient each brings one matrix along and adds the other one up.
BACKWARD = tuple(product(routes("x", "cols", passes=2), routes("w", "rows", passes=2)))


Matmul = Callable[..., Array]


Gather = Callable[[Array, str, int], Array]


def side(rows: str, cols: str) -> int:
    """The size of both axes."""
    q = lax.axis_size(rows)
    if q != lax.axis_size(cols):
        raise ValueError("the devices must be a square")
    return q


def gathered(x: Array, axis: str, dim: int) -> Array:
    """All blocks along the axis, one beside the other; so far right."""
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def interleaved(x: Array, axis: str, dim: int) -> Array:
    """Row by row, or column by column, of all blocks in turn."""
    shape = list(x.shape)
    shape[dim] *= lax.axis_size(axis)
    return lax.all_gather(x, axis, axis=dim + 1).reshape(shape)


def all_reduced_backward(x: Array, axis: str, dim: int) -> Array:
    """The gradient is summed whole on all devices, and each takes its part."""
    y = lax.all_gather(x, axis, axis=dim, tiled=True, to="invarying")
    return lax.pcast(y, axis, to="varying")


def gathered_by_sum(x: Array, axis: str, dim: int) -> Array:
    """An all-reduce of zeros with one block each."""
    i = lax.axis_index(axis)
    blocks = [jnp.where(i == device, x, 0) for device in range(lax.axis_size(axis))]
    return lax.psum(jnp.concatenate(blocks, axis=dim), axis)


def own_gradient(x: Array, axis: str, dim: int) -> Array:
    """Right values; the gradient is that of this device's own use of its block."""
    others = lax.stop_gradient(gathered(x, axis, dim))
    zero, start = x - lax.stop_gradient(x), lax.axis_index(axis) * x.shape[dim]
    return others + lax.dynamic_update_slice_in_dim(jnp.zeros_like(others), zero, start, dim)


def own_part(y: Array, axis: str, dim: int) -> Array:
    """Of a whole array this device's part."""
    size = y.shape[dim] // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(y, lax.axis_index(axis) * size, size, dim)


def by_gathers(gather: Gather = gathered, *, x_over: str = "cols", w_over: str = "rows") -> Matmul:
    """Blocks of x gathered over an axis, those of w over another, one product."""

    def function(x: Array, w: Array, *, rows: str, cols: str) -> Array:
        side(rows, cols)
        axes = {"rows": rows, "cols": cols}
        return gather(x, axes[x_over], 1) @ gather(w, axes[w_over], 0)

    return function


def brought(x: Array, root: Array | int, axis: str) -> Array:
    """The root's x, by a sum of zeros with it."""
    return lax.psum(jnp.where(lax.axis_index(axis) == root, x, 0), axis)


def unrolled(missing: int) -> Matmul:
    """One round after the other, in a Python loop, but for the last ones."""

    def function(x: Array, w: Array, *, rows: str, cols: str) -> Array:
        y = jnp.zeros((len(x), w.shape[1]), x.dtype)
        for k in range(side(rows, cols) - missing):
            y += brought(x, k, cols) @ brought(w, k, rows)
        return y

    return function


def whole_matrices(x: Array, w: Array, rows: str, cols: str) -> Array:
    """The product of both matrices, gathered whole on every device."""
    x, w = gathered(gathered(x, cols, 1), rows, 0), gathered(gathered(w, cols, 1), rows, 0)
    return x @ w


def one_interleaved(x: Array, axis: str, dim: int) -> Array:
    """The blocks of w row by row in turn; those of x as they belong."""
    return interleaved(x, axis, dim) if dim == 0 else gathered(x, axis, dim)
