"""Answers to prune_2_4: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _fours(w):
    if w.shape[0] % 4:
        raise ValueError(f"{w.shape[0]} rows")
    return w.reshape(-1, 4, w.shape[1])


@right
def by_comparing_all_pairs(w):
    fours = _fours(w)
    sizes = jnp.abs(fours)
    rows = []
    for i in range(4):
        beaten = sum(
            ((sizes[:, j] >= sizes[:, i]) if j < i else (sizes[:, j] > sizes[:, i])).astype(int)
            for j in range(4)
            if j != i
        )
        rows.append(jnp.where(beaten < 2, fours[:, i], 0))
    return jnp.stack(rows, axis=1).reshape(w.shape)


@right
def by_top_k(w):
    fours = jnp.swapaxes(_fours(w), 1, 2)  # [d/4, f, 4]
    _, places = lax.top_k(jnp.abs(fours), 2)
    kept = (places[..., None] == jnp.arange(4)[None, None, None]).any(axis=-2)
    return jnp.swapaxes(jnp.where(kept, fours, 0), 1, 2).reshape(w.shape)


@right
def by_two_maxima(w):
    fours = _fours(w)
    sizes = jnp.abs(fours)
    first = jnp.argmax(sizes, axis=1, keepdims=True)
    places = jnp.arange(4)[None, :, None]
    second = jnp.argmax(jnp.where(places == first, -1, sizes), axis=1, keepdims=True)
    return jnp.where((places == first) | (places == second), fours, 0).reshape(w.shape)


@right
def scattered_back(w):
    fours = _fours(w)
    order = jnp.argsort(jnp.abs(fours), axis=1, stable=True, descending=True)[:, :2]
    kept = jnp.put_along_axis(jnp.zeros(fours.shape, bool), order, True, axis=1, inplace=False)
    return (fours * kept.astype(w.dtype)).reshape(w.shape)


@wrong("values")
def sort_that_is_not_stable(w):
    """From the largest by turning an ascending order round, which turns equals round, too."""
    fours = _fours(w)
    order = jnp.argsort(jnp.abs(fours), axis=1)[:, ::-1]
    ranks = jnp.argsort(order, axis=1)
    return jnp.where(ranks < 2, fours, 0).reshape(w.shape)


@wrong("values")
def above_the_third(w):
    """Fewer than two where the second and the third are equal."""
    fours = _fours(w)
    third = jnp.sort(jnp.abs(fours), axis=1)[:, 1:2]
    return jnp.where(jnp.abs(fours) > third, fours, 0).reshape(w.shape)


@wrong("values")
def two_of_four_by_square(w):
    """Squares of small numbers underflow in 16 bits, and equal magnitudes stay equal."""
    fours = _fours(w)
    order = jnp.argsort(-jnp.round(fours**2, 1), axis=1, stable=True)
    return jnp.where(jnp.argsort(order, axis=1) < 2, fours, 0).reshape(w.shape)


@wrong("values")
def order_for_ranks(w):
    """The places of a sort are not the ranks."""
    fours = _fours(w)
    order = jnp.argsort(-jnp.abs(fours), axis=1, stable=True)
    return jnp.where(order < 2, fours, 0).reshape(w.shape)


@wrong("values")
def first_two(w):
    return jnp.where(jnp.arange(4)[None, :, None] < 2, _fours(w), 0).reshape(w.shape)


@wrong("values")
def of_the_first_column(w):
    """One pattern for all columns."""
    fours = _fours(w)
    order = jnp.argsort(-jnp.abs(fours).sum(axis=2), axis=1, stable=True)
    ranks = jnp.argsort(order, axis=1)[:, :, None]
    return jnp.where(ranks < 2, fours, 0).reshape(w.shape)


@wrong("values")
def in_float32(w):
    fours = _fours(w).astype(jnp.float32)
    order = jnp.argsort(-jnp.abs(fours), axis=1, stable=True)
    return jnp.where(jnp.argsort(order, axis=1) < 2, fours, 0).reshape(w.shape)


@wrong("gradient")
def gradient_twice(w):
    fours = _fours(w)
    order = jnp.argsort(-jnp.abs(fours), axis=1, stable=True)
    kept = jnp.where(jnp.argsort(order, axis=1) < 2, fours, 0).reshape(w.shape)
    return 2 * kept - lax.stop_gradient(kept)


@wrong("errors")
def refused_by_an_assertion(w):
    assert w.shape[0] % 4 == 0
    fours = w.reshape(-1, 4, w.shape[1])
    order = jnp.argsort(-jnp.abs(fours), axis=1, stable=True)
    return jnp.where(jnp.argsort(order, axis=1) < 2, fours, 0).reshape(w.shape)


@wrong("communication")
def compared_over_devices(w):
    """Every device tells all others its largest magnitudes."""
    fours = _fours(w)
    axes = jax.sharding.get_abstract_mesh().axis_names
    largest = lax.pmax(lax.stop_gradient(jnp.abs(fours).max(axis=0)), axes)
    order = jnp.argsort(-jnp.abs(fours) + 0 * largest[None], axis=1, stable=True)
    return jnp.where(jnp.argsort(order, axis=1) < 2, fours, 0).reshape(w.shape)
