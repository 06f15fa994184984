"""The dim along which ZeRO shards a leaf that other axes may split already."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxpar.axes import AXES, parse_mesh
from jaxpar.collectives.leaves import sharded_dim
from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.draws import pick
from jaxpar.mesh import parse_layout

Axes = tuple[str, ...]
Shape = tuple[int, ...]
Splits = tuple[Axes, ...]
Sizes = dict[str, int]  # devices on each mesh axis
Found = tuple[int | None, Axes]


def _most_axes(shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool) -> Found:
    """Of the dims that the most axes divide, the first."""
    over, local = _taking_part(splits, sizes, axes), _local(shape, splits, sizes)
    best: tuple[int, int | None] = 0, None
    for dim in range(int(stacked), len(shape)):
        counts = [k for k in range(len(over), 0, -1) if _divide(over[-k:], local[dim], sizes)]
        if counts and counts[0] > best[0]:
            best = counts[0], dim
    count, dim = best
    return dim, over[len(over) - count :]


def _taking_part(splits: Splits, sizes: Sizes, axes: Axes) -> Axes:
    """The axes with several devices that split no dim."""
    return tuple(axis for axis in _several(sizes, axes) if not any(axis in s for s in splits))


def _several(sizes: Sizes, axes: Axes) -> Axes:
    return tuple(axis for axis in axes if sizes[axis] > 1)


def _devices(axes: Axes, sizes: Sizes) -> int:
    return math.prod(sizes[axis] for axis in axes)


def _local(shape: Shape, splits: Splits, sizes: Sizes) -> Shape:
    return tuple(size // _devices(split, sizes) for size, split in zip(shape, splits, strict=True))


def _divide(over: Axes, size: int, sizes: Sizes) -> bool:
    return size > 0 and size % _devices(over, sizes) == 0


def _call(shape: Shape, layout: str, mesh: str, axes: str) -> Call:
    """A call on a leaf of this layout; a leaf is stacked if its first dim is l."""
    splits = tuple(axes for _, axes in parse_layout(layout))
    return (shape, splits, parse_mesh(mesh), tuple(axes.split())), {"stacked": layout[:1] == "l"}


def _leaves(rng: np.random.Generator) -> list[Call]:
    """Leaves of decoders; leaves that tell mistakes apart; any leaves on any axes."""
    mesh = "pp=2,fsdp=4,tp=2"
    calls = [
        _call((8, 64, 192), "l_pp d f_tp", mesh, "fsdp"),
        _call((258, 64), "v_tp d", mesh, "fsdp"),
        _call((8, 36), "l_pp d", "pp=2,fsdp=4,cp=2,tp=2", "fsdp cp"),
        _call((8, 192, 64), "l_pp f_tp d", mesh, "fsdp"),
        _call((8, 192), "l_pp f_tp", mesh, "fsdp"),
        _call((64, 258), "d v_tp", mesh, "fsdp"),
        _call((64,), "d", mesh, "fsdp"),
    ]
    # Dim l would divide, and then another one, or none, does.
    calls += [
        _call((8,), "l_pp", mesh, "fsdp"),
        _call((8, 6, 3), "l d f", "fsdp=4", "fsdp"),
        _call((8, 5, 12), "l k f", "fsdp=4", "fsdp"),
        _call((16, 6, 8), "l d f", "dp=2,cp=2", "dp cp"),
        _call((16, 6, 7), "l d f", "dp=2,cp=4", "dp cp"),
    ]
    # Axes of one device, none at all, and axes that neither split nor shard.
    calls += [
        _call((64, 64), "d f", "fsdp=1,tp=2", "fsdp"),
        _call((6, 64), "d f", "dp=1,fsdp=4,cp=1", "dp fsdp cp"),
        _call((6, 12), "d f", "dp=2,fsdp=1,cp=4", "dp fsdp cp"),
        _call((64, 64), "d f_tp", "pp=2,tp=2", ""),
        _call((8, 14), "d f", "dp=3,tp=2", "dp"),
        _call((6, 4), "d f", "dp=2,tp=2", "dp"),
        _call((7,), "d", "dp=1,cp=1", "dp cp"),
    ]
    # Axes that split the leaf already, along this dim or another one.
    calls += [
        _call((16, 64), "e_ep d", "fsdp=2,ep=4", "fsdp ep"),
        _call((16, 64), "e_ep d", "ep=4", "ep"),
        _call((4, 64, 6), "e_ep d f_tp", "fsdp=8,ep=4,cp=2,tp=3", "fsdp ep cp"),
        _call((8, 16, 18, 5), "l_pp e_ep f_tp d", "pp=2,fsdp=3,ep=4,tp=2", "fsdp ep"),
        _call((8, 6), "d_fsdp f", "dp=4,fsdp=2", "dp"),  # a text that has dp in it
    ]
    # All axes together divide none; fewer do, or none; one in the middle must not be left out.
    calls += [
        _call((4, 9), "d f", "dp=2,cp=3", "dp cp"),
        _call((4, 5), "d f", "dp=2,cp=3", "dp cp"),
        _call((4, 8), "d f", "dp=2,cp=4", "dp cp"),
        _call((4, 4), "d f", "dp=2,cp=4", "dp cp"),
        _call((14, 15, 5), "d f h", "dp=2,fsdp=3,cp=5", "dp fsdp cp"),
        _call((14, 6, 5), "d f h", "dp=2,fsdp=3,cp=5", "dp fsdp cp"),
        _call((10, 7), "d f", "dp=2,fsdp=3,cp=5", "dp fsdp cp"),
        _call((6, 12), "d f", "dp=2,fsdp=3,cp=5", "dp fsdp cp"),
        _call((12, 48), "d f", "dp=2,fsdp=2,ep=3,cp=2", "dp fsdp ep cp"),
    ]
    # Local sizes, of dims that are split by one axis and by several; of these dims the first.
    calls += [
        _call((4, 9), "d_tp f", "dp=2,tp=2", "dp"),
        _call((2, 3), "d_tp f", "dp=2,tp=2", "dp"),
        _call((24, 4), "f_pp_tp d", "pp=2,fsdp=4,tp=2", "fsdp"),
        _call((24, 5), "f_pp_tp d", "pp=2,fsdp=2,cp=3,tp=2", "fsdp cp"),
        _call((24, 8), "f_pp_cp_tp d", "pp=2,dp=4,cp=3,tp=2", "dp"),
        _call((36, 6), "f_pp_tp d_cp", "pp=2,dp=3,tp=3,cp=2", "dp"),
        _call((8, 64), "d f", "fsdp=4", "fsdp"),
        _call((64, 8), "d f", "fsdp=4", "fsdp"),
        _call((3, 8, 5, 64), "h d k f_tp", "fsdp=4,tp=2", "fsdp"),
        _call((3, 5, 7, 1, 9, 8), "h q k c d f", "fsdp=4", "fsdp"),
    ]
    # Without dims or elements; other orders of axes; sizes that float32 and int32 do not hold.
    few = 2 * int(rng.integers(2**32, 2**33)) + 1
    calls += [
        _call((), "", mesh, "fsdp"),
        _call((0, 8), "v d", "fsdp=4", "fsdp"),
        _call((0, 8), "v_tp d", "fsdp=4,tp=2", "fsdp"),
        _call((0,), "v", "fsdp=4", "fsdp"),
        _call((5, 0, 3), "l v d", "fsdp=4", "fsdp"),
        _call((0, 3, 2), "v d k", "dp=2,cp=2", "dp cp"),
        _call((6, 24), "d f", "cp=2,tp=2,dp=4", "dp cp"),
        _call((6, 4), "d f", "dp=3,cp=2", "cp dp"),
        _call((few, 8), "v d", "node=4", "node"),
        _call((3 * 2**32, 8), "v d", "node=3", "node"),
    ]
    calls += [_any(rng, count) for count in range(1, 8) for _ in range(6)]
    return calls


def _any(rng: np.random.Generator, dims: int) -> Call:
    """A leaf of so many dims on six axes; now and then an axis splits it that would shard it."""
    names = [AXES[int(i)] for i in rng.permutation(len(AXES))[:6]]
    sizes = {name: pick(rng, (1, 2, 2, 3, 4, 6)) for name in names}
    count = int(rng.integers(1, 5))
    axes, others = names[:count], names[count:]
    if rng.integers(3) == 0:
        others.append(pick(rng, axes))
    splits: list[Axes] = [()] * dims
    for axis in others:
        dim = int(rng.integers(2 * dims))  # half of them split nothing
        if dim < dims:
            splits[dim] = (*splits[dim], axis)
    over = _taking_part(tuple(splits), sizes, tuple(axes))
    shape = []
    for split in splits:
        some = tuple(axis for axis in over if rng.integers(2))
        local = pick(rng, (0, 1, 1, 3, 5, 7)) * _devices(some, sizes)
        shape.append(local * _devices(split, sizes))
    in_any_order = {names[int(i)]: sizes[names[int(i)]] for i in rng.permutation(len(names))}
    how = {"stacked": bool(rng.integers(2))}
    return (tuple(shape), tuple(splits), in_any_order, tuple(axes)), how


CONTRACT = Contract(
    kind="value",
    task="return the dim along which the leaf is sharded, or None, and the axes that shard it",
    reference=sharded_dim,
    oracle=_most_axes,
    values=_leaves,
    hints=(
        "How many devices hold the same numbers of the leaf while it is used, and how many "
        "elements along each dim does each of them have?",
        "First find the axes that take part, then the local sizes. Try all of these axes on every "
        "dim before you leave one of them out, and begin with the outermost.",
        "while over: take n, the product of sizes[axis] for axis in over; return the first dim, "
        "from int(stacked) on, with local[dim] > 0 and local[dim] % n == 0; else over = over[1:]. "
        "After the loop: return None, ().",
    ),
    minimal="Where all the axes take part, each device owns one of n equal parts: no equal parts "
    "are smaller.",
    harder="Also leave out an axis in the middle, where more devices can then share the leaf. "
    "Which leaves of a decoder are smaller for it?",
)

Fits = Callable[[Axes, int, Sizes], bool]


def _first_dim(
    local: Sequence[int], over: Axes, sizes: Sizes, stacked: bool, fits: Fits = _divide
) -> int | None:
    dims = range(int(stacked), len(local))
    return next((dim for dim in dims if fits(over, local[dim], sizes)), None)


def _outermost_left_out(
    local: Sequence[int], over: Axes, sizes: Sizes, stacked: bool, fits: Fits = _divide
) -> Found:
    """The right search, of what a mistake takes for local sizes, and for the axes."""
    while over:
        dim = _first_dim(local, over, sizes, stacked, fits)
        if dim is not None:
            return dim, over
        over = over[1:]
    return None, ()


@wrong("values")
def global_sizes(shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool) -> Found:
    """You divide the global size of a dim; a device has only its part of a dim that is split, so
    divide by the sizes of the axes that split it first."""
    return _outermost_left_out(shape, _taking_part(splits, sizes, axes), sizes, stacked)


@wrong("values")
def layers_sharded(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You shard stacked leaves along dim 0; a loop takes one layer after the other, and each device
    then would have only some of them. Begin with dim 1."""
    return sharded_dim(shape, splits, sizes, axes, stacked=False)


@wrong("values")
def layers_not_counted(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You count the dims of a stacked leaf from the one after its layers; in `shape` the layers are
    dim 0."""
    dim, over = sharded_dim(shape, splits, sizes, axes, stacked=stacked)
    return None if dim is None else dim - stacked, over


@wrong("values")
def single_devices_kept(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You name axes with one device; nothing is split over these."""
    over = tuple(axis for axis in axes if not any(axis in split for split in splits))
    return _outermost_left_out(_local(shape, splits, sizes), over, sizes, stacked)


@wrong("values")
def axes_used_twice(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You shard over axes that split the leaf already; their devices have different parts of it,
    and there is nothing that they could share."""
    local = _local(shape, splits, sizes)
    return _outermost_left_out(local, _several(sizes, axes), sizes, stacked)


@wrong("values")
def axes_used_on_two_dims(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You leave out the axes that split the same dim; one that splits another dim of the leaf
    cannot shard it either."""
    local, over = _local(shape, splits, sizes), _several(sizes, axes)
    for start in range(len(over)):
        for dim in range(int(stacked), len(shape)):
            free = tuple(axis for axis in over[start:] if axis not in splits[dim])
            if free and _divide(free, local[dim], sizes):
                return dim, free
    return None, ()


@wrong("values")
def innermost_left_out(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You leave out the innermost axis first; it has the fastest links, so leave out the outermost,
    which is the first."""
    local, over = _local(shape, splits, sizes), _taking_part(splits, sizes, axes)
    while over:
        dim = _first_dim(local, over, sizes, stacked)
        if dim is not None:
            return dim, over
        over = over[:-1]
    return None, ()


@wrong("values")
def all_axes_or_none(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You give up where all axes together divide no dim; leave out the outermost, and try again."""
    over = _taking_part(splits, sizes, axes)
    dim = _first_dim(_local(shape, splits, sizes), over, sizes, stacked) if over else None
    return dim, over if dim is not None else ()


@wrong("values")
def axes_that_divide_picked(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You take every axis that still divides the dim; only outer axes are left out, one after the
    other, so that those which are left have the fastest links."""
    local = _local(shape, splits, sizes)
    for dim in range(int(stacked), len(shape)):
        over: Axes = ()
        for axis in _taking_part(splits, sizes, axes):
            if _divide((*over, axis), local[dim], sizes):
                over = (*over, axis)
        if over:
            return dim, over
    return None, ()


@wrong("values")
def first_dim_that_any_divide(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You stay with the first dim that some of the axes divide; first see whether all of them
    divide another dim."""
    local, over = _local(shape, splits, sizes), _taking_part(splits, sizes, axes)
    for dim in range(int(stacked), len(shape)):
        for start in range(len(over)):
            if _divide(over[start:], local[dim], sizes):
                return dim, over[start:]
    return None, ()


@wrong("values")
def largest_dim(shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool) -> Found:
    """You take the largest dim that the axes divide; take the first one."""
    local, over = _local(shape, splits, sizes), _taking_part(splits, sizes, axes)
    while over:
        dims = range(int(stacked), len(shape))
        divided = [dim for dim in dims if _divide(over, local[dim], sizes)]
        if divided:
            return max(divided, key=lambda dim: local[dim]), over
        over = over[1:]
    return None, ()


@wrong("values")
def whole_dims_only(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You pass over dims that are split already; these can be sharded too, inside of what each
    device has of them."""
    over = _taking_part(splits, sizes, axes)
    whole = [0 if split else size for size, split in zip(shape, splits, strict=True)]
    return _outermost_left_out(whole, over, sizes, stacked)


@wrong("values")
def empty_dim(shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool) -> Found:
    """You shard a dim without elements, because 0 % n is 0; there is nothing to share."""

    def fits(over: Axes, size: int, sizes: Sizes) -> bool:
        return size % _devices(over, sizes) == 0

    local, over = _local(shape, splits, sizes), _taking_part(splits, sizes, axes)
    return _outermost_left_out(local, over, sizes, stacked, fits)


@wrong("values")
def each_axis_divides(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You ask whether each axis divides the size; together they cut a dim into as many parts as the
    product of their sizes."""

    def fits(over: Axes, size: int, sizes: Sizes) -> bool:
        return all(_divide((axis,), size, sizes) for axis in over)

    local, over = _local(shape, splits, sizes), _taking_part(splits, sizes, axes)
    return _outermost_left_out(local, over, sizes, stacked, fits)


@wrong("values")
def first_split_only(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You divide a dim by the first of the axes that split it; divide by all of them."""
    local = _local(shape, tuple(split[:1] for split in splits), sizes)
    return _outermost_left_out(local, _taking_part(splits, sizes, axes), sizes, stacked)


@wrong("values")
def dim_without_axes(
    shape: Shape, splits: Splits, sizes: Sizes, axes: Axes, *, stacked: bool
) -> Found:
    """You return a dim where no axis is left; one device divides every size, and shards nothing.
    The result there is (None, ())."""
    dim, over = sharded_dim(shape, splits, sizes, axes, stacked=stacked)
    local = _local(shape, splits, sizes)
    return (dim, over) if over else (_first_dim(local, (), sizes, stacked), ())
