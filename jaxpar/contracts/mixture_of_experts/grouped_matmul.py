"""A product in which each group of rows has a matrix of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import experts
from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.mixture_of_experts.common import in_groups, on_devices
from jaxpar.experts import grouped_matmul

Kind = Literal["some", "all", "one", "most"]


def group_sizes(drawn: Array, rows: int, kind: Kind) -> Array:
    """Sizes of groups, of which some may be 0, and some may have most rows.

    They are made from any integers [devices, e], for each device: [devices * e]. In "all" they are
    of all rows; in "some" about a third of the groups is empty, and rows are left over; in "one"
    the third group has all rows; in "most" every other group has one row, and the third the rest,
    so that no sizes need more blocks if the rest fills its last block with one row.
    """
    if kind in ("one", "most"):
        each = 0 * drawn + (kind == "most")
        rest = rows - each.sum(axis=1, keepdims=True) + each
        sizes = jnp.where(jnp.arange(drawn.shape[1])[None] == 2, rest, each)
        return sizes.astype(jnp.int32).reshape(-1)
    ends = jnp.sort(drawn[:, 1:] % (rows + 1), axis=1)
    ends = jnp.pad(ends, ((0, 0), (1, 1)), constant_values=((0, 0), (0, rows)))
    sizes = jnp.diff(ends, axis=1)
    if kind == "some":
        places = jnp.arange(drawn.shape[1])[None]
        sizes = jnp.where((drawn[:, :1] + places) % 3 > 0, sizes, 0)
    return sizes.astype(jnp.int32).reshape(-1)


def _case(
    mesh: str,
    t: int,
    d: int,
    f: int,
    *,
    e: int,
    block: int,
    kind: Kind = "some",
    dtype: str = "float32",
) -> Case:
    """Every device has rows, matrices and groups of its own."""
    devices, at = math.prod(parse_mesh(mesh).values()), all_axes(mesh)
    drawn = ArraySpec((devices, e), f"b_{at} e", "int32", "large")
    args = {
        "x": ArraySpec((devices * t, d), f"t_{at} d", dtype),
        "w": ArraySpec((devices * e, d, f), f"e_{at} d f", dtype),
        "sizes": Made(Function(f"{__name__}:group_sizes"), (drawn, t, kind)),
    }
    return Case(mesh, args, {"block": block})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """In bfloat16; an axis of one device, and blocks of more rows than there are; sizes that need
    most blocks; blocks of 1, and one group with all rows.
    """
    a, b, c = axis_names(rng, 3, besides=("ep", "dp", "tp"))
    d, f = pick(rng, range(50, 56)), pick(rng, range(42, 47))
    mesh = mesh_of(rng, **{a: 3, b: 2})
    return (
        _case(mesh, pick(rng, (70, 74)), d, f, e=10, block=3, dtype="bfloat16"),
        _case(f"{c}=1,{a}=2", pick(rng, (61, 63)), 7, 9, e=9, block=64, kind="all"),
        _case(f"{b}=2", pick(rng, (36, 41)), 11, 13, e=6, block=5, kind="most"),
        _case(f"{a}=2", 17, 8, 6, e=4, block=1, kind="one"),
    )


def _by_owner(case: Case, x: Array, w: Array, sizes: Array) -> list[Expected]:
    """On each device every row times every matrix, of which each row keeps its own, or 0."""

    def of_device(x: Array, w: Array, sizes: Array) -> Array:
        (x,), (w,), (sizes,) = x, w, sizes
        last, row = jnp.cumsum(sizes)[None], jnp.arange(len(x))[:, None]
        mine = (row < last) & (row >= last - sizes[None])
        return jnp.einsum("td,edf,te->tf", x, w, mine.astype(x.dtype))[None]

    blocks = (in_groups(case, (), given) for given in (x, w, sizes))
    return [Expected(on_devices(case, (), jax.vmap(of_device)(*blocks)))]


CONTRACT = Contract(
    kind="program",
    task="multiply each group of rows by its own matrix, in blocks; `skip` is not judged",
    reference=experts.grouped_matmul,
    oracle=_by_owner,
    cases=(
        _case("ep=4", t=100, d=48, f=40, e=8, block=4),
        _case("dp=2,tp=3", t=45, d=20, f=30, e=5, block=6, kind="all"),
    ),
    draw=_drawn,
    gradient=("x", "w"),
    communication=Communication("nothing is sent", forward=((),)),
    memory=MemoryLimit(
        "no matrix is copied for a row or for a block: at most twice the library's bytes of "
        "intermediate results, forward",
        multiple=2.0,
    ),
    flops=FlopsLimit(
        "each row is multiplied by one matrix, and groups are padded to full blocks: at most 1.25 "
        "times the library's flops, and as many products; a gradient may compute the forward pass "
        "again",
        multiple=1.25,
        programs=("forward", "gradient"),
        may_recompute=True,
        large=True,
    ),
    errors=(BadCall(_case("ep=4", t=100, d=48, f=40, e=8, block=0), "block = 0"),),
    hints=(
        "Sizes are known only when the program runs, shapes must be known before. Pad every group "
        "to full blocks: then a block has one matrix, and there are at most t // block + e blocks, "
        "whatever the sizes.",
        "-(-sizes // block) are the blocks of each group. The owner of block i is the number of "
        "groups that end at or before it: jnp.searchsorted(jnp.cumsum(blocks), i, side='right'). "
        "In the same way rows find their group, and with it their place among the blocks.",
        "x.at[places].set(rows, mode='drop') fills the blocks; lax.map or lax.fori_loop multiplies "
        "one block after the other by w[owner]; y.at[places].get(mode='fill', fill_value=0) reads "
        "the rows back, and gives 0 to those in no group.",
    ),
    minimal="Each row is multiplied by one matrix. What is padded costs at most one block for each "
    "group; with sizes that are known only at run time, shapes leave no other way.",
    harder="Write the gradient by jax.custom_vjp, so that no matrix is kept for each block: that "
    "of w adds up the products of a group's blocks. Then sum them in float32.",
)


Owners = Callable[[Array, Array], Array]  # from where groups end, in blocks, and the blocks


def _grouped(
    x: Array,
    w: Array,
    sizes: Array,
    block: int,
    *,
    owners: Owners,
    apart: bool = True,
) -> Array:
    """An answer with any owners of blocks, and with groups that begin at blocks or do not."""
    e, most = len(w), len(x) // block + len(w)
    full = -(-sizes // block)
    ends, row = jnp.cumsum(full), jnp.arange(len(x))
    owner = owners(ends, jnp.arange(most))
    last = jnp.cumsum(sizes)
    group = jnp.searchsorted(last, row, side="right")
    own = jnp.minimum(group, e - 1)
    place = ((ends - full) * block - (last - sizes))[own] + row if apart else row
    place = jnp.where(group < e, place, most * block)
    filled = jnp.zeros_like(x, shape=(most * block, x.shape[1])).at[place].set(x, mode="drop")
    blocks = filled.reshape(most, block, -1)
    y = lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner)).reshape(most * block, -1)
    return y.at[place].get(mode="fill", fill_value=0)


def _owner_of_rows(x: Array, sizes: Array) -> Array:
    """The group of each row; the number of groups for rows in none."""
    return jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(len(x)), side="right")


@wrong("values")
def first_matrix_for_all(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """All rows are multiplied by the first matrix; that of a block is w[owner]."""
    return _grouped(x, w, sizes, block, owners=lambda ends, i: 0 * i)


@wrong("values")
def equal_groups(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The rows are cut into equal groups; `sizes` says where each ends."""
    equal = jnp.diff(jnp.arange(len(w) + 1) * len(x) // len(w)) + 0 * sizes
    return grouped_matmul(x, w, equal, block=block)


@wrong("values")
def not_padded(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """Groups are not padded, so that a block with rows of two groups multiplies both by one
    matrix; begin each group at a new block."""
    last = jnp.cumsum(sizes)
    owner = lambda ends, i: jnp.searchsorted(last, i * block, side="right")  # noqa: E731
    return _grouped(x, w, sizes, block, owners=owner, apart=False)


@wrong("values")
def empty_groups_left_out(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """An empty group is not counted, so that the groups after it get the matrix before theirs; an
    empty group has no block, but a matrix."""
    nonempty = jnp.cumsum(sizes > 0) - 1

    def owners(ends: Array, i: Array) -> Array:
        return nonempty.at[jnp.searchsorted(ends, i, side="right")].get(mode="clip")

    return _grouped(x, w, sizes, block, owners=owners)


@wrong("values")
def matrix_of_the_group_before(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The first block of a group gets the matrix of the group before it; a group ends before the
    block at which the next one begins, so search with side="right"."""
    left = lambda ends, i: jnp.searchsorted(ends, i, side="left")  # noqa: E731
    return _grouped(x, w, sizes, block, owners=left)


@wrong("values")
def floor_of_blocks(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The rest of a group that fills no block has none; round the number of blocks up: -(-sizes //
    block)."""
    kept = sizes // block * block
    start, row = jnp.cumsum(sizes) - sizes, jnp.arange(len(x))
    owner = jnp.minimum(_owner_of_rows(x, sizes), len(w) - 1)
    whole = row - start[owner] < kept[owner]
    return jnp.where(whole[:, None], grouped_matmul(x, w, sizes, block=block), 0)


@wrong("values")
def blocks_for_rests_of_half_a_block(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """There are blocks for the rests of an average case; where many groups have a row or two, the
    last ones find none. There can be as many rests as groups: t // block + e blocks."""
    _check(block)
    most, full = -(-len(x) // block) + len(w) // 2, -(-sizes // block)
    start, ends, row = jnp.cumsum(sizes) - sizes, jnp.cumsum(full), jnp.arange(len(x))
    owner = jnp.minimum(_owner_of_rows(x, sizes), len(w) - 1)
    own_block = (ends - full)[owner] + (row - start[owner]) // block
    y = grouped_matmul(x, w, sizes, block=block)
    return jnp.where((own_block < most)[:, None], y, 0)


@wrong("values")
def rows_past_the_groups(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """Rows after the last group are multiplied by the last matrix; they are in no group, and give
    0."""
    rest = len(x) - sizes.sum()
    sizes = sizes.at[-1].add(rest)
    return grouped_matmul(x, w, sizes, block=block)


@wrong("values")
def blocks_not_read_back(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The rows of the result are those of the blocks, with the padding; read them at the places
    where the rows of x were put."""
    last, full = jnp.cumsum(sizes), -(-sizes // block)
    owner = jnp.minimum(_owner_of_rows(x, sizes), len(w) - 1)
    place = jnp.arange(len(x)) + ((jnp.cumsum(full) - full) * block - (last - sizes))[owner]
    y = grouped_matmul(x, w, sizes, block=block)
    filled = jnp.zeros_like(y, shape=((len(x) // block + len(w)) * block, y.shape[1]))
    return filled.at[place].set(y, mode="drop")[: len(x)]


@wrong("values")
def grouped_in_float32(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The result is in float32; return the dtype of the product of x and w."""
    return grouped_matmul(x, w, sizes, block=block).astype(jnp.float32)


@wrong("gradient")
def gradient_overwritten(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The gradient of w has that of the last block of each group only; add up those of all its
    blocks: dw.at[owner].add(...)."""
    owner = _owner_of_rows(x, sizes)
    row = jnp.arange(len(x))
    start = (jnp.cumsum(sizes) - sizes).at[owner].get(mode="fill", fill_value=0)
    count = sizes.at[owner].get(mode="fill", fill_value=0)
    last = (row - start) // block == (count - 1) // block
    fixed = grouped_matmul(x, lax.stop_gradient(w), sizes, block=block)
    rows = lax.stop_gradient(jnp.where(last[:, None], x, 0))
    learning = grouped_matmul(rows, w - lax.stop_gradient(w), sizes, block=block)
    return fixed + learning


@wrong("gradient")
def gradient_of_x_alone(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """w has no gradient; that of a matrix is the sum over its rows of x times the gradient of y."""
    return grouped_matmul(x, lax.stop_gradient(w), sizes, block=block)


@wrong("memory")
def matrix_for_each_row(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """A matrix is copied for each row; put rows of one group into blocks, so that a product reads
    its matrix once."""
    owner = _owner_of_rows(x, sizes)
    each = w.at[owner].get(mode="fill", fill_value=0)
    _check(block)
    return jnp.einsum("td,tdf->tf", x, each)


@wrong("memory")
def matrix_for_each_block(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """The matrices of all blocks are copied at once; multiply one block after the other, by lax.map
    or lax.fori_loop."""
    _check(block)
    most, last = len(x) // block + len(w), jnp.cumsum(sizes)
    full = -(-sizes // block)
    ends, group = jnp.cumsum(full), _owner_of_rows(x, sizes)
    moved = ((ends - full) * block - (last - sizes)).at[group].get(mode="fill", fill_value=0)
    place = jnp.where(group < len(w), jnp.arange(len(x)) + moved, most * block)
    filled = jnp.zeros_like(x, shape=(most * block, x.shape[1])).at[place].set(x, mode="drop")
    owner = jnp.searchsorted(ends, jnp.arange(most), side="right")
    matrices = w.at[owner].get(mode="fill", fill_value=0)
    y = jnp.einsum("btd,bdf->btf", filled.reshape(most, block, -1), matrices)
    return y.reshape(most * block, -1).at[place].get(mode="fill", fill_value=0)


@wrong("memory")
def ragged_dot_of_cpus(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """lax.ragged_dot multiplies all rows by all matrices where it has no kernel, as on CPUs;
    multiply block by block."""
    _check(block)
    return lax.ragged_dot(x, w, sizes)


@wrong("memory")
def all_rows_by_all_matrices(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """All rows are multiplied by all matrices, and a mask keeps what is wanted: e times the work;
    multiply each block by its own matrix."""
    _check(block)
    mine = jax.nn.one_hot(_owner_of_rows(x, sizes), len(w), axis=0, dtype=x.dtype)
    y = jnp.zeros_like(x, shape=(len(x), w.shape[2]))
    for matrix, of_group in zip(w, mine, strict=True):
        y += (x * of_group[:, None]) @ matrix
    return y


@wrong("flops")
def every_group_to_all_rows(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """Every group has as many rows as there are in all, in case it has them; in blocks, the groups
    share that room."""
    _check(block)
    row, last = jnp.arange(len(x)), jnp.cumsum(sizes)

    def of_group(y: Array, given: tuple[Array, Array, Array]) -> tuple[Array, None]:
        matrix, start, end = given
        mine = ((row >= start) & (row < end))[:, None]
        return y + jnp.where(mine, x, 0) @ matrix, None

    zeros = jnp.zeros_like(x @ w[0])
    return lax.scan(of_group, zeros, (w, last - sizes, last))[0]


@wrong("flops")
def row_by_row(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """Rows are multiplied one by one, so that a matrix is read for each of them; multiply `block`
    rows at once."""
    _check(block)
    owner = _owner_of_rows(x, sizes)

    def multiply(row_and_owner: tuple[Array, Array]) -> Array:
        row, i = row_and_owner
        return row @ w.at[i].get(mode="clip")

    y = lax.map(multiply, (x, owner))
    return jnp.where((owner < len(w))[:, None], y, 0)


@wrong("flops")
def blocks_in_use_alone(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """How many blocks are multiplied is known only when the program runs, so that nobody can count
    them before; multiply as many as there can be at most."""
    return grouped_matmul(x, w, sizes, block=block, skip=True)


@wrong("errors")
def any_block(x: Array, w: Array, sizes: Array, *, block: int) -> Array:
    """Raise ValueError where `block` is below 1."""
    return grouped_matmul(x, w, sizes, block=max(block, 1))


def _check(block: int) -> None:
    if block < 1:
        raise ValueError(f"block is {block}")
