"""Wrong answers to the exercises of lesson 01 that people write."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Mistake
from jaxpar.mesh import parse_layout


def _first_axis_fastest(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    position = []
    for size in sizes:
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(position)


def _not_turned_round(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    position = []
    for size in reversed(sizes):
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(position)


def _stride_without_remainder(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank // math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def _remainder_without_stride(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank % size for size in sizes)


def _own_size_as_stride(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank // size % size for size in sizes)


def _ranks_from_one(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    position = []
    rank -= 1
    for size in reversed(sizes):
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(reversed(position))


def _rounds_down(shape: tuple[int, ...], layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(
        size // math.prod(sizes[axis] for axis in axes)
        for size, (_, axes) in zip(shape, parse_layout(layout), strict=False)
    )


def _rounds_up(shape: tuple[int, ...], layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(
        -(-size // math.prod(sizes[axis] for axis in axes))
        for size, (_, axes) in zip(shape, parse_layout(layout), strict=False)
    )


def _first_axis_only(shape: tuple[int, ...], layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(
        _divided(size, sizes[axes[0]] if axes else 1)
        for size, (_, axes) in zip(shape, parse_layout(layout), strict=False)
    )


def _adds_the_axes(shape: tuple[int, ...], layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(
        _divided(size, sum(sizes[axis] for axis in axes) or 1)
        for size, (_, axes) in zip(shape, parse_layout(layout), strict=False)
    )


def _first_dim_by_whole_mesh(
    shape: tuple[int, ...], layout: str, sizes: dict[str, int]
) -> tuple[int, ...]:
    return (_divided(shape[0], math.prod(sizes.values())), *shape[1:])


def _global_shape(shape: tuple[int, ...], layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(shape)


def _divided(size: int, n: int) -> int:
    if size % n:
        raise ValueError(f"{size} is not a multiple of {n}")
    return size // n


def _size_for_index(x: jax.Array, *, axis: str) -> jax.Array:
    return x + lax.axis_size(axis)


def _rank_in_whole_mesh(x: jax.Array, *, axis: str) -> jax.Array:
    return x + lax.axis_index(jax.sharding.get_abstract_mesh().axis_names)


def _rank_from_one(x: jax.Array, *, axis: str) -> jax.Array:
    return x + lax.axis_index(axis) + 1


def _axis_by_its_name(x: jax.Array, *, axis: str) -> jax.Array:
    return x + lax.axis_index("tp").astype(x.dtype)


def _row_for_rank(x: jax.Array, *, axis: str) -> jax.Array:
    rows = jnp.arange(x.shape[0], dtype=x.dtype)
    return x + rows.reshape(-1, *(1,) * (x.ndim - 1))


def _rank_widens_x(x: jax.Array, *, axis: str) -> jax.Array:
    return x + lax.axis_index(axis).astype(jnp.float32)


def _rank_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.stop_gradient(x) + lax.axis_index(axis)


def _gathers_to_add_rank(x: jax.Array, *, axis: str) -> jax.Array:
    everything = lax.all_gather(x, axis)  # [n, ...]
    ranks = jnp.arange(len(everything), dtype=x.dtype).reshape(-1, *(1,) * x.ndim)
    return (everything + ranks)[lax.axis_index(axis)]


DEVICE_COORDINATES = (
    Mistake("first_axis_fastest", _first_axis_fastest, "values"),
    Mistake("not_turned_round", _not_turned_round, "values"),
    Mistake("stride_without_remainder", _stride_without_remainder, "values"),
    Mistake("remainder_without_stride", _remainder_without_stride, "values"),
    Mistake("own_size_as_stride", _own_size_as_stride, "values"),
    Mistake("ranks_from_one", _ranks_from_one, "values"),
)
LOCAL_SHAPE = (
    Mistake("rounds_down", _rounds_down, "values"),
    Mistake("rounds_up", _rounds_up, "values"),
    Mistake("first_axis_only", _first_axis_only, "values"),
    Mistake("adds_the_axes", _adds_the_axes, "values"),
    Mistake("first_dim_by_whole_mesh", _first_dim_by_whole_mesh, "values"),
    Mistake("global_shape", _global_shape, "values"),
)
ADD_RANK = (
    Mistake("size_for_index", _size_for_index, "values"),
    Mistake("rank_in_whole_mesh", _rank_in_whole_mesh, "values"),
    Mistake("rank_from_one", _rank_from_one, "values"),
    Mistake("axis_by_its_name", _axis_by_its_name, "values"),
    Mistake("row_for_rank", _row_for_rank, "values"),
    Mistake("rank_widens_x", _rank_widens_x, "values"),
    Mistake("rank_cuts_gradient", _rank_cuts_gradient, "gradient"),
    Mistake("gathers_to_add_rank", _gathers_to_add_rank, "communication"),
)
