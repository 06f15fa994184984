"""Contracts of lesson 01: devices and meshes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar import collectives, mesh
from jaxpar.contracts import devices_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Expected
from jaxpar.contracts.blocks import axis_first, mesh_order
from jaxpar.contracts.case import Array, Case

_Shapes = tuple[tuple[int, ...], str, dict[str, int]]


def _position(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(rank, sizes))


def _ranks_and_sizes(rng: np.random.Generator) -> list[tuple[tuple, dict]]:
    """Random ranks in the usual meshes and in random ones, then ranks that tell mistakes apart."""
    meshes: list[tuple[int, ...]] = [(8,), (2, 4), (4, 2), (3, 1, 2), (2, 3, 2, 2)]
    meshes += [tuple(int(size) for size in rng.integers(2, 6, 3)) for _ in range(8)]
    ranks = [int(rng.integers(math.prod(sizes))) for sizes in meshes]
    chosen = [(rank, (2, 3, 4)) for rank in (0, 9, 23)]
    return [(call, {}) for call in [*zip(ranks, meshes, strict=True), *chosen]]


def _divided_shape(
    shape: tuple[int, ...], layout: str, sizes: Mapping[str, int]
) -> tuple[int, ...]:
    if len(layout.split()) != len(shape):
        raise ValueError(f"{shape} in {layout}")
    local = list(shape)
    for i, word in enumerate(layout.split()):
        for axis in word.split("_")[1:]:
            if axis not in sizes:
                raise ValueError(f"{axis} in {sizes}")
            local[i], rest = divmod(local[i], sizes[axis])
            if rest:
                raise ValueError(f"{shape[i]} in {word} over {sizes}")
    return tuple(local)


def _shapes_and_layouts(rng: np.random.Generator) -> list[tuple[tuple, dict]]:
    """Sizes that divide; sizes that do not, alone and only together; layouts that do not fit."""
    dp, tp, cp = (int(size) for size in rng.permutation([2, 3, 4]))
    b, t, f = (int(size) for size in rng.integers(2, 7, 3))
    sizes = {"dp": dp, "tp": tp, "cp": cp}
    calls: list[_Shapes] = [
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


def _plus_rank(case: Case, x: jax.Array) -> list[Expected]:
    blocks = axis_first(case, x)
    ranks = jnp.arange(len(blocks), dtype=x.dtype).reshape(-1, *(1,) * (blocks.ndim - 1))
    return [Expected(mesh_order(case, blocks + ranks))]


CONTRACTS = (
    Contract(
        id="device_coordinates",
        kind="value",
        task="return the position of device number `rank` as a tuple, the last axis fastest",
        reference=mesh.device_coordinates,
        oracle=_position,
        values=_ranks_and_sizes,
        mistakes=mistakes.DEVICE_COORDINATES,
        hints=(
            "A rank is a number whose digits are the positions: write 11 in a mesh of 3 by 4.",
            "The last digit is rank % size of the last axis; what is left over is rank // size.",
            "Go through reversed(sizes) with rank, place = divmod(rank, size); then turn it round.",
        ),
        minimal="It is arithmetic on the rank: no device has to ask another where it is.",
        harder="Write the inverse: the rank of the device at given coordinates.",
    ),
    Contract(
        id="local_shape",
        kind="value",
        task="return the shape of each device's part; a size that does not divide raises",
        reference=mesh.local_shape,
        oracle=_divided_shape,
        values=_shapes_and_layouts,
        mistakes=mistakes.LOCAL_SHAPE,
        hints=(
            "Each word of the layout is one dim; what follows its underscores are mesh axes.",
            "A dim is divided by the product of the sizes of its axes; no axis, no division.",
            "jaxpar.mesh.parse_layout gives (dim, axes) pairs; check size % product before //. A "
            "layout fits if it has as many dims as the shape, and no axis that sizes has not.",
        ),
        minimal="Every element is on one device along a split dim, so no part can be smaller.",
        harder="Return the slice of the global array, too, that the device at given coordinates "
        "holds.",
    ),
    Contract(
        id="add_rank",
        kind="program",
        task="return x plus the index of this device on `axis`, in the dtype of x",
        reference=collectives.add_rank,
        oracle=_plus_rank,
        cases=(
            Case("tp=8", {"x": Array((8 * 6,), "b_tp")}, {"axis": "tp"}),
            Case(
                "dp=3,tp=2", {"x": Array((6 * 2, 3, 4), "b_dp_tp t d", "bfloat16")}, {"axis": "dp"}
            ),
        ),
        hidden=(Case("pp=2,cp=4", {"x": Array((8 * 3, 5), "b_pp_cp t")}, {"axis": "cp"}),),
        gradient=("x",),
        communication=Communication("nothing is sent", forward=((),), backward="forward"),
        mistakes=mistakes.ADD_RANK,
        hints=(
            "Every device runs the same program; only its index on the axis differs.",
            "jax.lax has a function that gives the index of this device on a mesh axis.",
            "lax.axis_index(axis) is an int32: x plus it keeps the dtype of x.",
        ),
        minimal="A device knows its own index: nothing has to be sent.",
        harder="Add the rank in the whole mesh, from the indices on its axes and their sizes.",
    ),
)
