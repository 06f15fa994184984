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
    """Sizes that divide; sizes that do not, alone and only together; layouts that do not fit."""
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
