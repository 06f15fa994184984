"""Wrong MLPs of sequence parallelism that people write."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake

Answer = Callable[..., Array]


def _gather(x: Array, axis: str, dim: int = 1) -> Array:
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def _scatter(y: Array, axis: str, dim: int = 1) -> Array:
    return lax.psum_scatter(y, axis, scatter_dimension=dim, tiled=True)


def _cut(y: Array, axis: str) -> Array:
    """This device's positions of all."""
    size = y.shape[1] // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(y, lax.axis_index(axis) * size, size, axis=1)


def _with(
    before: Callable[[Array, str], Array] = _gather,
    after: Callable[[Array, str], Array] = _scatter,
    activate: Callable[[Array], Array] = jax.nn.gelu,
) -> Answer:
    """The MLP with something else before the columns, after the rows, or in between."""

    def answer(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
        return after(activate(before(x, axis) @ w_up) @ w_down, axis)

    return answer


def _interleaved(x: Array, axis: str) -> Array:
    return lax.all_gather(x, axis, axis=2).reshape(len(x), -1, x.shape[2])


def _by_sum(x: Array, axis: str) -> Array:
    n, (b, t, d) = lax.axis_size(axis), x.shape
    whole = lax.pcast(jnp.zeros((b, n * t, d), x.dtype), axis, to="varying")
    return lax.psum(lax.dynamic_update_slice_in_dim(whole, x, lax.axis_index(axis) * t, 1), axis)


def _gather_whose_gradient(backward: Callable[[Array, str], Array]) -> Callable:
    """An all-gather with another derivative than its own."""

    def gather(x: Array, axis: str) -> Array:
        with_derivative = jax.custom_vjp(lambda x: _gather(x, axis))
        with_derivative.defvjp(
            lambda x: (_gather(x, axis), None), lambda _, c: (backward(c, axis),)
        )
        return with_derivative(x)

    return gather


def _summed_twice(y: Array, axis: str) -> Array:
    return _scatter(lax.pcast(lax.psum(y, axis), axis, to="varying"), axis)


def _gelu_after_sum(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    return jax.nn.gelu(_scatter(_gather(x, axis) @ w_up @ w_down, axis))


def _weights_gathered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    return jax.nn.gelu(x @ _gather(w_up, axis)) @ _gather(w_down, axis, 0)


SEQUENCE_PARALLEL_MLP = (
    Mistake("positions_not_gathered", _with(lambda x, axis: x, lax.psum), "values"),
    Mistake("batch_gathered", _with(lambda x, axis: _gather(x, axis, 0)), "values"),
    Mistake("batch_scattered", _with(after=lambda y, axis: _scatter(y, axis, 0)), "values"),
    Mistake("model_dim_scattered", _with(after=lambda y, axis: _scatter(y, axis, 2)), "values"),
    Mistake("positions_interleaved", _with(_interleaved), "values"),
    Mistake("positions_of_own_product", _with(after=_cut), "values"),
    Mistake("products_summed_twice", _with(after=_summed_twice), "values"),
    Mistake(
        "products_averaged",
        _with(after=lambda y, axis: _scatter(y, axis) / lax.axis_size(axis)),
        "values",
    ),
    Mistake("gelu_of_scattered_sum", _gelu_after_sum, "values"),
    Mistake("exact_gelu", _with(activate=lambda x: jax.nn.gelu(x, approximate=False)), "values"),
    Mistake("all_positions_returned", _with(after=lax.psum), "sharding"),
    Mistake("gradient_of_own_columns", _with(_gather_whose_gradient(_cut)), "gradient"),
    Mistake(
        "positions_cut_from_sum",
        _with(after=lambda y, axis: _cut(lax.psum(y, axis), axis)),
        "communication",
    ),
    Mistake(
        "gradient_cut_from_sum",
        _with(lambda x, axis: lax.all_gather(x, axis, axis=1, tiled=True, to="invarying")),
        "communication",
    ),
    Mistake(
        "products_gathered",
        _with(after=lambda y, axis: _cut(lax.all_gather(y, axis).sum(axis=0), axis)),
        "communication",
    ),
    Mistake("positions_gathered_by_sum", _with(_by_sum), "communication"),
    Mistake("weights_not_x_gathered", _weights_gathered, "communication"),
)
