"""Rows of an embedding table whose vocabulary is split over the devices."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import axis_first
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, pick
from jaxpar.contracts.steps import among_zeros, enter, gathered
from jaxpar.contracts.vocabulary_and_sequence.common import (
    other_sizes,
    own_rows,
    own_tokens,
    rows_or_zeros,
)
from jaxpar.parallel import vocabulary

ID_BYTES = 4


def _embedded(case: Case, ids: Array, table: Array) -> list[Expected]:
    """Each part of the batch has a table of its own, for the table varies over all axes.

    Were it equal on some, an answer's gradient could be summed over them at a place of its choice.
    """

    def rows(ids: Array, table: Array) -> Array:
        return rows_or_zeros(table, ids, (ids >= 0) & (ids < len(table)))

    parts = math.prod(other_sizes(case))
    tables = _tables(case, table)
    each = ids.reshape(parts, -1, *ids.shape[1:]) if ids.ndim else jnp.broadcast_to(ids, parts)
    y = jax.vmap(rows)(each, tables.reshape(parts, *tables.shape[-2:]))
    y = y.reshape(*other_sizes(case), *y.shape[1:])
    return [Expected(jnp.broadcast_to(y, (*case.sizes.values(), *y.shape[len(case.sizes) :])))]


def _tables(case: Case, table: Array) -> Array:
    """The whole table of each part of the batch: [*sizes of the other axes, n * v, d]."""
    shards = jnp.moveaxis(axis_first(case, table), 0, -3)
    return shards.reshape(*shards.shape[:-3], -1, shards.shape[-1])


def _case(mesh: str, axis: str, shape: tuple[int, ...], layout: str, table: ArraySpec) -> Case:
    """A case of ids with this shape and layout."""
    args = {"ids": ArraySpec(shape, layout, "int32", "around"), "table": table}
    return Case(mesh, args, {"axis": axis})


def drawn_ids(drawn: Array, count: int) -> Array:
    """From any integers, ids from -50 to `count` + 49, and some that 16 bits take for such."""
    near = drawn % (count + 100) - 50
    return jnp.where(drawn % 3 == 0, near + 2**16, near)


def last_ids(drawn: Array, count: int) -> Array:
    """As `drawn_ids`, but the first two are of the last rows; above 2,048 float16 holds only one.

    All devices must hold the same ids.
    """
    ids = drawn_ids(drawn, count)
    return ids.ravel().at[:2].set(jnp.array([count - 1, count - 2], ids.dtype)).reshape(ids.shape)


def _drawn_case(
    mesh: str,
    axis: str,
    shape: tuple[int, ...],
    layout: str,
    v: int,
    d: int,
    dtype: str,
    ids_of: str = "drawn_ids",
) -> Case:
    """A case of ids with this shape and layout, and of tables with v rows on each device."""
    drawn = ArraySpec(shape, layout, "int32", "large")
    table = ArraySpec((math.prod(parse_mesh(mesh).values()) * v, d), f"v_{all_axes(mesh)} d", dtype)
    count = parse_mesh(mesh)[axis] * v
    ids = Made(Function(f"{__name__}:{ids_of}"), (drawn, count))
    return Case(mesh, {"ids": ids, "table": table}, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    n, k, v, d = (pick(rng, sizes) for sizes in ((11, 12), (20, 21), range(190, 200), (203, 207)))
    alone = f"{axis}=1,{other}=2"
    return (
        # More rows than float16 can count. In bfloat16 so many elements could not be told from 0.
        _drawn_case(f"{axis}={n}", axis, (2, 5, k), "b t k", v, d, "float32", "last_ids"),
        _drawn_case(alone, axis, (2 * pick(rng, (20, 21)),), f"b_{other}", 30, 20, "bfloat16"),
        _drawn_case(f"{other}=3,{axis}=4", axis, (), "", 5, pick(rng, (9, 10)), "float16"),
    )


def _all_reduce_of_rows(sizes: Sizes) -> float:
    """Wire bytes of one all-reduce of a row of the table for each id, padded to n chunks."""
    rows = sizes.bytes("ids") // ID_BYTES
    table = sizes.case.args["table"]
    itemsize = jnp.dtype(table.dtype).itemsize
    return 2 * (sizes.n() - 1) * math.ceil(rows * table.shape[1] / sizes.n()) * itemsize


CONTRACT = Contract(
    kind="program",
    task="return the row of each id on every device, zeros for an id that no device has",
    reference=vocabulary.vocab_parallel_embedding,
    oracle=_embedded,
    cases=(
        _case("tp=8", "tp", (2, 12), "b t", ArraySpec((8 * 16, 24), "v_tp d")),
        _case(
            "dp=2,tpx=3",
            "tpx",
            (2 * 150,),
            "b_dp",
            ArraySpec((6 * 34, 32), "v_dp_tpx d", "bfloat16"),
        ),
    ),
    draw=_drawn,
    gradient=("table",),
    communication=Communication(
        "one all-reduce of the result, backward nothing",
        forward=((Limit(("all_reduce",), "axis", _all_reduce_of_rows),),),
    ),
    memory=MemoryLimit(
        "never as much as the whole table: at most 2.5 times the library's bytes of intermediate "
        "results, forward and backward",
        multiple=2.5,
        programs=("forward", "gradient"),
    ),
    hints=(
        "Each id is a row of one device at most. If all others have zeros there, a sum over the "
        "devices is the row.",
        "Row r of device i is token i * v + r, with v = len(table). A device has an id if r = id - "
        "i * v is at least 0 and less than v.",
        "Look up jnp.where(mine, r, 0), so that no index is out of range, put zeros where "
        "`mine` is false, and lax.psum over the axis.",
    ),
    minimal="A device that does not have the row of an id must receive it from the one that does: "
    "each element of the result is summed over the devices once, which is one all-reduce.",
    harder="Return this device's positions only, by a reduce-scatter: half the bytes, and what "
    "sequence parallelism needs.",
)


@wrong("values")
def embedding_no_offset(ids: Array, table: Array, *, axis: str) -> Array:
    """Every device looks ids up in its part as if it began at token 0; subtract
    lax.axis_index(axis) * len(table) from them."""
    return lax.psum(rows_or_zeros(table, ids, (ids >= 0) & (ids < len(table))), axis)


@wrong("values")
def embedding_ids_not_masked(ids: Array, table: Array, *, axis: str) -> Array:
    """Ids of other devices are looked up, too: JAX counts a negative index from the end and clips
    one that is too large; put zeros there before the sum."""
    row, _ = own_tokens(ids, len(table), axis)
    return lax.psum(table[row], axis)


@wrong("values")
def embedding_clipped_not_masked(ids: Array, table: Array, *, axis: str) -> Array:
    """Ids of other devices are clipped, and add this device's first or last row; put zeros there
    before the sum."""
    row, _ = own_tokens(ids, len(table), axis)
    return lax.psum(table[jnp.clip(row, 0, len(table) - 1)], axis)


@wrong("values")
def embedding_nan_times_zero(ids: Array, table: Array, *, axis: str) -> Array:
    """jnp.take gives NaN for an index out of range, and NaN times 0 is NaN; put zeros there with
    jnp.where."""
    row, mine = own_tokens(ids, len(table), axis)
    return lax.psum(jnp.take(table, row, axis=0) * mine[..., None].astype(table.dtype), axis)


@wrong("values")
def embedding_others_hit_row_0(ids: Array, table: Array, *, axis: str) -> Array:
    """Ids of other devices look up row 0, which is right, but row 0 goes into the sum; put zeros
    there with jnp.where."""
    row, mine = own_tokens(ids, len(table), axis)
    return lax.psum(table[jnp.where(mine, row, 0)], axis)


@wrong("values")
def embedding_only_above_masked(ids: Array, table: Array, *, axis: str) -> Array:
    """Ids below this device's first one are looked up, too: a negative index counts from the end;
    ask for 0 <= id as well."""
    row, _ = own_tokens(ids, len(table), axis)
    return lax.psum(jnp.where((row < len(table))[..., None], table[row], 0), axis)


@wrong("values")
def embedding_one_row_too_many(ids: Array, table: Array, *, axis: str) -> Array:
    """The first id of the next device counts as this device's last; ask for id < len(table), not
    <=."""
    row, _ = own_tokens(ids, len(table), axis)
    return lax.psum(rows_or_zeros(table, row, (row >= 0) & (row <= len(table))), axis)


@wrong("values")
def embedding_outside_clipped(ids: Array, table: Array, *, axis: str) -> Array:
    """An id that no device has is clipped to the first or the last token; it must get zeros."""
    last = lax.axis_size(axis) * len(table) - 1
    return lax.psum(own_rows(jnp.clip(ids, 0, last), table, axis), axis)


@wrong("values")
def embedding_outside_hits_row_0(ids: Array, table: Array, *, axis: str) -> Array:
    """An id that no device has gets the row of token 0; it must get zeros."""
    v = lax.axis_size(axis) * len(table)
    return lax.psum(own_rows(jnp.where((ids >= 0) & (ids < v), ids, 0), table, axis), axis)


@wrong("values")
def embedding_rows_dealt_out(ids: Array, table: Array, *, axis: str) -> Array:
    """The tokens are taken to be dealt out in turn, an id to device id % n; the rows are split into
    blocks: device i has ids i * v to (i + 1) * v - 1."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    mine = (ids % n == i) & (ids >= 0) & (ids < n * len(table))
    return lax.psum(rows_or_zeros(table, ids // n, mine), axis)


@wrong("values")
def embedding_not_summed(ids: Array, table: Array, *, axis: str) -> Array:
    """Each device returns its own rows only; sum over the devices."""
    return own_rows(ids, table, axis)


@wrong("values")
def embedding_averaged(ids: Array, table: Array, *, axis: str) -> Array:
    """The rows are averaged over the devices; only one device has each, so sum them."""
    return lax.pmean(own_rows(ids, table, axis), axis)


@wrong("values")
def embedding_summed_twice(ids: Array, table: Array, *, axis: str) -> Array:
    """The sum is summed again, and is n times too large."""
    once = lax.psum(own_rows(ids, table, axis), axis)
    return lax.psum(enter(once, axis), axis)


@wrong("values")
def embedding_of_short_ids(ids: Array, table: Array, *, axis: str) -> Array:
    """The ids lose digits in a short type, such as int16 or bfloat16, which has none for numbers so
    large; keep them as they are."""
    return lax.psum(own_rows(ids.astype(jnp.int16).astype(jnp.int32), table, axis), axis)


@wrong("gradient")
def embedding_cuts_gradient(ids: Array, table: Array, *, axis: str) -> Array:
    """No gradient reaches the table; leave lax.stop_gradient out."""
    return lax.psum(own_rows(ids, lax.stop_gradient(table), axis), axis)


def _zeros_outside(ids: Array, whole: Array) -> Array:
    """Rows of a whole table; zeros for an id that is not in it."""
    ids = jnp.where(ids < 0, len(whole), ids)
    return whole.at[ids].get(mode="fill", fill_value=0)


@wrong("communication")
def embedding_gathers_table(ids: Array, table: Array, *, axis: str) -> Array:
    """The whole table is gathered; send the rows that are asked for only, by a sum of them over the
    devices."""
    return _zeros_outside(ids, gathered(table, axis))


@wrong("communication")
def embedding_gathers_parts(ids: Array, table: Array, *, axis: str) -> Array:
    """Every device's part of the result is gathered and then summed: n/2 times the bytes of
    lax.psum."""
    return lax.all_gather(own_rows(ids, table, axis), axis).sum(axis=0)


@wrong("communication")
def embedding_mean_at_the_end(ids: Array, table: Array, *, axis: str) -> Array:
    """After the sum all devices have the result already; a mean over them sends it once more."""
    once = lax.psum(own_rows(ids, table, axis), axis)
    return lax.pmean(enter(once, axis), axis)


@wrong("communication")
def embedding_sums_in_float32(ids: Array, table: Array, *, axis: str) -> Array:
    """The sum goes over the wire in float32, twice the bytes; only one device has more than a zero,
    so nothing is lost in bfloat16."""
    part = own_rows(ids, table, axis)
    return lax.psum(part.astype(jnp.float32), axis).astype(table.dtype)


@wrong("memory")
def embedding_whole_table_of_zeros(ids: Array, table: Array, *, axis: str) -> Array:
    """Each device makes a table of the whole vocabulary, zeros but for its rows; take the ids
    relative to its first row instead."""
    return lax.psum(_zeros_outside(ids, among_zeros(table, axis)), axis)


@wrong("memory")
def embedding_whole_one_hot(ids: Array, table: Array, *, axis: str) -> Array:
    """Each device makes a one-hot vector of the whole vocabulary for each id; its own tokens are
    enough."""
    v = lax.axis_size(axis) * len(table)
    return lax.psum(jax.nn.one_hot(ids, v, dtype=table.dtype) @ among_zeros(table, axis), axis)
