"""What the exercises on products of matrices in two and three dimensions have in common."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Expected, Limit
from jaxpar.contracts.case import ArraySpec, Case, Sizes

GATHERS = ("all_gather", "permute", "all_to_all")
GATHERS_AND_SUMS = ("reduce_scatter", *GATHERS)
ROUNDS = ("all_reduce", "permute")
COLLECTIVES_OF_A_ROUND = 8


def matrix_product(case: Case, x: Array, w: Array) -> Array:
    """The product [m, n]; each device of dp, if there is that axis, has a product of its own."""
    dp = case.sizes.get("dp", 1)
    blocks = jnp.einsum(
        "dmk,dkn->dmn", x.reshape(dp, -1, x.shape[1]), w.reshape(dp, -1, w.shape[1])
    )
    return blocks.reshape(-1, w.shape[1])


def split_blocks(case: Case, y: Array, rows: tuple[str, ...], columns: str) -> list[Expected]:
    """What each device holds of y: rows split over dp and these axes, columns over `columns`."""
    sizes = case.sizes
    dp = ["dp"] if "dp" in sizes else []
    row_axes = [*dp, *(case.kwargs[name] for name in rows)]
    column_axis = case.kwargs[columns]
    columns_each = y.shape[1] // sizes[column_axis]
    cut = y.reshape(*(sizes[axis] for axis in row_axes), -1, sizes[column_axis], columns_each)
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
    """A case of x [m, k] and w [k, n], split over `rows` and `cols`; x over `depth`, too."""
    dp = "dp" * mesh.startswith("dp")
    x_layout = f"m{layout_of(dp, axes.get('depth', ''), axes['rows'])} k_{axes['cols']}"
    w_layout = f"k{layout_of(dp, axes['rows'])} n_{axes['cols']}"
    return operands(mesh, (m, k, n), x_layout, w_layout, axes)


def operands(
    mesh: str, sizes: tuple[int, int, int], x_layout: str, w_layout: str, axes: dict[str, str]
) -> Case:
    """A case of x [m, k] and w [k, n] with these layouts; a w for each device of dp."""
    m, k, n = sizes
    groups = int(mesh[3]) if mesh.startswith("dp") else 1
    args = {"x": ArraySpec((m, k), x_layout), "w": ArraySpec((groups * k, n), w_layout)}
    return Case(mesh, args, axes)


def layout_of(*names: str) -> str:
    """The axes of one dim, as layouts append them."""
    return "".join(f"_{name}" for name in names if name)


FORWARD = tuple(product(routes("x", "cols"), routes("w", "rows")))
# Of the two products of the gradient each brings one matrix along and adds the other one up.
BACKWARD = tuple(product(routes("x", "cols", passes=2), routes("w", "rows", passes=2)))


def interleaved(x: Array, axis: str, dim: int) -> Array:
    """The shards of all devices, gathered row by row, or column by column, in turn."""
    shape = list(x.shape)
    shape[dim] *= lax.axis_size(axis)
    return lax.all_gather(x, axis, axis=dim + 1).reshape(shape)
