"""Wrong answers to products in two dims, and in two and a half, that people write."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake
from jaxpar.mesh import varying_axes

Matmul = Callable[..., Array]
Gather = Callable[[Array, str, int], Array]


def side(rows: str, cols: str) -> int:
    """The size of both axes."""
    q = lax.axis_size(rows)
    if q != lax.axis_size(cols):
        raise ValueError("the devices must be a square")
    return q


def gathered(x: Array, axis: str, dim: int) -> Array:
    """All blocks along the axis, one beside the other; so far right."""
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def interleaved(x: Array, axis: str, dim: int) -> Array:
    """Row by row, or column by column, of all blocks in turn."""
    shape = list(x.shape)
    shape[dim] *= lax.axis_size(axis)
    return lax.all_gather(x, axis, axis=dim + 1).reshape(shape)


def all_reduced_backward(x: Array, axis: str, dim: int) -> Array:
    """The gradient is summed whole on all devices, and each takes its part."""
    y = lax.all_gather(x, axis, axis=dim, tiled=True, to="invarying")
    return lax.pcast(y, axis, to="varying")


def gathered_by_sum(x: Array, axis: str, dim: int) -> Array:
    """An all-reduce of zeros with one block each."""
    i = lax.axis_index(axis)
    blocks = [jnp.where(i == device, x, 0) for device in range(lax.axis_size(axis))]
    return lax.psum(jnp.concatenate(blocks, axis=dim), axis)


def own_gradient(x: Array, axis: str, dim: int) -> Array:
    """Right values; the gradient is that of this device's own use of its block."""
    others = lax.stop_gradient(gathered(x, axis, dim))
    zero, start = x - lax.stop_gradient(x), lax.axis_index(axis) * x.shape[dim]
    return others + lax.dynamic_update_slice_in_dim(jnp.zeros_like(others), zero, start, dim)


def own_part(y: Array, axis: str, dim: int) -> Array:
    """Of a whole array this device's part."""
    size = y.shape[dim] // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(y, lax.axis_index(axis) * size, size, dim)


def _by_gathers(gather: Gather = gathered, *, x_over: str = "cols", w_over: str = "rows") -> Matmul:
    """Blocks of x gathered over an axis, those of w over another, one product."""

    def function(x: Array, w: Array, *, rows: str, cols: str) -> Array:
        side(rows, cols)
        axes = {"rows": rows, "cols": cols}
        return gather(x, axes[x_over], 1) @ gather(w, axes[w_over], 0)

    return function


def _unchecked(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    return gathered(x, cols, 1) @ gathered(w, rows, 0)


def _brought(x: Array, root: Array | int, axis: str) -> Array:
    """The root's x, by a sum of zeros with it."""
    return lax.psum(jnp.where(lax.axis_index(axis) == root, x, 0), axis)


def _unrolled(missing: int) -> Matmul:
    """One round after the other, in a Python loop, but for the last ones."""

    def function(x: Array, w: Array, *, rows: str, cols: str) -> Array:
        y = jnp.zeros((len(x), w.shape[1]), x.dtype)
        for k in range(side(rows, cols) - missing):
            y += _brought(x, k, cols) @ _brought(w, k, rows)
        return y

    return function


def _rounds_kept(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    q = side(rows, cols)

    def one_round(_: None, k: Array) -> tuple[None, tuple[Array, Array]]:
        here = lax.pcast(_brought(x, k, cols), cols, to="varying")
        return None, (here, lax.pcast(_brought(w, k, rows), rows, to="varying"))

    blocks = lax.scan(one_round, None, jnp.arange(q))[1]
    return jnp.einsum("qmk,qkn->mn", *blocks)


def _gathers_in_rounds(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    q = side(rows, cols)

    def one_round(y: Array, k: Array) -> tuple[Array, None]:
        return y + lax.all_gather(x, cols)[k] @ lax.all_gather(w, rows)[k], None

    y = jnp.zeros((len(x), w.shape[1]), x.dtype)
    y = lax.pcast(y, tuple(varying_axes(x) | varying_axes(w)), to="varying")
    return lax.scan(one_round, y, jnp.arange(q))[0]


def _not_skewed(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    q = side(rows, cols)
    to_previous = [((i + 1) % q, i) for i in range(q)]
    y = x @ w
    for _ in range(q - 1):
        x, w = lax.ppermute(x, cols, to_previous), lax.ppermute(w, rows, to_previous)
        y += x @ w
    return y


def _own_blocks(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    side(rows, cols)
    return x @ w


def _products_summed(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    side(rows, cols)
    return lax.psum(x @ w, rows)


def _whole_matrices(x: Array, w: Array, rows: str, cols: str) -> Array:
    x, w = gathered(gathered(x, cols, 1), rows, 0), gathered(gathered(w, cols, 1), rows, 0)
    return x @ w


def _whole_result(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    side(rows, cols)
    return _whole_matrices(x, w, rows, cols)


def _gathers_over_both(x: Array, w: Array, *, rows: str, cols: str) -> Array:
    side(rows, cols)
    return own_part(own_part(_whole_matrices(x, w, rows, cols), rows, 0), cols, 1)


def _in_each_square(matmul: Matmul) -> Matmul:
    """The same mistake in 2.5D; the gradient of w is summed over depth."""

    def function(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
        return matmul(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)

    return function


_right = _by_gathers()


def _cast_implicit(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    return _right(x, w, rows=rows, cols=cols)


def _depth_not_summed(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    w = lax.pcast(w, depth, to="varying")
    w = jnp.where(lax.axis_index(depth) == 0, w, lax.stop_gradient(w))
    return _right(x, w, rows=rows, cols=cols)


def _depth_averaged(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    fixed = lax.stop_gradient(w)
    w = fixed + (w - fixed) / lax.axis_size(depth)
    return _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)


def _w_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    w = lax.psum(jnp.where(lax.axis_index(depth) == 0, w, 0), depth)
    return _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)


def _x_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    x = gathered(x, depth, 0)
    y = _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)
    return own_part(y, depth, 0)


def _summed_over_depth(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    y = _in_each_square(_right)(x, w, rows=rows, cols=cols, depth=depth)
    return lax.psum(y, depth)


def _deep_whole_result(x: Array, w: Array, *, rows: str, cols: str, depth: str) -> Array:
    y = _in_each_square(_whole_result)(x, w, rows=rows, cols=cols, depth=depth)
    return gathered(y, depth, 0)


_VALUES_2D = (
    ("x_along_rows", _by_gathers(x_over="rows")),
    ("w_along_cols", _by_gathers(w_over="cols")),
    ("blocks_along_wrong_axes", _by_gathers(x_over="rows", w_over="cols")),
    ("inner_blocks_interleaved", _by_gathers(lambda *given: _one_interleaved(*given))),
    ("round_missing", _unrolled(missing=1)),
    ("products_summed", _products_summed),
    ("own_blocks_only", _own_blocks),
    ("cannon_not_skewed", _not_skewed),
)


def _one_interleaved(x: Array, axis: str, dim: int) -> Array:
    return interleaved(x, axis, dim) if dim == 0 else gathered(x, axis, dim)


_GRADIENT_2D = (("gradient_of_own_block", _by_gathers(own_gradient)),)
_COMMUNICATION_2D = (
    ("block_gradients_all_reduced", _by_gathers(all_reduced_backward)),
    ("blocks_gathered_by_sum", _by_gathers(gathered_by_sum)),
    ("blocks_gathered_over_both", _gathers_over_both),
    ("blocks_gathered_in_rounds", _gathers_in_rounds),
)

SUMMA_MATMUL = (
    *(Mistake(name, function, "values") for name, function in _VALUES_2D),
    *(Mistake(name, function, "gradient") for name, function in _GRADIENT_2D),
    Mistake("product_whole", _whole_result, "sharding"),
    *(Mistake(name, function, "communication") for name, function in _COMMUNICATION_2D),
    Mistake("rounds_unrolled", _unrolled(missing=0), "memory"),
    Mistake("rounds_kept", _rounds_kept, "memory"),
    Mistake("square_not_checked", _unchecked, "errors"),
)
MATMUL_2_5D = (
    *(Mistake(name, _in_each_square(function), "values") for name, function in _VALUES_2D),
    Mistake("summed_over_depth", _summed_over_depth, "values"),
    *(Mistake(name, _in_each_square(function), "gradient") for name, function in _GRADIENT_2D),
    Mistake("depth_not_summed", _depth_not_summed, "gradient"),
    Mistake("depth_averaged", _depth_averaged, "gradient"),
    Mistake("product_whole", _deep_whole_result, "sharding"),
    *(
        Mistake(name, _in_each_square(function), "communication")
        for name, function in _COMMUNICATION_2D
    ),
    Mistake("depth_cast_implicit", _cast_implicit, "communication"),
    Mistake("w_over_depth", _w_over_depth, "communication"),
    Mistake("x_over_depth", _x_over_depth, "communication"),
    Mistake("square_not_checked", _in_each_square(_unchecked), "errors"),
)
