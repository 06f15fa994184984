"""Wrong answers to the ring matmul that people write."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake


def _hop(x: Array, axis: str, by: int = 1) -> Array:
    """What arrives when every device sends its x `by` places on."""
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def _in_rounds(
    x: Array, w: Array, axis: str, place: Callable[[int], Array | int], rounds: int
) -> Array:
    """The ring with `rounds` products, that of round k as block place(k) of the result."""
    n, blocks = lax.axis_size(axis), {}
    for k in range(rounds):
        x = _hop(x, axis) if k else x
        blocks[k] = x @ w
    return _placed(blocks, place, n)


def _placed(blocks: dict[int, Array], place: Callable[[int], Array | int], n: int) -> Array:
    rows, columns = blocks[0].shape
    y = jnp.zeros_like(blocks[0], shape=(n * rows, columns))
    for k, block in blocks.items():
        y = lax.dynamic_update_slice_in_dim(y, block, place(k) % n * rows, 0)
    return y


def _mirrored(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return _in_rounds(x, w, axis, lambda k: i + k, n)


def _as_they_arrive(x: Array, w: Array, *, axis: str) -> Array:
    return _in_rounds(x, w, axis, lambda k: jnp.int32(k), lax.axis_size(axis))


def _one_round_short(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return _in_rounds(x, w, axis, lambda k: i - k, n - 1)


def _ring_of_eight(x: Array, w: Array, *, axis: str) -> Array:
    i = lax.axis_index(axis)
    return _in_rounds(x, w, axis, lambda k: i - k, 8)


def _off_by_one(x: Array, w: Array, *, axis: str) -> Array:
    """Sends before the first product: the device's own rows come last, in the place of the next."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return _in_rounds(_hop(x, axis), w, axis, lambda k: i - k, n)


def _sends_own_always(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    arrived = _hop(x, axis) @ w
    return _placed({0: x @ w} | dict.fromkeys(range(1, n), arrived), lambda k: i - k, n)


def _not_closed(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = {0: x @ w}
    for k in range(1, n):
        x = lax.ppermute(x, axis, [(j, j + 1) for j in range(n - 1)])
        blocks[k] = x @ w
    return _placed(blocks, lambda k: i - k, n)


def _product_travels(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = {0: x @ w}
    for k in range(1, n):
        blocks[k] = _hop(blocks[k - 1], axis)
    return _placed(blocks, lambda k: i - k, n)


def _weights_travel(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = {}
    for k in range(n):
        w = _hop(w, axis) if k else w
        blocks[k] = x @ w
    return _placed(blocks, lambda k: i - k, n)


def _summed(x: Array, w: Array, *, axis: str) -> Array:
    return lax.psum(_right(x, w, axis), axis)


def _own_rows_only(x: Array, w: Array, *, axis: str) -> Array:
    return x @ w


def _right(x: Array, w: Array, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return _in_rounds(x, w, axis, lambda k: i - k, n)


def _cuts_gradient(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = {0: x @ w}
    for k in range(1, n):
        x = lax.stop_gradient(_hop(x, axis))
        blocks[k] = x @ w
    return _placed(blocks, lambda k: i - k, n)


def _one_hop_too_many(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = {}
    for k in range(n):
        blocks[k] = x @ w
        x = _hop(x, axis)
    # What arrives last is its own rows again; they are used, so that the hop is not removed.
    blocks[0] = x @ w
    return _placed(blocks, lambda k: i - k, n)


def _gathers_first(x: Array, w: Array, *, axis: str) -> Array:
    return lax.all_gather(x, axis, tiled=True) @ w


def _gathers_by_sum(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return lax.psum(_placed({0: x}, lambda _: i, n), axis) @ w


def _far_hops(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = {k: (_hop(x, axis, k) if k else x) @ w for k in range(n)}
    return _placed(blocks, lambda k: i - k, n)


def _gathers_by_ring(x: Array, w: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = [x]
    for _ in range(n - 1):
        blocks.append(_hop(blocks[-1], axis))
    return jnp.stack(blocks)[(i - jnp.arange(n)) % n].reshape(-1, x.shape[1]) @ w


RING_MATMUL = (
    Mistake("ring_matmul_mirrored", _mirrored, "values"),
    Mistake("ring_matmul_as_they_arrive", _as_they_arrive, "values"),
    Mistake("ring_matmul_one_round_short", _one_round_short, "values"),
    Mistake("ring_matmul_off_by_one", _off_by_one, "values"),
    Mistake("ring_matmul_sends_own_always", _sends_own_always, "values"),
    Mistake("ring_matmul_not_closed", _not_closed, "values"),
    Mistake("ring_matmul_product_travels", _product_travels, "values"),
    Mistake("ring_matmul_weights_travel", _weights_travel, "values"),
    Mistake("ring_matmul_summed", _summed, "values"),
    Mistake("ring_matmul_own_rows_only", _own_rows_only, "values"),
    Mistake("ring_matmul_cuts_gradient", _cuts_gradient, "gradient"),
    Mistake("ring_matmul_of_eight", _ring_of_eight, "communication"),
    Mistake("ring_matmul_one_hop_too_many", _one_hop_too_many, "communication"),
    Mistake("ring_matmul_gathers_first", _gathers_first, "communication"),
    Mistake("ring_matmul_gathers_by_sum", _gathers_by_sum, "communication"),
    Mistake("ring_matmul_far_hops", _far_hops, "communication"),
    Mistake("ring_matmul_gathers_by_ring", _gathers_by_ring, "memory"),
)
