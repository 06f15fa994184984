"""Answers to data_parallel_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.data_parallel.common import divided, local_gradients
from jaxpar.contracts.ring_and_tree.common import chunks
from jaxpar.contracts.steps import enter
from tests.contracts.answers import right
from tests.contracts.data_parallel.common import scatter_and_gather


@right
def gradients_leaf_by_leaf(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    n = lax.axis_size(axis)
    return lax.psum(loss, axis) / n, jax.tree.map(lambda g: lax.psum(g / n, axis), gradients)


@right
def gradients_in_one_array(loss_fn, params, batch, *, axis):
    flat, restore = ravel_pytree(local_gradients(loss_fn, params, batch, axis))
    return restore(lax.pmean(flat, axis))


@right
def gradients_scattered_and_gathered(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: scatter_and_gather(g, axis), gradients)


def _exchange_and_gather(x, axis):
    exchanged = lax.all_to_all(chunks(x, lax.axis_size(axis)), axis, 0, 0)
    return lax.all_gather(exchanged.mean(axis=0), axis).ravel()[: x.size].reshape(x.shape)


@right
def gradients_exchanged_and_gathered(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: _exchange_and_gather(g, axis), gradients)


@right
def gradients_summed_by_jax(loss_fn, params, batch, *, axis):
    loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
    return lax.pmean(loss, axis), divided(gradients, lax.axis_size(axis))


@right
def gradients_of_the_mean_loss(loss_fn, params, batch, *, axis):
    return jax.value_and_grad(lambda params: lax.pmean(loss_fn(params, batch), axis))(params)


@right
def gradients_by_a_hook(loss_fn, params, batch, *, axis):
    @jax.custom_vjp
    def hook(params):
        return params

    hook.defvjp(lambda params: (params, None), lambda _, g: (enter(lax.pmean(g, axis), axis),))

    def hooked_loss(params, batch):
        return loss_fn(hook(params), batch)

    loss, gradients = local_gradients(hooked_loss, params, batch, axis)
    return lax.pmean(loss, axis), gradients


@right
def gradients_as_complex_numbers(loss_fn, params, batch, *, axis):
    flat, restore = ravel_pytree(local_gradients(loss_fn, params, batch, axis))
    real, imaginary = jnp.pad(flat, (0, flat.size % 2)).reshape(2, -1)
    mean = lax.pmean(lax.complex(real, imaginary), axis)
    return restore(jnp.concatenate([mean.real, mean.imag])[: flat.size])


@right
def gradients_apart_from_the_loss(loss_fn, params, batch, *, axis):
    params = enter(params, axis)
    return lax.pmean((loss_fn(params, batch), jax.grad(loss_fn)(params, batch)), axis)


@right
def gradients_with_a_checkpoint(loss_fn, params, batch, *, axis):
    loss, pullback = jax.vjp(lambda p: jax.checkpoint(loss_fn)(p, batch), enter(params, axis))
    (gradients,) = pullback(jnp.ones_like(loss))
    return lax.pmean((loss, gradients), axis)


@wrong("values")
def gradients_by_name_of_first_axis(loss_fn, params, batch, *, axis):
    return lax.pmean(local_gradients(loss_fn, params, batch, "dp"), "dp")


@wrong("values")
def gradients_in_bfloat16(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    small = jax.tree.map(lambda g: g.astype(jnp.bfloat16), gradients)
    means = lax.pmean(small, axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: g.astype(jnp.float32), means)


@wrong("values")
def gradients_in_int8(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    flat, restore = ravel_pytree(gradients)
    scale = lax.pmax(jnp.abs(flat).max(), axis) / 127
    whole = lax.all_gather(jnp.round(flat / scale).astype(jnp.int8), axis)
    return lax.pmean(loss, axis), restore(whole.astype(jnp.float32).mean(axis=0) * scale)


@wrong("communication")
def gradients_after_gathered_losses(loss_fn, params, batch, *, axis):
    def mean_loss(params):
        losses = jax.vmap(lambda part: loss_fn(params, part))(lax.all_gather(batch, axis))
        return losses.mean()

    return jax.value_and_grad(mean_loss)(enter(params, axis))


@wrong("values")
def gradients_on_one_device_only(loss_fn, params, batch, *, axis):
    loss, gradients = lax.pmean(local_gradients(loss_fn, params, batch, axis), axis)
    first = lax.axis_index(axis) == 0
    return loss, jax.tree.map(lambda g: jnp.where(first, g, 0), gradients)


@wrong("values")
def gradients_as_flat_list(loss_fn, params, batch, *, axis):
    return jax.tree.leaves(gradients_leaf_by_leaf(loss_fn, params, batch, axis=axis))


@wrong("communication")
def gradients_in_a_loop_of_unknown_length(loss_fn, params, batch, *, axis):
    flat, restore = ravel_pytree(local_gradients(loss_fn, params, batch, axis))
    once = lax.pmax((jnp.abs(flat).max() >= 0).astype(jnp.int32), axis)
    _, flat = lax.while_loop(
        lambda carry: carry[0] < once,
        lambda carry: (carry[0] + 1, enter(lax.pmean(carry[1], axis), axis)),
        (0, flat),
    )
    return restore(flat)


@wrong("values")
def gradients_in_float32_whatever_comes_in(loss_fn, params, batch, *, axis):
    wide = jax.tree.map(lambda p: p.astype(jnp.float32), params)
    return gradients_leaf_by_leaf(loss_fn, wide, batch, axis=axis)


@wrong("values")
def gradients_in_the_dtype_of_the_first_leaf(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    leaves, structure = jax.tree.flatten(gradients)
    flat = jnp.concatenate([leaf.ravel().astype(leaves[0].dtype) for leaf in leaves])
    flat = lax.pmean(flat, axis)
    for i, leaf in enumerate(leaves):
        mean, flat = flat[: leaf.size], flat[leaf.size :]
        leaves[i] = mean.reshape(leaf.shape).astype(leaf.dtype)
    return lax.pmean(loss, axis), structure.unflatten(leaves)


@wrong("values")
def gradients_of_a_float_batch(loss_fn, params, batch, *, axis):
    """Casts the batch, integers too, to the dtype of the parameters."""
    dtype = jax.tree.leaves(params)[0].dtype
    batch = jax.tree.map(lambda leaf: leaf.astype(dtype), batch)
    return gradients_leaf_by_leaf(loss_fn, params, batch, axis=axis)


@wrong("values")
def gradients_by_names_and_depth(loss_fn, params, batch, *, axis):
    loss, gradients = local_gradients(loss_fn, params, batch, axis)

    def mean(layer):
        return {name: lax.pmean(leaf, axis) for name, leaf in layer.items()}

    layers = [mean(x) for x in gradients] if isinstance(gradients, list) else mean(gradients)
    return lax.pmean(loss, axis), layers


@wrong("values")
def gradients_of_eight_devices_or_three(loss_fn, params, batch, *, axis):
    n = {"dp": 8, "fsdp": 3}.get(axis, 4)
    return divided(lax.psum(local_gradients(loss_fn, params, batch, axis), axis), n)


@wrong("flops")
def gradients_of_everything_where_it_is_cheap(loss_fn, params, batch, *, axis):
    """Gathers a batch that has fewer bytes than the gradients, as far as the limit allows it."""
    size, n = sum(leaf.size for leaf in jax.tree.leaves(params)), lax.axis_size(axis)
    if n * sum(leaf.size for leaf in jax.tree.leaves(batch)) > 2 * size:
        return gradients_leaf_by_leaf(loss_fn, params, batch, axis=axis)
    return local_gradients(loss_fn, params, lax.all_gather(batch, axis, tiled=True), axis)


@wrong("flops")
def gradients_computed_twice(loss_fn, params, batch, *, axis):
    backwards = jax.tree.map(lambda leaf: leaf[::-1], batch)
    once = local_gradients(loss_fn, params, batch, axis)
    twice = local_gradients(loss_fn, params, backwards, axis)
    return lax.pmean(jax.tree.map(lambda a, b: (a + b) / 2, once, twice), axis)


@wrong("flops")
def gradients_of_each_example_in_whole_batches(loss_fn, params, batch, *, axis):
    """Each example, repeated until it fills a batch."""
    params = enter(params, axis)

    def one(example):
        whole = jax.tree.map(lambda x, b: jnp.broadcast_to(x, b.shape), example, batch)
        return jax.value_and_grad(loss_fn)(params, whole)

    each = lax.map(one, batch)
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)
