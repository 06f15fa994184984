"""Answers to sequence_parallel_mlp: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import among_zeros, enter, gathered, hop, own_shard, scattered
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather, ring_reduce_scatter


def _gather(x, axis):
    """All positions."""
    return gathered(x, axis, 1)


def _scatter(y, axis):
    """This device's positions of the sum."""
    return scattered(y, axis, 1)


@right
def mlp_untiled_by_blocks(x, w_up, w_down, *, axis):
    """The gathered dim of devices is one more dim of the batch, and is scattered again."""
    return lax.psum_scatter(jax.nn.gelu(lax.all_gather(x, axis) @ w_up) @ w_down, axis)


@right
def mlp_with_own_derivative(x, w_up, w_down, *, axis):
    def forward(x, w_up, w_down):
        return _scatter(jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down, axis)

    def backward(kept, c):
        x, w_up, w_down = kept
        whole, c = _gather(x, axis), _gather(c, axis)
        hidden, pull = jax.vjp(jax.nn.gelu, whole @ w_up)
        (of_up,) = pull(c @ w_down.T)
        of_w_up = jnp.einsum("btd,btf->df", whole, of_up)
        return _scatter(of_up @ w_up.T, axis), of_w_up, jnp.einsum("btf,btd->fd", hidden, c)

    mlp = jax.custom_vjp(forward)
    mlp.defvjp(lambda *args: (forward(*args), args), backward)
    return mlp(x, w_up, w_down)


@wrong("values")
def mlp_of_rows_placed_by_n(x, w_up, w_down, *, axis):
    """Right where each device has n positions."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    whole = jnp.concatenate([x] * n, axis=1)
    for k in range(1, n):
        x = hop(x, axis)
        whole = lax.dynamic_update_slice_in_dim(whole, x, (i - k) % n * n, 1)
    return _scatter(jax.nn.gelu(whole @ w_up) @ w_down, axis)


@wrong("communication")
def mlp_of_travelling_weights(x, w_up, w_down, *, axis):
    y = jax.nn.gelu(x @ w_up) @ w_down
    for _ in range(lax.axis_size(axis) - 1):
        w_up, w_down = hop(w_up, axis), hop(w_down, axis)
        y += jax.nn.gelu(x @ w_up) @ w_down
    return y


@right
def gathered_again(x, w_up, w_down, *, axis):
    @jax.checkpoint
    def up(x, w_up):
        return _gather(x, axis) @ w_up

    return _scatter(jax.nn.gelu(up(x, w_up)) @ w_down, axis)


@right
def all_computed_again(x, w_up, w_down, *, axis):
    @jax.checkpoint
    def mlp(x, w_up, w_down):
        return _scatter(jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down, axis)

    return mlp(x, w_up, w_down)


@right
def over_the_batch(x, w_up, w_down, *, axis):
    """Positions do not meet in an MLP: any dim but d will do, if it is the same at both ends."""
    return scattered(jax.nn.gelu(gathered(x, axis) @ w_up) @ w_down, axis)


@right
def by_exchange(x, w_up, w_down, *, axis):
    n = lax.axis_size(axis)
    copies = jnp.broadcast_to(x, (n, *x.shape))
    hidden = jax.nn.gelu(lax.all_to_all(copies, axis, 0, 0) @ w_up)
    return lax.all_to_all(hidden @ w_down, axis, 0, 0).sum(axis=0)


@right
def in_rings(x, w_up, w_down, *, axis):
    hidden = jax.nn.gelu(ring_all_gather(x, axis) @ w_up)
    return ring_reduce_scatter(hidden @ w_down, axis)


@wrong("values")
def gathered_in_bfloat16(x, w_up, w_down, *, axis):
    x = _gather(x.astype(jnp.bfloat16), axis).astype(x.dtype)
    return _scatter(jax.nn.gelu(x @ w_up) @ w_down, axis)


@wrong("values")
def over_four_devices(x, w_up, w_down, *, axis):
    blocks = jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down
    return lax.psum_scatter(blocks.reshape(len(x), 4, -1, x.shape[2]).swapaxes(0, 1), axis)


@wrong("values")
def over_all_axes(x, w_up, w_down, *, axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    y = _scatter(jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down, axis)
    others = tuple(name for name in axes if name != axis)
    return lax.psum(enter(y, others), others) if others else y


@wrong("gradient")
def gradient_of_fixed_columns(x, w_up, w_down, *, axis):
    hidden = jax.nn.gelu(_gather(x, axis) @ lax.stop_gradient(w_up))
    return _scatter(hidden @ w_down, axis)


@wrong("gradient")
def gradient_summed_twice(x, w_up, w_down, *, axis):
    @jax.custom_vjp
    def gather(x):
        return _gather(x, axis)

    def backward(_, c):
        return (_scatter(enter(lax.psum(c, axis), axis), axis),)

    gather.defvjp(lambda x: (gather(x), None), backward)
    return _scatter(jax.nn.gelu(gather(x) @ w_up) @ w_down, axis)


@wrong("communication")
def gathered_twice(x, w_up, w_down, *, axis):
    both = jnp.stack([_gather(x, axis), _gather(x + 0, axis)]).mean(axis=0)
    return _scatter(jax.nn.gelu(both @ w_up) @ w_down, axis)


@wrong("communication")
def gathered_again_twice(x, w_up, w_down, *, axis):
    @jax.checkpoint
    def mlp(x, w_up, w_down):
        hidden = jax.checkpoint(lambda x, w_up: _gather(x, axis) @ w_up)(x, w_up)
        return _scatter(jax.nn.gelu(hidden) @ w_down, axis)

    return mlp(x, w_up, w_down)


@wrong("communication")
def result_gathered_and_cut(x, w_up, w_down, *, axis):
    y = _gather(_scatter(jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down, axis), axis)
    return own_shard(y, axis, 1)


@wrong("communication")
def columns_in_two_halves(x, w_up, w_down, *, axis):
    x, half = _gather(x, axis), w_up.shape[1] // 2
    first = _scatter(jax.nn.gelu(x @ w_up[:, :half]) @ w_down[:half], axis)
    return first + _scatter(jax.nn.gelu(x @ w_up[:, half:]) @ w_down[half:], axis)


@wrong("communication")
def hidden_gathered(x, w_up, w_down, *, axis):
    hidden = jax.nn.gelu(gathered(_gather(x, axis) @ w_up, axis, 2))
    return own_shard(hidden, axis, 1) @ gathered(w_down, axis)


@wrong("communication")
def one_round_too_many(x, w_up, w_down, *, axis):
    blocks = ring_all_gather(x, axis) + 0 * hop(x, axis)[None]
    return lax.psum_scatter(jax.nn.gelu(blocks @ w_up) @ w_down, axis)


@right
def mlp_example_by_example(x, w_up, w_down, *, axis):
    whole = _gather(x, axis)
    return _scatter(lax.map(lambda one: jax.nn.gelu(one @ w_up) @ w_down, whole), axis)


@right
def mlp_in_float32_inside(x, w_up, w_down, *, axis):
    """What is sent has the dtype of x, and what is multiplied has not."""
    wide = (a.astype(jnp.float32) for a in (_gather(x, axis), w_up, w_down))
    x32, up, down = wide
    return _scatter((jax.nn.gelu(x32 @ up) @ down).astype(x.dtype), axis)


@wrong("values")
def mlp_of_naive_tanh(x, w_up, w_down, *, axis):
    """Infinity by infinity where a hidden element is above 10."""
    hidden = _gather(x, axis) @ w_up
    power = jnp.exp(2 * (2 / jnp.pi) ** 0.5 * (hidden + 0.044715 * hidden**3))
    return _scatter(hidden / 2 * (1 + (power - 1) / (power + 1)) @ w_down, axis)


@wrong("gradient")
def mlp_of_naive_sigmoid(x, w_up, w_down, *, axis):
    hidden = _gather(x, axis) @ w_up
    power = jnp.exp(-2 * (2 / jnp.pi) ** 0.5 * (hidden + 0.044715 * hidden**3))
    return _scatter(hidden / (1 + power) @ w_down, axis)


@wrong("values")
def mlp_of_four_devices_at_most(x, w_up, w_down, *, axis):
    n, i, t, moving = lax.axis_size(axis), lax.axis_index(axis), x.shape[1], x
    whole = jnp.concatenate([x] * n, axis=1)
    for k in range(1, min(n, 4)):
        moving = hop(moving, axis)
        whole = lax.dynamic_update_slice_in_dim(whole, moving, (i - k) % n * t, 1)
    return _scatter(jax.nn.gelu(whole @ w_up) @ w_down, axis)


@wrong("communication")
def mlp_summed_in_float32(x, w_up, w_down, *, axis):
    y = jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down
    return _scatter(y.astype(jnp.float32), axis).astype(x.dtype)


@wrong("flops")
def mlp_computed_twice(x, w_up, w_down, *, axis):
    whole = _gather(x, axis)
    y = jax.nn.gelu(jnp.concatenate([whole, whole]) @ w_up) @ w_down
    return _scatter(y[: len(x)], axis)


@wrong("flops")
def mlp_of_all_columns_backward(x, w_up, w_down, *, axis):
    def forward(x, w_up, w_down):
        return _scatter(jax.nn.gelu(_gather(x, axis) @ w_up) @ w_down, axis)

    def backward(kept, c):
        x, w_up, w_down = kept
        whole = _gather(x, axis), among_zeros(w_up, axis, 1), among_zeros(w_down, axis)
        _, pull = jax.vjp(lambda x, up, down: jax.nn.gelu(x @ up) @ down, *whole)
        of_x, of_up, of_down = pull(_gather(c, axis))
        return _scatter(of_x, axis), own_shard(of_up, axis, 1), own_shard(of_down, axis)

    mlp = jax.custom_vjp(forward)
    mlp.defvjp(lambda *args: (forward(*args), args), backward)
    return mlp(x, w_up, w_down)
