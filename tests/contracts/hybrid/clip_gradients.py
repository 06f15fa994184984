"""Answers to clip_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.mesh import in_mesh_order, vary, varying_axes
from tests.contracts.answers import right


def _axes():
    return jax.sharding.get_abstract_mesh().axis_names


def _leaves(grads):
    return [x.astype(jnp.float32) for x in jax.tree.leaves(grads)]


def _squares(x):
    return jnp.vdot(x, x)


def _sum(x, axes):
    return lax.psum(x, in_mesh_order(axes)) if axes else x


def _norm(grads):
    return jnp.sqrt(sum(_sum(_squares(x), varying_axes(x)) for x in _leaves(grads)))


def _scaled(grads, norm, max_norm):
    factor = jnp.where(norm > max_norm, max_norm / norm, 1)
    return jax.tree.map(lambda x: (x * factor).astype(x.dtype), grads)


def _clipped(grads, norm, max_norm):
    return _scaled(grads, norm, max_norm), norm


def _copies(x):
    """How many devices have the same part of a leaf."""
    return math.prod(lax.axis_size(axis) for axis in _axes() if axis not in varying_axes(x))


@right
def clipped_with_a_number_for_each_leaf(grads, *, max_norm):
    return _clipped(grads, _norm(grads), max_norm)


@right
def clipped_with_one_number_for_each_list_of_axes(grads, *, max_norm):
    leaves, squares = _leaves(grads), jnp.zeros((), jnp.float32)
    for axes in {varying_axes(x) for x in leaves}:
        squares += _sum(sum(_squares(x) for x in leaves if varying_axes(x) == axes), axes)
    return _clipped(grads, jnp.sqrt(squares), max_norm)


@right
def clipped_with_copies_divided(grads, *, max_norm):
    """Over all devices at once, with each of n copies as an n-th."""
    own = sum(vary(_squares(x), _axes()) / _copies(x) for x in _leaves(grads))
    return _clipped(grads, jnp.sqrt(lax.psum(own, _axes())), max_norm)


@right
def clipped_with_numbers_side_by_side(grads, *, max_norm):
    """The numbers of all leaves in one array, over all devices."""
    own = jnp.stack([vary(_squares(x), _axes()) / _copies(x) for x in _leaves(grads)])
    return _clipped(grads, jnp.sqrt(lax.psum(own, _axes()).sum()), max_norm)


@right
def clipped_with_the_first_copy_alone(grads, *, max_norm):
    def counted(x):
        others = tuple(axis for axis in _axes() if axis not in varying_axes(x))
        first = lax.axis_index(others) == 0 if others else True
        return jnp.where(first, vary(_squares(x), _axes()), 0)

    return _clipped(grads, jnp.sqrt(lax.psum(sum(map(counted, _leaves(grads))), _axes())), max_norm)


@right
def clipped_with_gathered_numbers(grads, *, max_norm):
    def norm(x):
        axes = in_mesh_order(varying_axes(x))
        own = jnp.linalg.norm(x.ravel())
        return jnp.linalg.norm(lax.all_gather(own, axes)) if axes else own

    return _clipped(grads, jnp.linalg.norm(jnp.stack([*map(norm, _leaves(grads))])), max_norm)


@right
def clipped_over_one_axis_after_the_other(grads, *, max_norm):
    def squares(x):
        total = _squares(x)
        for axis in varying_axes(x):
            total = lax.psum(total, axis)
        return total

    return _clipped(grads, jnp.sqrt(sum(map(squares, _leaves(grads)))), max_norm)


@right
def clipped_by_at_most_one(grads, *, max_norm):
    """A norm of 0 makes the quotient infinite, and the factor 1."""
    norm = _norm(grads)
    factor = jnp.minimum(1, max_norm / norm)
    return jax.tree.map(lambda x: (x * factor).astype(x.dtype), grads), norm


@right
def clipped_as_torch_does(grads, *, max_norm):
    norm = _norm(grads)
    factor = jnp.minimum(1, max_norm / (norm + 1e-6))
    return jax.tree.map(lambda x: x * factor.astype(x.dtype), grads), norm


@wrong("values")
def clipped_over_axes_of_the_stub(grads, *, max_norm):
    def squares(x):
        return _sum(_squares(x), varying_axes(x) & {"pp", "dp", "fsdp", "ep", "tp"})

    return _clipped(grads, jnp.sqrt(sum(map(squares, _leaves(grads)))), max_norm)


@wrong("values")
def clipped_by_one_array(grads, *, max_norm):
    """The type of all leaves in one array is that of the one that differs most."""
    flat, _ = ravel_pytree(jax.tree.map(lambda x: x.astype(jnp.float32), grads))
    return _clipped(grads, _norm(flat), max_norm)


@wrong("values")
def clipped_over_axes_of_the_first_leaf(grads, *, max_norm):
    leaves = _leaves(grads)
    own = sum(vary(_squares(x), varying_axes(leaves[0])) for x in leaves)
    return _clipped(grads, jnp.sqrt(_sum(own, varying_axes(leaves[0]))), max_norm)


@wrong("values")
def clipped_by_squares_of_sums(grads, *, max_norm):
    summed = [_sum(x, varying_axes(x)) for x in _leaves(grads)]
    return _clipped(grads, jnp.sqrt(sum(map(_squares, summed))), max_norm)


@wrong("values")
def clipped_by_largest_norm(grads, *, max_norm):
    own = jnp.sqrt(sum(vary(_squares(x), _axes()) for x in _leaves(grads)))
    return _clipped(grads, lax.pmax(own, _axes()), max_norm)


@wrong("values")
def clipped_by_wide_sums_of_narrow_squares(grads, *, max_norm):
    def squares(x):
        return _sum(jnp.sum(x**2, dtype=jnp.float32), varying_axes(x))

    return _clipped(grads, jnp.sqrt(sum(map(squares, jax.tree.leaves(grads)))), max_norm)


@wrong("values")
def clipped_with_epsilon(grads, *, max_norm):
    return _clipped(grads, jnp.sqrt(_norm(grads) ** 2 + 1e-8), max_norm)


@wrong("values")
def clipped_by_square_root_of_factor(grads, *, max_norm):
    norm = _norm(grads)
    return _scaled(grads, norm**2, max_norm**2), norm


@wrong("values")
def clipped_scaled_against_overflow(grads, *, max_norm):
    """By the largest element, which may be 0."""
    tops = [vary(jnp.abs(x).max(), _axes()) for x in _leaves(grads)]
    largest = lax.pmax(jnp.stack(tops).max(), _axes())
    return _clipped(grads, largest * _norm([x / largest for x in _leaves(grads)]), max_norm)


@wrong("values")
def clipped_in_lists_and_dicts(grads, *, max_norm):
    """A pytree may be one array, or have tuples."""

    def leaves(part):
        if isinstance(part, dict | list):
            items = part.values() if isinstance(part, dict) else part
            return [leaf for item in items for leaf in leaves(item)]
        return [] if isinstance(part, tuple) else [part]

    return _clipped(grads, _norm(leaves(grads)), max_norm)


@wrong("values")
def clipped_and_norm_the_other_way_round(grads, *, max_norm):
    norm = _norm(grads)
    return norm, _scaled(grads, norm, max_norm)


@wrong("values")
def clipped_with_norm_of_one_element(grads, *, max_norm):
    scaled, norm = _clipped(grads, _norm(grads), max_norm)
    return scaled, norm[None]


@wrong("values")
def clipped_on_several_devices(grads, *, max_norm):
    if min(jax.sharding.get_abstract_mesh().axis_sizes) == 1:
        raise ValueError("a leaf on one device is not split")
    return _clipped(grads, _norm(grads), max_norm)


@wrong("communication")
def clipped_with_leaves_of_one_axis_gathered(grads, *, max_norm):
    """Only what is split over one axis, and its squares are those of the whole."""

    def squares(x):
        axes = in_mesh_order(varying_axes(x))
        if len(axes) == 1:
            return _squares(lax.all_gather(x, axes))
        return _sum(_squares(x), axes)

    return _clipped(grads, jnp.sqrt(sum(map(squares, _leaves(grads)))), max_norm)


@wrong("communication")
def clipped_with_everything_gathered(grads, *, max_norm):
    """All parts in one array from all devices, with each of n copies as an n-th of the squares."""
    parts = [vary(x.ravel(), _axes()) / math.sqrt(_copies(x)) for x in _leaves(grads)]
    whole = lax.all_gather(jnp.concatenate(parts), _axes())
    return _clipped(grads, jnp.linalg.norm(whole.ravel()), max_norm)
