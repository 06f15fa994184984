"""Answers to parallel_swiglu: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import among_zeros, enter, gathered, own_shard, scattered
from tests.contracts.answers import right


@right
def mlp_in_one_product(x, w_gate, w_up, w_down, *, axis):
    gate, up = jnp.split(x @ jnp.concatenate([w_gate, w_up], axis=1), 2, axis=-1)
    return lax.psum((jax.nn.silu(gate) * up) @ w_down, axis)


@right
def mlp_by_einsum(x, w_gate, w_up, w_down, *, axis):
    x = enter(x, axis)
    both = jnp.einsum("btd,gdf->gbtf", x, jnp.stack([w_gate, w_up]))
    return lax.psum(jnp.einsum("btf,fd->btd", jax.nn.silu(both[0]) * both[1], w_down), axis)


def _local(x, w_gate, w_up, w_down):
    return (jax.nn.silu(x @ w_gate) * (x @ w_up)) @ w_down


@right
def mlp_with_own_derivative(x, w_gate, w_up, w_down, *, axis):
    @jax.custom_vjp
    def mlp(x, *weights):
        return lax.psum(_local(x, *weights), axis)

    def forward(x, *weights):
        return mlp(x, *weights), (x, *weights)

    def backward(kept, g):
        x, *weights = kept
        _, pull = jax.vjp(_local, enter(x, axis), *weights)
        of_x, *of_weights = pull(enter(g, axis))
        return (lax.psum(of_x, axis), *of_weights)

    mlp.defvjp(forward, backward)
    return mlp(x, w_gate, w_up, w_down)


@right
def mlp_entered_by_adding_zero(x, w_gate, w_up, w_down, *, axis):
    x = x + lax.axis_index(axis).astype(x.dtype) * 0
    return lax.psum(_local(x, w_gate, w_up, w_down), axis)


@right
def mlp_example_by_example(x, w_gate, w_up, w_down, *, axis):
    def one(x):
        return lax.psum(_local(enter(x, axis), w_gate, w_up, w_down), axis)

    return lax.map(one, x)


@right
def mlp_computed_again(x, w_gate, w_up, w_down, *, axis):
    @jax.checkpoint
    def mlp(x, *weights):
        return lax.psum(_local(enter(x, axis), *weights), axis)

    return mlp(x, w_gate, w_up, w_down)


@wrong("values")
def mlp_summed_in_bfloat16(x, w_gate, w_up, w_down, *, axis):
    partial = _local(enter(x, axis), w_gate, w_up, w_down)
    return lax.psum(partial.astype(jnp.bfloat16), axis).astype(x.dtype)


@wrong("values")
def mlp_over_the_whole_mesh(x, w_gate, w_up, w_down, *, axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    return lax.psum(_local(enter(x, axes), w_gate, w_up, w_down), axes)


@wrong("gradient")
def mlp_with_fixed_gate(x, w_gate, w_up, w_down, *, axis):
    x = enter(x, axis)
    gate = lax.stop_gradient(jax.nn.silu(x @ w_gate))
    return lax.psum((gate * (x @ w_up)) @ w_down, axis)


@wrong("communication")
def mlp_over_the_whole_mesh_divided(x, w_gate, w_up, w_down, *, axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    y = lax.psum(_local(enter(x, axes), w_gate, w_up, w_down), axes)
    return y * lax.axis_size(axis) / lax.axis_size(axes)


@wrong("communication")
def mlp_of_gathered_x(x, w_gate, w_up, w_down, *, axis):
    x = lax.all_gather(x, axis)[0]
    return lax.psum(_local(x, w_gate, w_up, w_down), axis)


@wrong("communication")
def mlp_typed_as_varying(x, w_gate, w_up, w_down, *, axis):
    return enter(lax.psum(_local(enter(x, axis), w_gate, w_up, w_down), axis), axis)


@wrong("communication")
def mlp_scattered_and_gathered(x, w_gate, w_up, w_down, *, axis):
    """Backward it gathers what every device has."""
    y = _local(enter(x, axis), w_gate, w_up, w_down)
    padded = jnp.pad(y.ravel(), (0, -y.size % lax.axis_size(axis)))
    whole = lax.all_gather(scattered(padded, axis), axis, tiled=True, to="invarying")
    return whole[: y.size].reshape(y.shape)


@wrong("communication")
def mlp_summed_in_halves_of_f(x, w_gate, w_up, w_down, *, axis):
    x, half = enter(x, axis), w_down.shape[0] // 2
    first = _local(x, w_gate[:, :half], w_up[:, :half], w_down[:half])
    second = _local(x, w_gate[:, half:], w_up[:, half:], w_down[half:])
    return lax.psum(first, axis) + lax.psum(second, axis)


@wrong("communication")
def mlp_of_whole_columns(x, w_gate, w_up, w_down, *, axis):
    """Right by gathering two matrices of three."""
    gate, up = (x @ gathered(w, axis, 1) for w in (w_gate, w_up))
    return lax.psum(own_shard(jax.nn.silu(gate) * up, axis, 2) @ w_down, axis)


def _mlp(x, w_gate, w_up, w_down, *, axis, silu):
    x = enter(x, axis)
    return lax.psum((silu(x @ w_gate) * (x @ w_up)) @ w_down, axis)


@right
def mlp_by_tanh(x, *weights, axis):
    return _mlp(x, *weights, axis=axis, silu=lambda g: g * (1 + jnp.tanh(g / 2)) / 2)


@right
def mlp_with_silu_in_float32(x, *weights, axis):
    def silu(g):
        return jax.nn.silu(g.astype(jnp.float32)).astype(g.dtype)

    return _mlp(x, *weights, axis=axis, silu=silu)


@wrong("values")
def mlp_by_growing_exponential(x, *weights, axis):
    return _mlp(x, *weights, axis=axis, silu=lambda g: g * jnp.exp(g) / (1 + jnp.exp(g)))


@wrong("gradient")
def mlp_by_sigmoid_that_overflows(x, *weights, axis):
    return _mlp(x, *weights, axis=axis, silu=lambda g: g * (1 / (1 + jnp.exp(-g))))


@wrong("gradient")
def mlp_by_chosen_exponential(x, *weights, axis):
    """The choice has right values, and NaN times 0 in its gradient."""

    def silu(g):
        return g * jnp.where(g > 0, 1 / (1 + jnp.exp(-g)), jnp.exp(g) / (1 + jnp.exp(g)))

    return _mlp(x, *weights, axis=axis, silu=silu)


@wrong("values")
def mlp_in_float32(x, *weights, axis):
    x, *weights = (y.astype(jnp.float32) for y in (x, *weights))
    return lax.psum(_local(enter(x, axis), *weights), axis)


@wrong("communication")
def mlp_summed_in_float32(x, *weights, axis):
    wide = (y.astype(jnp.float32) for y in weights)
    y = _local(enter(x, axis).astype(jnp.float32), *wide)
    return lax.psum(y, axis).astype(x.dtype)


@right
def mlp_in_float32_on_each_device(x, *weights, axis):
    wide = (y.astype(jnp.float32) for y in weights)
    y = _local(enter(x, axis).astype(jnp.float32), *wide)
    return lax.psum(y.astype(x.dtype), axis)


@wrong("values")
def mlp_of_at_most_four_devices(x, *weights, axis):
    y = _local(enter(x, axis), *weights)
    return lax.psum(jnp.where(lax.axis_index(axis) < 4, y, 0), axis)


@wrong("values")
def mlp_without_dims_of_one(x, *weights, axis):
    return lax.psum(_local(enter(x.squeeze(), axis), *weights), axis)


@wrong("flops")
def mlp_with_gate_computed_twice(x, w_gate, w_up, w_down, *, axis):
    x = enter(x, axis)
    gate = x @ w_gate
    return lax.psum((gate * jax.nn.sigmoid(x @ w_gate) * (x @ w_up)) @ w_down, axis)


@wrong("flops")
def mlp_of_tiled_width(x, w_gate, w_up, w_down, *, axis):
    """The columns of all devices, each of which is this device's own, and n times the rows."""
    n, x = lax.axis_size(axis), enter(x, axis)
    gate, up = (x @ jnp.tile(w, (1, n)) for w in (w_gate, w_up))
    return lax.psum((jax.nn.silu(gate) * up) @ jnp.tile(w_down, (n, 1)) / n, axis)


def _whole_width(product, x, w_gate, w_up, w_down, axis):
    x = enter(x, axis)
    gate, up = (product(x, among_zeros(w, axis, 1)) for w in (w_gate, w_up))
    return lax.psum(product(jax.nn.silu(gate) * up, among_zeros(w_down, axis)), axis)


@wrong("flops")
def mlp_of_whole_width_column_by_column(x, w_gate, w_up, w_down, *, axis):
    def product(x, w):
        return sum(x[..., k, None] * w[None, None, k] for k in range(len(w)))

    return _whole_width(product, x, w_gate, w_up, w_down, axis)


@wrong("flops")
def mlp_of_whole_width_by_a_stack_of_products(x, w_gate, w_up, w_down, *, axis):
    def product(x, w):
        pairs = jnp.moveaxis(x, -1, 0), w
        return lax.map(lambda pair: pair[0][..., None] * pair[1][None, None], pairs).sum(0)

    return _whole_width(product, x, w_gate, w_up, w_down, axis)


@wrong("flops")
def mlp_of_whole_width_vector_by_vector(x, w_gate, w_up, w_down, *, axis):
    def product(x, w):
        vectors = x.reshape(-1, len(w))
        y = lax.map(lambda vector: (vector[:, None] * w).sum(0), vectors)
        return y.reshape(*x.shape[:-1], -1)

    return _whole_width(product, x, w_gate, w_up, w_down, axis)


@wrong("flops")
def mlp_of_whole_width_by_chosen_products(x, w_gate, w_up, w_down, *, axis):
    def product(x, w):
        each = x[..., None] * w[None, None]
        return jnp.where(each == 0, 0, each).sum(-2)

    return _whole_width(product, x, w_gate, w_up, w_down, axis)
