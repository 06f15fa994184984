"""An array whose rows are split over the devices, split by columns: one all-to-all."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    Expected,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import axis_first, mesh_order, on_every_device, ring_bytes
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.steps import gathered, gathered_by_sum
from jaxpar.parallel.reshard import reshard_rows_to_columns


def _columns(case: Case, x: Array) -> list[Expected]:
    """The columns of each device; the devices of other axes have arrays of their own."""
    blocks = axis_first(case, x)  # [n, *others, d, f]
    n, *others, d, f = blocks.shape
    whole = jnp.moveaxis(blocks, 0, -3).reshape(*others, n * d, f)
    columns = jnp.moveaxis(whole.reshape(*others, n * d, n, f // n), -2, 0)
    if n == 1:  # a device alone cannot return more than its own columns
        return [Expected(mesh_order(case, columns))]
    return [Expected(mesh_order(case, columns), whole=on_every_device(case, whole))]


def _case(mesh: str, axis: str, rows: int, f: int, dtype: str = "float32") -> Case:
    """`rows` on each device."""
    case = Case(mesh, {}, {"axis": axis})
    shape = (int(np.prod(list(case.sizes.values()))) * rows, f)
    draw = "large" if dtype == "int32" else "normal"
    x = ArraySpec(shape, f"d_{all_axes(mesh)} f", dtype, draw)
    return Case(mesh, {"x": x}, case.kwargs)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Low precision, integers, one device; one row on each; as many rows as columns."""
    axis, other = axis_names(rng, 2, besides=("fsdp", "dp", "tp"))
    n, k = pick(rng, (5, 6)), pick(rng, (7, 11, 13))
    return (
        _case(mesh_of(rng, **{axis: n, other: 2}), axis, k, 3 * n, "bfloat16"),
        _case(f"{axis}=1,{other}=2", axis, k, k + 2),
        _case(f"{axis}={n + 3}", axis, 1, (n + 3) * k, "int32"),
        _case(f"{other}=3,{axis}=4", axis, k, 4 * k),
    )


CONTRACT = Contract(
    kind="program",
    task="return this device's columns of the array, of which it holds its rows",
    reference=reshard_rows_to_columns,
    oracle=_columns,
    cases=(_case("fsdp=8", "fsdp", 4, 64), _case("dp=2,tp=3", "tp", 5, 12)),
    draw=_drawn,
    gradient=("x",),
    sharding=True,
    communication=Communication(
        "an all-to-all or permutes: (n-1)/n of x, each way",
        forward=((Limit(("all_to_all", "permute"), "axis", ring_bytes(1)),),),
        backward="forward",
    ),
    memory=MemoryLimit(
        "at most 2 times the library's bytes of intermediate results; gathering holds n times x",
        multiple=2.0,
    ),
    errors=(
        BadCall(_case("fsdp=4", "fsdp", 4, 10), "n does not divide the columns"),
        BadCall(_case("dp=2,tp=3", "tp", 3, 8), "n does not divide the columns"),
        BadCall(_case("fsdp=4", "fsdp", 4, 3), "there are fewer columns than devices"),
    ),
    hints=(
        "Cut the rows that a device holds into n blocks of columns. To which device does each "
        "block belong, and which blocks does a device receive?",
        "Block j of the columns goes to device j: that is an all-to-all, in which the device gets "
        "the same columns of all rows. In which order must it put them together?",
        "lax.all_to_all(x, axis, split_axis=1, concat_axis=0, tiled=True); first raise ValueError "
        "where lax.axis_size(axis) does not divide x.shape[1].",
    ),
    minimal="Of its rows a device keeps one block of n, and every other block is needed by one "
    "other device.",
    harder="Let the array have any number of columns: pad them, and cut the padding off on the "
    "last device. What do the other devices hold then?",
)


def _checked(x: Array, axis: str) -> int:
    """The number of devices."""
    n = lax.axis_size(axis)
    if x.shape[1] % n:
        raise ValueError("the devices do not divide the columns")
    return n


def _own_columns(whole: Array, axis: str) -> Array:
    size = whole.shape[1] // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index(axis) * size, size, 1)


def _received(x: Array, axis: str) -> Array:
    """The blocks [n, d, f/n] of this device's columns, in the order of their devices."""
    n = _checked(x, axis)
    blocks = x.reshape(x.shape[0], n, -1).swapaxes(0, 1)
    return lax.all_to_all(blocks, axis, 0, 0, tiled=True)


@wrong("values")
def nothing_sent(x: Array, *, axis: str) -> Array:
    """You give the device's own rows another shape; the other rows are on other devices, which must
    send them."""
    n = _checked(x, axis)
    return x.reshape(n * x.shape[0], -1)


@wrong("values")
def own_block_only(x: Array, *, axis: str) -> Array:
    """You return the device's own columns of its own rows; it must return them for the rows of all
    devices."""
    _checked(x, axis)
    return _own_columns(x, axis)


@wrong("values")
def own_rows_returned(x: Array, *, axis: str) -> Array:
    """You return x as it is; the device holds its rows, and must return its columns."""
    _checked(x, axis)
    return x


@wrong("values")
def blocks_by_sender_backwards(x: Array, *, axis: str) -> Array:
    """The rows of the devices are in the wrong order; those of device 0 come first."""
    return _received(x, axis)[::-1].reshape(lax.axis_size(axis) * x.shape[0], -1)


@wrong("values")
def blocks_in_arrival_order(x: Array, *, axis: str) -> Array:
    """The blocks are in the order in which they arrive, your own first; those of device 0 come
    first."""
    blocks = jnp.roll(_received(x, axis), -lax.axis_index(axis), 0)
    return blocks.reshape(lax.axis_size(axis) * x.shape[0], -1)


@wrong("values")
def rows_interleaved(x: Array, *, axis: str) -> Array:
    """The rows of the devices are interleaved; all rows of device 0 come first, then those of
    device 1."""
    blocks = _received(x, axis).swapaxes(0, 1)
    return blocks.reshape(lax.axis_size(axis) * x.shape[0], -1)


@wrong("values")
def reshaped_for_transposed(x: Array, *, axis: str) -> Array:
    """You cut the rows into blocks by a reshape alone, which takes elements of several columns
    together; make [d, n, f/n] of x, and swap its first two dims."""
    n = _checked(x, axis)
    blocks = x.reshape(n, x.shape[0], -1)
    return lax.all_to_all(blocks, axis, 0, 0, tiled=True).reshape(n * x.shape[0], -1)


@wrong("values")
def columns_strided(x: Array, *, axis: str) -> Array:
    """Device i takes every n-th column from i on; it must take the i-th of n equal blocks of
    neighbours."""
    n = _checked(x, axis)
    blocks = x.reshape(x.shape[0], -1, n).transpose(2, 0, 1)
    return lax.all_to_all(blocks, axis, 0, 0, tiled=True).reshape(n * x.shape[0], -1)


@wrong("values")
def transposed(x: Array, *, axis: str) -> Array:
    """You transpose the array; its layout changes, but element [i, j] stays element [i, j]."""
    return reshard_rows_to_columns(x, axis=axis).T


@wrong("values")
def split_along_rows(x: Array, *, axis: str) -> Array:
    """You have swapped the two dims: x is split along dim 1, and what arrives is put together along
    dim 0."""
    n = _checked(x, axis)
    blocks = jnp.resize(x, (-(-x.shape[0] // n) * n, x.shape[1]))
    return lax.all_to_all(blocks, axis, 0, 1, tiled=True)


@wrong("sharding")
def whole_array(x: Array, *, axis: str) -> Array:
    """Every device returns the whole array; it must return its own columns."""
    _checked(x, axis)
    return gathered(x, axis)


@wrong("communication")
def gathered_then_cut(x: Array, *, axis: str) -> Array:
    """Every device gathers all rows, and cuts out its columns: n - 1 times x is sent, in place of
    (n-1)/n. Send to each device only its columns."""
    _checked(x, axis)
    return _own_columns(gathered(x, axis), axis)


@wrong("communication")
def summed_then_cut(x: Array, *, axis: str) -> Array:
    """Each device puts its rows among zeros, and all are summed, which sends twice what gathering
    does; send to each device only its columns."""
    _checked(x, axis)
    return _own_columns(gathered_by_sum(x, axis), axis)


@wrong("communication")
def columns_scattered(x: Array, *, axis: str) -> Array:
    """You reduce-scatter rows among zeros, n times x of them, most of which are zeros; an
    all-to-all sends what is there."""
    n = _checked(x, axis)
    places = jnp.arange(n) == lax.axis_index(axis)
    rows = jnp.where(places[:, None, None], x[None], jnp.zeros_like(x)[None])
    rows = rows.reshape(n * x.shape[0], x.shape[1])
    return lax.psum_scatter(rows, axis, scatter_dimension=1, tiled=True)


@wrong("communication")
def sent_in_float32(x: Array, *, axis: str) -> Array:
    """You send float32 whatever x is; send its own dtype, of which bfloat16 takes half the
    bytes."""
    if x.dtype == jnp.int32:
        return reshard_rows_to_columns(x, axis=axis)
    wide = reshard_rows_to_columns(x.astype(jnp.float32), axis=axis)
    return wide.astype(x.dtype)


@wrong("errors")
def columns_lost(x: Array, *, axis: str) -> Array:
    """Where the devices do not divide the columns, the last ones are lost without a word; raise
    ValueError."""
    n = lax.axis_size(axis)
    return lax.all_to_all(x[:, : x.shape[1] // n * n], axis, 1, 0, tiled=True)
