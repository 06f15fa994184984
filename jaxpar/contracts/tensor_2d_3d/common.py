"""What the exercises on products of matrices in two and three dimensions have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Expected, Limit, MemoryLimit
from jaxpar.contracts.case import ArraySpec, Case, Sizes

GATHERS = ("all_gather", "permute", "all_to_all")
GATHERS_AND_SUMS = ("reduce_scatter", *GATHERS)
ROUNDS = ("all_reduce", "permute")
COLLECTIVES_OF_A_ROUND = 8
ROUNDS_HOLD_LESS = MemoryLimit(
    "if you send more than gathers do, two blocks of x and of w at a time: at most twice the "
    "library's bytes of intermediate results",
    multiple=2,
    traded=(6, 1),
)


def matrix_product(case: Case, x: Array, w: Array) -> Array:
    """The product [m, n]; each device along axes that are no argument has one of its own."""
    groups = number_of_groups(case)
    blocks = jnp.einsum(
        "gmk,gkn->gmn", x.reshape(groups, -1, x.shape[1]), w.reshape(groups, -1, w.shape[1])
    )
    return blocks.reshape(-1, w.shape[1])


def split_blocks(case: Case, y: Array, rows: tuple[str, ...], columns: str) -> list[Expected]:
    """What each device holds of y: rows split over groups and these axes, columns over
    `columns`."""
    sizes, group_axes = case.sizes, _axes_of_groups(case)
    row_axes = [*group_axes, *(case.kwargs[name] for name in rows)]
    column_axis = case.kwargs[columns]
    columns_each = y.shape[1] // sizes[column_axis]
    cut = y.reshape(*(sizes[axis] for axis in row_axes), -1, sizes[column_axis], columns_each)
    dims = [*row_axes, "m", column_axis, "n"]
    blocks = cut.transpose(*(dims.index(name) for name in (*sizes, "m", "n")))
    groups = [n if axis in group_axes else 1 for axis, n in sizes.items()]
    if math.prod(groups) == math.prod(sizes.values()):
        return [Expected(blocks)]  # with one device in a group, its block is the whole product
    whole = y.reshape(*groups, -1, y.shape[1])
    return [Expected(blocks, jnp.broadcast_to(whole, (*sizes.values(), *whole.shape[-2:])))]


def number_of_groups(case: Case) -> int:
    """How many products the mesh computes, each on devices of its own."""
    return math.prod(case.sizes[axis] for axis in _axes_of_groups(case))


def _axes_of_groups(case: Case) -> list[str]:
    """The axes that are no argument, in the order of the mesh: as dp, each has its own product."""
    return [axis for axis in case.sizes if axis not in case.kwargs.values()]


def others(name: str, over: str) -> Callable[[Sizes], float]:
    """Bytes of the blocks of all other devices on the axis."""
    return lambda sizes: (sizes.n(over) - 1) * sizes.bytes(name)


def routes(name: str, over: str, *, passes: int = 1) -> tuple[Limit, Limit]:
    """A matrix goes over its axis by gathers, or in rounds of a block at a time at twice that."""

    def sent(times: int) -> Callable[[Sizes], float]:
        return lambda sizes: times * (sizes.n(over) - 1) * _padded_bytes(sizes, name)

    def one_block_each(sizes: Sizes) -> list[int]:
        return [_padded_bytes(sizes, name)] * (COLLECTIVES_OF_A_ROUND * sizes.n(over))

    kinds = GATHERS if passes == 1 else GATHERS_AND_SUMS
    return (
        Limit(kinds, over, sent(passes)),
        Limit(ROUNDS, over, sent(2 * passes), operand_bytes=one_block_each),
    )


def _padded_bytes(sizes: Sizes, name: str) -> int:
    """Bytes of a block whose inner dim is padded, so that q divides it, as the library does."""
    q = sizes.n("cols")
    inner = sizes.case.args["x"].shape[1] // q
    return sizes.bytes(name) // inner * (inner + -inner % q)


def square(mesh: str, m: int, k: int, n: int, *, dtype: str = "float32", **axes: str) -> Case:
    """A case of x [m, k] and w [k, n], split over `rows` and `cols`; x over `depth`, too."""
    x_layout = f"m{layout_of(axes.get('depth', ''), axes['rows'])} k_{axes['cols']}"
    w_layout = f"k{layout_of(axes['rows'])} n_{axes['cols']}"
    return operands(mesh, (m, k, n), x_layout, w_layout, axes, dtype)


def operands(
    mesh: str,
    sizes: tuple[int, int, int],
    x_layout: str,
    w_layout: str,
    axes: dict[str, str],
    dtype: str = "float32",
) -> Case:
    """A case of x [m, k] and w [k, n] with these layouts; along the other axes of the mesh each
    device has some rows of x, and a w of its own."""
    m, k, n = sizes
    others = {axis: size for axis, size in parse_mesh(mesh).items() if axis not in axes.values()}
    first = layout_of(*others)
    args = {
        "x": ArraySpec((m, k), f"m{first}{x_layout[1:]}", dtype),
        "w": ArraySpec((math.prod(others.values()) * k, n), f"k{first}{w_layout[1:]}", dtype),
    }
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
