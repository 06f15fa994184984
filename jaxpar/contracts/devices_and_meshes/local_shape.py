"""The shape of each device's shard of an array, from the array's shape and its layout."""

from __future__ import annotations

import math

import numpy as np

from jaxpar import mesh
from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.mesh import parse_layout

Shape = tuple[int, ...]
Sizes = dict[str, int]  # devices on each mesh axis


def _divided_shape(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    words = layout.split()
    if len(words) != len(shape):
        raise ValueError(f"{shape} in {layout}")
    local = list(shape)
    for i, word in enumerate(words):
        for axis in word.split("_")[1:]:
            if axis not in sizes:
                raise ValueError(f"{axis} in {sizes}")
            local[i] = _divided(local[i], sizes[axis])
    return tuple(local)


def _divided(size: int, n: int) -> int:
    if size % n:
        raise ValueError(f"{size} is not a multiple of {n}")
    return size // n


def _shapes_and_layouts(rng: np.random.Generator) -> list[Call]:
    """Sizes that divide; sizes that do not, alone and only together; layouts that do not fit.

    The last ones are scalars, sizes of 0 and of more than 32 bits, other names, and many dims.
    """
    dp, tp, cp = (int(size) for size in rng.permutation([2, 3, 4]))
    b, t, f = (int(size) for size in rng.integers(2, 7, 3))
    sizes = {"dp": dp, "tp": tp, "cp": cp}
    calls = [
        ((8, 6), "b_dp d", {"dp": 4}),
        ((8, 6), "b_dp d", {"dp": 4, "tp": 2}),
        ((b * dp, t, f), "b_dp t d", sizes),
        ((b * dp, t, f * tp), "b_dp t f_tp", sizes),
        ((b * dp, t * cp, f * tp), "b_dp t_cp f_tp", sizes),
        ((b * dp * tp, f), "b_dp_tp d", sizes),
        ((t, f * tp * cp), "t f_tp_cp", sizes),
        ((b * dp * tp * cp,), "b_dp_cp_tp", sizes),
        ((b, t, f), "b t d", sizes),
        ((dp, tp), "b_dp f_tp", sizes),
        ((b * dp, f), "b_dp f_tp", {"dp": dp, "tp": 1}),
        ((b * dp + 1, f), "b_dp d", sizes),
        ((b, f * tp - 1), "b f_tp", sizes),
        ((12, f), "b_dp_tp d", {"dp": 4, "tp": 6}),
        ((10, f), "b_dp d", {"dp": 4}),
        ((b * dp,), "b_dp f_tp", sizes),
        ((b, f * tp), "b f_tp", {"dp": dp}),
    ]
    few = int(rng.integers(2**33, 2**34)) * 2 + 1  # float32 does not hold it
    other = {"node": dp, "device": tp, "tp": 2, "tpx": cp, "ep": 1, "fsdp": 8}
    calls += [
        ((12 * b, f), "b_dp d", {"dp": 6}),  # dp is 4 in the first call
        ((), "", sizes),
        ((), "", {}),
        ((b, t), "b t", {}),
        ((), "b", sizes),
        ((b,), "", sizes),
        ((b * dp, t, f), "b_dp t", sizes),
        ((b * dp, t), "b_dp", sizes),
        ((0, t), "b_dp t", sizes),
        ((0, b * dp), "t d_dp", sizes),
        ((dp - 1, f), "b_dp d", sizes),
        ((8 * few,), "p_fsdp", other),
        ((8 * few + 1,), "p_fsdp", other),
        ((b * dp * tp * 8 * cp, f), "batch_node_device_fsdp_tpx hidden", other),
        ((b, f * cp), "tokens features_tpx", other),  # and not by tp
        ((b, t * 2), "dp t_tp", other),  # a dim may have the name of an axis
        ((dp, b * tp), "dp t_tp", sizes),
        ((b * tp, f), "tp_tp d", sizes),
        ((b * dp, t, f, 3, 5 * tp, 1), "b_dp h w q k_device c", other | {"dp": dp}),
        ((b * 2, t, f, 3, 5 * tp + 1, 1), "b_tp h w q k_device c", other),
        ((b, f), "b_cp f", other),
    ]
    return [(call, {}) for call in calls]


CONTRACT = Contract(
    kind="value",
    task="return the shape of each device's shard; raise ValueError where a size does not divide",
    reference=mesh.local_shape,
    oracle=_divided_shape,
    values=_shapes_and_layouts,
    hints=(
        "Each word of the layout is one dim; what follows its underscores are mesh axes.",
        "A dim is divided by the product of the sizes of its axes; a dim without axes stays whole.",
        "jaxpar.mesh.parse_layout gives (dim, axes) pairs; check size % product before //. A "
        "layout fits if it has as many dims as the shape and names only axes that are in sizes.",
    ),
    minimal="The shards along a split dim must together hold every element, so none can be "
    "smaller.",
    harder="Return also the slice of the global array that the device at given coordinates holds.",
)


def _split_dims(shape: Shape, layout: str, sizes: Sizes) -> list[tuple[int, list[int]]]:
    """The size of each dim, and the sizes of the mesh axes that split it."""
    pairs = zip(shape, parse_layout(layout), strict=False)
    return [(size, [sizes[axis] for axis in axes]) for size, (_, axes) in pairs]


@wrong("values")
def rounds_down(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """A size that does not divide is rounded down, which loses elements; raise ValueError."""
    return tuple(size // math.prod(axes) for size, axes in _split_dims(shape, layout, sizes))


@wrong("values")
def rounds_up(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """A size that does not divide is rounded up, as if it were padded; raise ValueError."""
    return tuple(-(-size // math.prod(axes)) for size, axes in _split_dims(shape, layout, sizes))


@wrong("values")
def first_axis_only(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """A dim split over several axes is divided by the first of them only; divide by all."""
    dims = _split_dims(shape, layout, sizes)
    return tuple(_divided(size, axes[0] if axes else 1) for size, axes in dims)


@wrong("values")
def adds_the_axes(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """The sizes of several axes on one dim are added; the dim is split by their product."""
    dims = _split_dims(shape, layout, sizes)
    return tuple(_divided(size, sum(axes) or 1) for size, axes in dims)


@wrong("values")
def first_dim_by_whole_mesh(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """Dim 0 is divided by the whole mesh; only the axes that the layout names on a dim split it."""
    return (_divided(shape[0], math.prod(sizes.values())), *shape[1:])


@wrong("values")
def global_shape(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """This is the shape of the whole array; each device holds one shard of it."""
    return tuple(shape)


@wrong("values")
def dims_not_counted(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """A layout with more or fewer dims than the shape is accepted; raise ValueError."""
    if any(axis not in sizes for _, axes in parse_layout(layout) for axis in axes):
        raise ValueError(layout)
    return tuple(
        _divided(size, math.prod(axes)) for size, axes in _split_dims(shape, layout, sizes)
    )


@wrong("values")
def names_fewer_dims(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """Dims that the layout does not name stay whole; a layout that names fewer dims than the shape
    has does not fit it, so raise ValueError."""
    missing = len(shape) - len(layout.split())
    return _divided_shape(shape, layout + " whole" * missing, sizes)


@wrong("values")
def unknown_axis_raises_key_error(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """An axis that is not in `sizes` raises KeyError; raise ValueError there, too."""
    dims = zip(shape, parse_layout(layout), strict=True)
    return tuple(_divided(size, math.prod(sizes[a] for a in axes)) for size, (_, axes) in dims)


@wrong("values")
def needs_a_dim(shape: Shape, layout: str, sizes: Sizes) -> Shape:
    """The layout of a scalar is refused or read as one dim; a scalar has no dims, and its layout is
    the empty text. Use layout.split() without an argument."""
    if not layout:
        raise ValueError(layout)
    return _divided_shape(shape, layout, sizes)
