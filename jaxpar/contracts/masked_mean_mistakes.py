"""Wrong answers to the mean over a padded batch that people write."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake


def _total(values: Array, mask: Array) -> Array:
    return jnp.sum(values, where=mask)


def _mean_of_means(values: Array, mask: Array, *, axis: str) -> Array:
    mean = _total(values, mask) / jnp.maximum(mask.sum(), 1)
    return lax.pmean(mean, axis)


def _nan_of_padding(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.pmean(_total(values, mask) / mask.sum(), axis)


def _nan_stays_local(values: Array, mask: Array, *, axis: str) -> Array:
    return _total(values, mask) / mask.sum()


def _padding_counted(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.pmean(_total(values, mask) / mask.size, axis)


def _padding_averaged(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.pmean(values.mean(), axis)


def _padding_added(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.psum(values.sum(), axis) / lax.psum(mask.sum(), axis)


def _numerator_only(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.psum(_total(values, mask), axis) / jnp.maximum(mask.sum(), 1)


def _numerator_as_mean(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.pmean(_total(values, mask), axis) / lax.psum(mask.sum(), axis)


def _mean_stays_local(values: Array, mask: Array, *, axis: str) -> Array:
    return _total(values, mask) / jnp.maximum(mask.sum(), 1)


def _sum_of_real(values: Array, mask: Array, *, axis: str) -> Array:
    return lax.psum(_total(values, mask), axis)


def _masked_mean_cuts_gradient(values: Array, mask: Array, *, axis: str) -> Array:
    total = lax.psum(jax.lax.stop_gradient(_total(values, mask)), axis)
    mine = _total(values, mask) - lax.stop_gradient(_total(values, mask))
    return total / lax.psum(mask.sum(), axis) + mine / jnp.maximum(mask.sum(), 1)


def _gathers_values(values: Array, mask: Array, *, axis: str) -> Array:
    values, mask = lax.all_gather((values, mask), axis)
    return _total(values, mask) / mask.sum()


def _adds_devices_first(values: Array, mask: Array, *, axis: str) -> Array:
    total, count = lax.psum((jnp.where(mask, values, 0), mask.astype(values.dtype)), axis)
    return total.sum() / count.sum()


MISTAKES = (
    Mistake("mean_of_means", _mean_of_means, "values"),
    Mistake("nan_of_padding", _nan_of_padding, "values"),
    Mistake("nan_stays_local", _nan_stays_local, "values"),
    Mistake("padding_counted", _padding_counted, "values"),
    Mistake("padding_averaged", _padding_averaged, "values"),
    Mistake("padding_added", _padding_added, "values"),
    Mistake("numerator_only", _numerator_only, "values"),
    Mistake("numerator_as_mean", _numerator_as_mean, "values"),
    Mistake("mean_stays_local", _mean_stays_local, "values"),
    Mistake("sum_of_real", _sum_of_real, "values"),
    Mistake("masked_mean_cuts_gradient", _masked_mean_cuts_gradient, "gradient"),
    Mistake("gathers_values", _gathers_values, "communication"),
    Mistake("adds_devices_first", _adds_devices_first, "communication"),
)
