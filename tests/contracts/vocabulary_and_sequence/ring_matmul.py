"""Answers to ring_matmul: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import gathered, hop, scattered
from tests.contracts.answers import right


def _in_order(blocks, axis):
    """Block k comes from device i - k."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return jnp.concatenate(list(jnp.stack(blocks)[(i - jnp.arange(n)) % n]))


@right
def ring_with_rings_backward(x, w, *, axis):
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), len(x)

    def forward(x, w):
        blocks = [x @ w]
        for _ in range(n - 1):
            x = hop(x, axis)
            blocks.append(x @ w)
        return _in_order(blocks, axis)

    def backward(kept, c):
        x, w = kept
        rows = [lax.dynamic_slice_in_dim(c, (i - k) % n * t, t) for k in range(n)]
        of_w, of_x = x.T @ rows[0], rows[1 % n] @ w.T
        for k in range(1, n):
            x = hop(x, axis)
            of_w += x.T @ rows[k]
            of_x = hop(of_x, axis) + rows[(k + 1) % n] @ w.T
        return of_x, of_w

    product = jax.custom_vjp(forward)
    product.defvjp(lambda x, w: (forward(x, w), (x, w)), backward)
    return product(x, w)


@wrong("communication")
def ring_by_doubling(x, w, *, axis):
    n, i, t, k = lax.axis_size(axis), lax.axis_index(axis), len(x), 1
    while k < n:
        x, k = jnp.concatenate([x, hop(x, axis, k)[: (n - k) * t]]), 2 * k
    blocks = (x @ w).reshape(n, t, -1)
    return jnp.concatenate(list(blocks[(i - jnp.arange(n)) % n]))


@right
def ring_of_blocks(x, w, *, axis):
    blocks = [x @ w]
    for _ in range(lax.axis_size(axis) - 1):
        x = hop(x, axis)
        blocks.append(x @ w)
    return _in_order(blocks, axis)


@right
def ring_backwards_and_rolled(x, w, *, axis):
    blocks = [x @ w]
    for _ in range(lax.axis_size(axis) - 1):
        x = hop(x, axis, -1)
        blocks.append(x @ w)
    return jnp.roll(jnp.concatenate(blocks), lax.axis_index(axis) * len(x), axis=0)


@right
def ring_by_scan(x, w, *, axis):
    def one_round(x, _):
        x = hop(x, axis)
        return x, x @ w

    _, arrived = lax.scan(one_round, x, None, length=lax.axis_size(axis) - 1)
    return _in_order([x @ w, *arrived], axis)


@right
def ring_by_loop(x, w, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def put(k, x, y):
        return lax.dynamic_update_slice_in_dim(y, x @ w, (i - k) % n * len(x), 0)

    def one_round(k, carry):
        x = hop(carry[0], axis)
        return x, put(k, x, carry[1])

    y = jnp.concatenate([0 * (x @ w)] * n)
    return lax.fori_loop(1, n, one_round, (x, put(0, x, y)))[1]


@right
def ring_both_ways(x, w, *, axis):
    n = lax.axis_size(axis)
    blocks = {0: x @ w}
    up = down = x
    for k in range(1, n // 2 + 1):
        up = hop(up, axis)
        blocks[k] = up @ w
    for k in range(1, n - n // 2):
        down = hop(down, axis, -1)
        blocks[n - k] = down @ w
    return _in_order([blocks[k] for k in range(n)], axis)


@right
def ring_of_halves(x, w, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    size, half = len(x), len(x) // 2
    y = jnp.concatenate([x @ w] * n)
    up, down = x[:half], x[half:]
    for k in range(1, n):
        up, down = hop(up, axis), hop(down, axis, -1)
        y = lax.dynamic_update_slice_in_dim(y, up @ w, (i - k) % n * size, 0)
        y = lax.dynamic_update_slice_in_dim(y, down @ w, (i + k) % n * size + half, 0)
    return y


@right
def ring_gathered_again_backward(x, w, *, axis):
    return jax.checkpoint(lambda x, w: ring_of_blocks(x, w, axis=axis))(x, w)


@right
def ring_with_gradient_by_hand(x, w, *, axis):
    @jax.custom_vjp
    def product(x, w):
        return ring_of_blocks(x, w, axis=axis)

    def backward(kept, gradient):
        x, w = kept
        return scattered(gradient @ w.T, axis), gathered(x, axis).T @ gradient

    product.defvjp(lambda x, w: (product(x, w), (x, w)), backward)
    return product(x, w)


@wrong("values")
def ring_of_rounded_rows(x, w, *, axis):
    blocks, small = [x @ w], x.astype(jnp.bfloat16)
    for _ in range(lax.axis_size(axis) - 1):
        small = hop(small, axis)
        blocks.append(small.astype(x.dtype) @ w)
    return _in_order(blocks, axis)


@wrong("communication")
def ring_in_one_exchange(x, w, *, axis):
    n = lax.axis_size(axis)
    copies = jnp.broadcast_to(x, (n, *x.shape))
    return lax.all_to_all(copies, axis, 0, 0).reshape(-1, x.shape[1]) @ w


@wrong("communication")
def ring_of_transposed_product(x, w, *, axis):
    """Columns are gathered, and products exchanged: right, by more than the rows."""
    products = jnp.split(x @ gathered(w, axis, 1), lax.axis_size(axis), axis=1)
    blocks = jnp.stack(products)
    return lax.all_to_all(blocks, axis, 0, 0).reshape(-1, w.shape[1])


@wrong("communication")
def ring_of_rows_sent_twice(x, w, *, axis):
    twice, blocks = jnp.stack([x, x]), [x @ w]
    for _ in range(lax.axis_size(axis) - 1):
        twice = hop(twice, axis)
        blocks.append(twice.mean(axis=0) @ w)
    return _in_order(blocks, axis)


@wrong("communication")
def ring_with_a_hop_backward(x, w, *, axis):
    @jax.custom_vjp
    def again(x):
        return x

    def backward(_, gradient):
        for _ in range(2 * lax.axis_size(axis)):
            gradient = hop(gradient, axis)
        return (gradient,)

    again.defvjp(lambda x: (x, None), backward)
    return ring_of_blocks(again(x), w, axis=axis)


@wrong("memory")
def ring_gathered_in_place(x, w, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    whole = jnp.concatenate([x] * n)
    for k in range(1, n):
        x = hop(x, axis)
        whole = lax.dynamic_update_slice_in_dim(whole, x, (i - k) % n * len(x), 0)
    return whole @ w


@right
def ring_put_by_permutation_matrix(x, w, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = [x @ w]
    for _ in range(n - 1):
        x = hop(x, axis)
        blocks.append(x @ w)
    places = jax.nn.one_hot((i - jnp.arange(n)) % n, n, dtype=x.dtype)
    return jnp.einsum("jk,ktf->jtf", places, jnp.stack(blocks)).reshape(-1, w.shape[1])


@right
def ring_put_by_masks(x, w, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros((n, len(x), w.shape[1]), x.dtype)
    for k in range(n):
        y += jax.nn.one_hot((i - k) % n, n, dtype=x.dtype)[:, None, None] * (x @ w)[None]
        x = hop(x, axis) if k < n - 1 else x
    return y.reshape(-1, w.shape[1])


@wrong("memory")
def ring_of_a_stack_of_copies(x, w, *, axis):
    n, blocks, held = lax.axis_size(axis), [x @ w], jnp.stack([x] * lax.axis_size(axis))
    for k in range(1, n):
        x = hop(x, axis)
        held = held.at[k].set(x)
        blocks.append(held[k] @ w)
    return _in_order(blocks, axis)


@wrong("memory")
def ring_of_rows_by_scan(x, w, *, axis):
    """All rows are there before the first product."""

    def one_round(x, _):
        arrived = hop(x, axis)
        return arrived, arrived

    _, rows = lax.scan(one_round, x, None, length=lax.axis_size(axis) - 1)
    return _in_order([block @ w for block in [x, *rows]], axis)


@wrong("memory")
def ring_of_half_the_rows_at_once(x, w, *, axis):
    n, blocks = lax.axis_size(axis), []
    while len(blocks) < n:
        held = [x]
        for _ in range(min(n // 2 + 1, n - len(blocks)) - 1):
            held.append(hop(held[-1], axis))
        blocks += list(jnp.stack(held) @ w)
        x = hop(held[-1], axis) if len(blocks) < n else x
    return _in_order(blocks, axis)


@wrong("memory")
def ring_of_rows_among_zeros(x, w, *, axis):
    n, i, t, y = lax.axis_size(axis), lax.axis_index(axis), len(x), 0
    for k in range(n):
        zeros = jnp.zeros_like(x, shape=(n * t, x.shape[1]))
        y += lax.dynamic_update_slice_in_dim(zeros, x, (i - k) % n * t, 0) @ w
        x = hop(x, axis) if k < n - 1 else x
    return y


@wrong("values")
def ring_of_two_or_more(x, w, *, axis):
    if lax.axis_size(axis) < 2:
        raise ValueError("a ring has at least two devices")
    return ring_of_blocks(x, w, axis=axis)


@wrong("values")
def ring_over_the_last_axis(x, w, *, axis):
    return ring_of_blocks(x, w, axis=jax.sharding.get_abstract_mesh().axis_names[-1])


@wrong("flops")
def ring_of_columns_twice(x, w, *, axis):
    twice = ring_of_blocks(x, jnp.concatenate([w, w], axis=1), axis=axis)
    return twice[:, : w.shape[1]]
