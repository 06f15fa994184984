"""An array that is split over two axes, in the layout with the axes swapped: an open challenge."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.collectives.common import ALL_BUT_ALL_REDUCE
from jaxpar.contracts.draws import axis_names, pick


def _swapped(case: Case, x: Array) -> list[Expected]:
    """The array [B, D] of each group of `rows` and `columns`, in its other blocks."""
    rows, columns = case.kwargs["rows"], case.kwargs["columns"]
    others = [axis for axis in case.sizes if axis not in (rows, columns)]
    n_rows, n_columns = case.sizes[rows], case.sizes[columns]
    groups = tuple(case.sizes[axis] for axis in others)
    array = x.reshape(*groups, -1, x.shape[1])
    b, d = array.shape[-2] // n_columns, array.shape[-1] // n_rows
    blocks = array.reshape(*groups, n_columns, b, n_rows, d)
    blocks = jnp.moveaxis(blocks, -2, -3)  # [*groups, n_columns, n_rows, b, d]
    whole = jnp.broadcast_to(
        array[..., None, None, :, :], (*groups, n_columns, n_rows, *array.shape[-2:])
    )
    names = [*others, columns, rows]
    order = [names.index(axis) for axis in case.sizes]
    dims = [*order, len(names), len(names) + 1]
    return [Expected(blocks.transpose(dims), whole=whole.transpose(dims))]


def _case(mesh: str, b: int, d: int, rows: str, columns: str, dtype: str = "float32") -> Case:
    """An array [b, d] for each group of `rows` and `columns`; other axes come before `rows`."""
    case = Case(mesh, {}, {"rows": rows, "columns": columns})
    before = "".join(f"_{axis}" for axis in case.sizes if axis not in (rows, columns))
    groups = int(np.prod([n for axis, n in case.sizes.items() if axis not in (rows, columns)]))
    draw = "large" if dtype == "int32" else "normal"
    x = ArraySpec((groups * b, d), f"b{before}_{rows} d_{columns}", dtype, draw)
    return Case(mesh, {"x": x}, case.kwargs)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """A third axis, an axis of one device, and another ratio of the two."""
    rows, columns, other = axis_names(rng, 3, besides=("dp", "cp", "fsdp", "tp"))
    k, alone = pick(rng, (5, 7, 11)), pick(rng, (5, 6, 7))
    return (
        _case(f"{other}=2,{rows}=3,{columns}=2", 12 * k, 6 * 13, rows, columns, "bfloat16"),
        _case(f"{rows}=4,{columns}=3", 12 * 3, 12 * k, rows, columns, "int32"),
        _case(f"{rows}=1,{columns}={alone}", alone * 9, alone * k, rows, columns),
    )


def _gathered_bytes(sizes: Sizes) -> float:
    return (sizes.n("rows") * sizes.n("columns") - 1) * sizes.bytes("x")


CONTRACT = Contract(
    kind="program",
    task="return this device's block of the array in the layout b_columns d_rows",
    reference=collectives.swap_layout,
    oracle=_swapped,
    challenge="wire_bytes",
    cases=(
        _case("fsdp=2,tp=4", 24, 40, "fsdp", "tp"),
        _case("dp=3,cp=2", 18, 30, "dp", "cp"),
    ),
    draw=_drawn,
    sharding=True,
    communication=Communication(
        "at most (n_rows*n_columns - 1) times x, as much as to gather the whole array; over either "
        "axis or both, by any collective",
        forward=((Limit(("all_reduce", *ALL_BUT_ALL_REDUCE), None, _gathered_bytes),),),
    ),
    errors=(
        BadCall(_case("fsdp=2,tp=4", 6, 8, "fsdp", "tp"), "n_columns does not divide dim 0"),
        BadCall(_case("dp=3,cp=2", 6, 8, "dp", "cp"), "n_rows does not divide dim 1"),
    ),
    tolerance=0,  # nothing is computed, so no bit may be lost on the way
    hints=(
        "All-gather over columns, then over rows: every device has the whole array, and takes its "
        "block. It passes. But of all that it receives, a device keeps one block.",
        "An all-to-all over columns makes b_rows_columns d of b_rows d_columns, and one over rows "
        "splits d again. Between the two, one permute over (rows, columns) puts the parts of dim 0 "
        "in their order: 2.25 times x in the first case, where gathering takes 7.",
        "Cut x into n_columns * n_rows pieces, each of which has one destination. In each round, "
        "every device sends one piece and receives one, by lax.ppermute over (rows, columns); what "
        "a device holds already needs no round.",
    ),
    minimal="It need not be the least. On a mesh of 2 by 4, some devices hold nothing of the block "
    "that they must return: they receive all of it, which is as large as x. So x is the least.",
    harder="In the first case a device can send 480 bytes. If tp is inside a node and fsdp between "
    "nodes, how many of these must go between nodes?",
)


def _whole(x: Array, rows: str, columns: str) -> Array:
    """The array [B, D], on every device."""
    n_rows, n_columns = lax.axis_size(rows), lax.axis_size(columns)
    if n_rows * x.shape[0] % n_columns or n_columns * x.shape[1] % n_rows:
        raise ValueError("the blocks do not divide the array")
    y = lax.all_gather(x, columns, axis=1, tiled=True)
    return lax.all_gather(y, rows, axis=0, tiled=True)


def _block(y: Array, over: tuple[str, str], at: tuple[str, str]) -> Array:
    """The block of y that is split over two axes, at the indices on two axes."""
    (b, d), (n, m) = y.shape, map(lax.axis_size, over)
    blocks = y[: b // n * n, : d // m * m].reshape(n, b // n, m, d // m)
    return blocks[lax.axis_index(at[0]), :, lax.axis_index(at[1])]


@wrong("values")
def same_block(x: Array, *, rows: str, columns: str) -> Array:
    """You return the block of the layout that x has already; in the new one, dim 0 is split over
    `columns`, and dim 1 over `rows`."""
    return _block(_whole(x, rows, columns), (rows, columns), (rows, columns))


@wrong("values")
def blocks_by_the_old_indices(x: Array, *, rows: str, columns: str) -> Array:
    """The blocks have the right size, but dim 0 is taken at the index on `rows`, and dim 1 at that
    on `columns`; it must be the other way round."""
    return _block(_whole(x, rows, columns), (columns, rows), (rows, columns))


@wrong("values")
def array_transposed(x: Array, *, rows: str, columns: str) -> Array:
    """You transpose the array; its layout changes, but element [i, j] stays element [i, j]."""
    return _block(_whole(x, rows, columns).T, (rows, columns), (rows, columns))


@wrong("values")
def parts_out_of_order(x: Array, *, rows: str, columns: str) -> Array:
    """Two all-to-alls bring each device the right columns, but of the rows every n_columns-th part;
    a permute between the two must put the parts in order."""
    _ = _whole(x, rows, columns)
    y = lax.all_to_all(x, columns, split_axis=0, concat_axis=1, tiled=True)
    return lax.all_to_all(y, rows, split_axis=1, concat_axis=0, tiled=True)


@wrong("sharding")
def whole_array(x: Array, *, rows: str, columns: str) -> Array:
    """Every device returns the whole array; it must return its own block."""
    return _whole(x, rows, columns)


@wrong("communication")
def sum_of_placed_blocks(x: Array, *, rows: str, columns: str) -> Array:
    """Each device puts its block into zeros, and all are summed: an all-reduce of the whole array
    sends twice what gathering does."""
    _, n_rows, n_columns = _whole(x, rows, columns), lax.axis_size(rows), lax.axis_size(columns)
    blocks = jnp.zeros((n_rows, x.shape[0], n_columns, x.shape[1]), x.dtype)
    placed = blocks.at[lax.axis_index(rows), :, lax.axis_index(columns)].set(x)
    y = lax.psum(placed, (rows, columns))
    return _block(y.reshape(n_rows * x.shape[0], -1), (columns, rows), (columns, rows))


@wrong("errors")
def remainder_dropped(x: Array, *, rows: str, columns: str) -> Array:
    """Where the blocks do not divide the array, its last rows or columns are left out without a
    word; raise ValueError."""
    y = lax.all_gather(x, columns, axis=1, tiled=True)
    y = lax.all_gather(y, rows, axis=0, tiled=True)
    return _block(y, (columns, rows), (columns, rows))
