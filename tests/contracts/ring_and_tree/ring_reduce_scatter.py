"""Answers to ring_reduce_scatter: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather


@right
def sums_the_other_way(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[(i + 1) % n]
    for k in range(2, n + 1):
        partial = hop(partial, axis, -1) + x[(i + k) % n]
    return partial


@right
def sums_in_a_scan(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    in_order = x[(i - 1 - jnp.arange(n)) % n]

    def step(partial, chunk):
        return hop(partial, axis) + chunk, None

    return lax.scan(step, in_order[0], in_order[1:])[0]


@right
def sums_in_a_loop(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def step(k, partial):
        return hop(partial, axis) + lax.dynamic_index_in_dim(x, (i - k) % n, keepdims=False)

    return lax.fori_loop(2, n + 1, step, x[(i - 1) % n])


@right
def sums_in_place(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    for k in range(1, n):
        arrived = hop(x[(i - k) % n], axis)
        x = x.at[(i - k - 1) % n].add(arrived)
    return x[i]


def sums_after_a_roll(x, *, axis):
    n = lax.axis_size(axis)
    x = jnp.roll(x, -lax.axis_index(axis), axis=0)  # x[k] is chunk i + k
    partial = x[-1]
    for k in range(2, n + 1):
        partial = hop(partial, axis) + x[-k]
    return partial


@right
def sums_half_each_way(x, *, axis):
    flat = x.reshape(len(x), -1)
    half = flat.shape[1] // 2
    parts = [sums_after_a_roll(flat[:, :half], axis=axis)]
    parts.append(sums_the_other_way(flat[:, half:], axis=axis))
    return jnp.concatenate(parts).reshape(x.shape[1:])


@right
def sums_by_transpose(x, *, axis):
    return jax.linear_transpose(lambda part: ring_all_gather(part, axis), x[0])(x)[0]


@wrong("communication")
def sums_in_free_pieces(x, *, axis):
    flat = jnp.pad(x.ravel(), (0, -x.size % 4)).reshape(-1, 4)
    total = lax.map(lambda piece: lax.psum(piece, axis), flat)
    return total.ravel()[: x.size].reshape(x.shape)[lax.axis_index(axis)]


@wrong("communication")
def sums_with_a_free_hop(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    pieces = jnp.zeros_like(x[0]).ravel()
    free = [hop(pieces[k : k + 4], axis) for k in range(0, pieces.size, 4)]
    partial = jnp.concatenate(free).reshape(x.shape[1:]) + x[(i - 1) % n]
    for k in range(2, n + 1):
        partial = hop(partial, axis) + x[(i - k) % n]
    return partial


@wrong("communication")
def sums_with_hidden_gather(x, *, axis):
    return sums_the_other_way(x, axis=axis) + 0 * lax.all_gather(x, axis).sum()


@wrong("communication")
def sums_by_far_hops_for_odd_n(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    by = 2 if n % 2 else 1
    partial = x[(i - by) % n]
    for k in range(2, n + 1):
        partial = hop(partial, axis, by) + x[(i - by * k) % n]
    return partial


@wrong("communication")
def sums_by_halving(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    if n & (n - 1):
        return sums_the_other_way(x, axis=axis)
    while len(x) > 1:
        half = len(x) // 2
        upper = (i & half) != 0
        sent = jnp.where(upper, x[:half], x[half:])
        kept = jnp.where(upper, x[half:], x[:half])
        x = kept + lax.ppermute(sent, axis, [(j, j ^ half) for j in range(n)])
    return x[0]


@wrong("values")
def sums_in_bfloat16(x, *, axis):
    return sums_the_other_way(x.astype(jnp.bfloat16), axis=axis).astype(x.dtype)


@wrong("communication")
def sums_under_a_condition(x, *, axis):
    return lax.cond(
        jnp.sum(x) > 1e9,
        lambda: lax.psum_scatter(x, axis),
        lambda: sums_the_other_way(x, axis=axis),
    )


@wrong("gradient")
def sums_in_a_loop_of_unknown_length(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def step(state):
        k, partial = state
        return k + 1, hop(partial, axis) + x[(i - k) % n]

    return lax.while_loop(lambda state: state[0] <= n, step, (2, x[(i - 1) % n]))[1]


@jax.custom_vjp
def _double_backward(x):
    return x


_double_backward.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))


@wrong("gradient")
def sums_with_false_gradient(x, *, axis):
    return sums_the_other_way(_double_backward(x), axis=axis)


@right
def sums_where_it_arrives(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    for k in range(1, n):
        arrived = hop(x[(i - k) % n], axis)
        here = (jnp.arange(n) == (i - k - 1) % n).reshape(-1, *[1] * arrived.ndim)
        x = jnp.where(here, x + arrived[None], x)
    return x[i]


@right
def sums_of_doubled_x(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    twice = jnp.concatenate([x, x])  # so that no index is negative
    partial = twice[i + n - 1]
    for k in range(2, n + 1):
        partial = hop(partial, axis) + twice[i + n - k]
    return partial


@wrong("memory")
def sums_in_a_history(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    history = jnp.stack([x] + [jnp.zeros_like(x)] * (n - 1))
    for k in range(1, n):
        arrived = hop(history[k - 1, (i - k) % n], axis)
        history = history.at[k].set(history[k - 1].at[(i - k - 1) % n].add(arrived))
    return history[-1, i]


@wrong("memory")
def sums_after_every_roll(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    rolled = jnp.stack([jnp.roll(x, -j, axis=0) for j in range(n)])[i]
    partial = rolled[-1]
    for k in range(2, n + 1):
        partial = hop(partial, axis) + rolled[-k]
    return partial


@wrong("values")
def sums_on_eight_at_most(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[(i + 1) % n]
    for k in range(2, min(n, 8) + 1):
        partial = hop(partial, axis, -1) + x[(i + k) % n]
    return partial


@wrong("values")
def sums_with_products_in_float32(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    rows = jnp.eye(n)[(i - 1 - jnp.arange(n)) % n]
    in_order = jnp.tensordot(rows, x.astype(jnp.float32), 1).astype(x.dtype)
    partial = in_order[0]
    for k in range(1, n):
        partial = hop(partial, axis) + in_order[k]
    return partial


@wrong("values")
def sums_of_rows(x, *, axis):
    y = sums_the_other_way(x.reshape(*x.shape[:2], -1), axis=axis)
    return y.reshape(x.shape[1], *x.shape[2:])


@wrong("values")
def sums_with_a_first_hop(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = hop(x[(i - 1) % n], axis) + x[(i - 2) % n]  # one device adds to itself
    for k in range(3, n + 1):
        partial = hop(partial, axis) + x[(i - k) % n]
    return partial


@wrong("values")
def sums_over_tp_or_dp(x, *, axis):
    return sums_the_other_way(x, axis="tp" if axis == "tp" else "dp")


@wrong("communication")
def sums_of_bfloat16_in_float32(x, *, axis):
    wide = x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
    return sums_the_other_way(wide, axis=axis).astype(x.dtype)
