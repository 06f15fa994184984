"""Wrong answers to the hierarchical all-reduce of lesson 03 that people write."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Mistake


def _chunks(x: jax.Array, n: int) -> jax.Array:
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def _join(chunk: jax.Array, axis: str, x: jax.Array) -> jax.Array:
    whole = lax.all_gather(chunk, axis, to="invarying")
    return whole.ravel()[: x.size].reshape(x.shape)


def _own_chunk(x: jax.Array, axis: str) -> jax.Array:
    return _chunks(x, lax.axis_size(axis))[lax.axis_index(axis)]


def _node_sum(x: jax.Array, axis: str) -> jax.Array:
    return lax.psum_scatter(_chunks(x, lax.axis_size(axis)), axis)


def _only_within_nodes(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    return _join(_node_sum(x, inner), inner, x)


def _only_between_nodes(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    return _join(lax.psum(_own_chunk(x, inner), outer), inner, x)


def _sums_node_twice(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    chunk = _node_sum(lax.psum(x, inner), inner)
    return _join(lax.psum(chunk, outer), inner, x)


def _drops_remainder(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    n = lax.axis_size(inner)
    flat = x.ravel()
    even = flat[: x.size // n * n]
    total = _join(lax.psum(_node_sum(even, inner), outer), inner, even)
    return jnp.concatenate([total, flat[even.size :]]).reshape(x.shape)


def _keeps_padding(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    chunk = lax.psum(_node_sum(x, inner), outer)
    return lax.all_gather(chunk, inner, tiled=True)


def _levels_cut_gradient(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    chunk = _node_sum(x, inner)
    return _join(lax.psum(lax.stop_gradient(chunk), outer), inner, x)


def _flat_sum(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    return lax.psum(x, (outer, inner))


def _whole_x_between_nodes(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    return lax.psum(lax.psum(x, inner), outer)


def _swaps_levels(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    chunk = lax.psum(_node_sum(x, outer), inner)
    return _join(chunk, outer, x)


def _all_reduces_then_cuts(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    chunk = _own_chunk(lax.psum(x, inner), inner)
    return _join(lax.psum(chunk, outer), inner, x)


def _gathers_chunks_between_nodes(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    chunk = lax.all_gather(_node_sum(x, inner), outer).sum(axis=0)
    return _join(chunk, inner, x)


def _gathers_node(x: jax.Array, *, inner: str, outer: str) -> jax.Array:
    node = lax.all_gather(x, inner).sum(axis=0)
    return _join(lax.psum(_own_chunk(node, inner), outer), inner, x)


HIERARCHICAL_ALL_REDUCE = (
    Mistake("only_within_nodes", _only_within_nodes, "values"),
    Mistake("only_between_nodes", _only_between_nodes, "values"),
    Mistake("sums_node_twice", _sums_node_twice, "values"),
    Mistake("drops_remainder", _drops_remainder, "values"),
    Mistake("keeps_padding", _keeps_padding, "values"),
    Mistake("levels_cut_gradient", _levels_cut_gradient, "gradient"),
    Mistake("flat_sum", _flat_sum, "communication"),
    Mistake("whole_x_between_nodes", _whole_x_between_nodes, "communication"),
    Mistake("swaps_levels", _swaps_levels, "communication"),
    Mistake("all_reduces_then_cuts", _all_reduces_then_cuts, "communication"),
    Mistake("gathers_node", _gathers_node, "communication"),
    Mistake("gathers_chunks_between_nodes", _gathers_chunks_between_nodes, "communication"),
)
