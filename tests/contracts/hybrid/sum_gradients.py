"""Answers to sum_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import gathered, hop, scattered
from tests.contracts.answers import right


def _varying(x):
    return jax.typeof(x).manual_axis_type.varying


def _missing(x, spec):
    """The axes to sum over, without any function of jaxpar."""
    entries = [(entry,) if isinstance(entry, str) else entry or () for entry in spec]
    named = [axis for entry in entries for axis in entry]
    return tuple(axis for axis in _axes() if axis in _varying(x) and axis not in named)


def _axes():
    return jax.sharding.get_abstract_mesh().axis_names


def _each(add, grads, specs):
    def of_leaf(x, spec):
        axes = _missing(x, spec)
        return add(x, axes) if axes else x

    return jax.tree.map(of_leaf, grads, specs)


@right
def sums_in_one_array_for_the_same_axes(grads, specs):
    leaves, tree = jax.tree.flatten(grads)
    pairs = zip(leaves, jax.tree.leaves(specs), strict=True)
    kinds = [(_missing(x, spec), x.dtype) for x, spec in pairs]
    for kind in {kind for kind in kinds if kind[0]}:
        chosen = [i for i, found in enumerate(kinds) if found == kind]
        flat, restore = ravel_pytree([leaves[i] for i in chosen])
        for i, total in zip(chosen, restore(lax.psum(flat, kind[0])), strict=True):
            leaves[i] = total
    return jax.tree.unflatten(tree, leaves)


@right
def sums_by_scattering_and_gathering(grads, specs):
    def add(x, axes):
        n, flat = lax.axis_size(axes), x.ravel()
        if flat.size % n:
            return lax.psum(x, axes)
        return gathered(scattered(flat, axes), axes).reshape(x.shape)

    return _each(add, grads, specs)


@right
def sums_of_shards_over_the_other_axes(grads, specs):
    """Reduce-scatter over one axis, all-reduce over the others, all-gather: as many bytes."""

    def add(x, axes):
        first, *others = axes
        flat = x.ravel()
        if not others or flat.size % lax.axis_size(first):
            return lax.psum(x, axes)
        return gathered(lax.psum(scattered(flat, first), tuple(others)), first).reshape(x.shape)

    return _each(add, grads, specs)


@right
def sums_by_means(grads, specs):
    return _each(lambda x, axes: lax.pmean(x, axes) * lax.axis_size(axes), grads, specs)


@right
def sums_of_lists(grads, specs):
    leaves, tree = jax.tree.flatten(grads)
    totals = [
        lax.psum(x, axes) if (axes := _missing(x, spec)) else x
        for x, spec in zip(leaves, jax.tree.leaves(specs), strict=True)
    ]
    return jax.tree.unflatten(tree, totals)


@wrong("values")
def sums_of_parts_of_device_zero(grads, specs):
    def first(x, axes):
        return lax.psum(jnp.where(lax.axis_index(axes) == 0, x, 0), axes)

    return _each(first, grads, specs)


@wrong("values")
def sums_over_each_axis_that_no_spec_names(grads, specs):
    """One after the other: lax.psum multiplies what is equal, and says nothing."""

    def of_leaf(x, spec):
        for axis in _axes():
            if axis not in str(spec):
                x = lax.psum(x, axis)
        return x

    return jax.tree.map(of_leaf, grads, specs)


@wrong("values")
def sums_over_all_axes_that_no_spec_names(grads, specs):
    """At once: lax.psum refuses what differs over some of the axes only."""

    def of_leaf(x, spec):
        return lax.psum(x, tuple(axis for axis in _axes() if axis not in str(spec)))

    return jax.tree.map(of_leaf, grads, specs)


@wrong("values")
def sums_over_axes_of_the_stub(grads, specs):
    def add(x, axes):
        known = tuple(axis for axis in axes if axis in ("pp", "dp", "ep", "tp"))
        return lax.psum(x, known) if known else x

    return _each(add, grads, specs)


@wrong("values")
def sums_by_experts_in_the_name(grads, specs):
    """Experts are summed over dp, and all else over dp and ep."""

    def of_leaf(path, x):
        wanted = ("dp",) if "experts" in jax.tree_util.keystr(path) else ("dp", "ep")
        axes = tuple(axis for axis in wanted if axis in _varying(x))
        return lax.psum(x, axes) if axes else x

    return jax.tree.map_with_path(of_leaf, grads)


@wrong("values")
def sums_in_one_array(grads, specs):
    """All leaves in one array, over the axes that any of them lacks."""
    flat, restore = ravel_pytree(grads)
    leaves = zip(jax.tree.leaves(grads), jax.tree.leaves(specs), strict=True)
    axes = {axis for x, spec in leaves for axis in _missing(x, spec)}
    total = restore(lax.psum(flat, tuple(axes)) if axes else flat)
    return jax.tree.map(lambda x, y: y.astype(x.dtype), grads, total)


@wrong("values")
def sums_returned_in_float32(grads, specs):
    total = _each(lax.psum, grads, specs)
    return jax.tree.map(lambda x: x.astype(jnp.float32), total)


@wrong("values")
def sums_with_the_last_dim_alone(grads, specs):
    def of_leaf(x, spec):
        return _each(lax.psum, x, jax.P(*spec[-1:]))

    return jax.tree.map(of_leaf, grads, specs)


@wrong("values")
def sums_rounded(grads, specs):
    def add(x, axes):
        return lax.psum(x.astype(jnp.bfloat16), axes).astype(x.dtype)

    return _each(add, grads, specs)


@wrong("values")
def sums_on_several_devices(grads, specs):
    sizes = jax.sharding.get_abstract_mesh().axis_sizes
    if min(sizes) == 1:
        raise ValueError("one device has nothing to sum")
    return _each(lax.psum, grads, specs)


@wrong("communication")
def sums_round_a_ring(grads, specs):
    """All parts go all the way round: n/2 times the bytes."""

    def add(x, axes):
        for axis in axes:
            passing = x
            for _ in range(lax.axis_size(axis) - 1):
                passing = hop(passing, axis)
                x = x + passing
        return x

    return _each(add, grads, specs)


@wrong("communication")
def sums_twice_and_halves(grads, specs):
    """What is summed over two axes at once, and again over one, whose size divides it."""

    def add(x, axes):
        total = lax.psum(x, axes)
        return lax.psum(total, axes[:1]) / lax.axis_size(axes[0])

    return _each(add, grads, specs)


@wrong("communication")
def sums_what_is_equal_from_one_device(grads, specs):
    """Over axes by which a leaf is equal, all devices but one add zeros."""

    def of_leaf(x, spec):
        equal = tuple(axis for axis in _axes() if axis not in _varying(x))
        if equal:
            x = lax.psum(jnp.where(lax.axis_index(equal) == 0, x, 0), equal)
        axes = _missing(x, spec)
        return lax.psum(x, axes) if axes else x

    return jax.tree.map(of_leaf, grads, specs)
