"""Answers to data parallel gradients: right by other ways, wrong by clever ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree


def _here(tree, axis):
    return lax.pcast(tree, axis, to="varying")


def _local(loss_fn, params, batch, axis):
    return jax.value_and_grad(loss_fn)(_here(params, axis), batch)


def _chunks(x, n):
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def _scatter_and_gather(x, axis):
    n = lax.axis_size(axis)
    chunk = lax.psum_scatter(_chunks(x, n), axis) / n
    return lax.all_gather(chunk, axis).ravel()[: x.size].reshape(x.shape)


def _exchange_and_gather(x, axis):
    chunks = lax.all_to_all(_chunks(x, lax.axis_size(axis)), axis, 0, 0)
    return lax.all_gather(chunks.mean(axis=0), axis).ravel()[: x.size].reshape(x.shape)


def gradients_leaf_by_leaf(loss_fn, params, batch, *, axis):
    loss, gradients = _local(loss_fn, params, batch, axis)
    n = lax.axis_size(axis)
    return lax.psum(loss, axis) / n, jax.tree.map(lambda g: lax.psum(g / n, axis), gradients)


def gradients_in_one_array(loss_fn, params, batch, *, axis):
    flat, restore = ravel_pytree(_local(loss_fn, params, batch, axis))
    return restore(lax.pmean(flat, axis))


def gradients_scattered_and_gathered(loss_fn, params, batch, *, axis):
    loss, gradients = _local(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: _scatter_and_gather(g, axis), gradients)


def gradients_exchanged_and_gathered(loss_fn, params, batch, *, axis):
    loss, gradients = _local(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: _exchange_and_gather(g, axis), gradients)


def gradients_summed_by_jax(loss_fn, params, batch, *, axis):
    loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: g / lax.axis_size(axis), gradients)


def gradients_of_the_mean_loss(loss_fn, params, batch, *, axis):
    return jax.value_and_grad(lambda params: lax.pmean(loss_fn(params, batch), axis))(params)


def gradients_by_a_hook(loss_fn, params, batch, *, axis):
    @jax.custom_vjp
    def hook(params):
        return params

    hook.defvjp(lambda params: (params, None), lambda _, g: (_here(lax.pmean(g, axis), axis),))
    loss, gradients = _local(
        lambda params, batch: loss_fn(hook(params), batch), params, batch, axis
    )
    return lax.pmean(loss, axis), gradients


def gradients_as_complex_numbers(loss_fn, params, batch, *, axis):
    flat, restore = ravel_pytree(_local(loss_fn, params, batch, axis))
    real, imaginary = jnp.pad(flat, (0, flat.size % 2)).reshape(2, -1)
    mean = lax.pmean(lax.complex(real, imaginary), axis)
    return restore(jnp.concatenate([mean.real, mean.imag])[: flat.size])


def gradients_as_flat_list(loss_fn, params, batch, *, axis):
    return jax.tree.leaves(gradients_leaf_by_leaf(loss_fn, params, batch, axis=axis))


def gradients_in_a_loop_of_unknown_length(loss_fn, params, batch, *, axis):
    flat, restore = ravel_pytree(_local(loss_fn, params, batch, axis))
    once = lax.pmax((jnp.abs(flat).max() >= 0).astype(jnp.int32), axis)
    _, flat = lax.while_loop(
        lambda carry: carry[0] < once,
        lambda carry: (carry[0] + 1, _here(lax.pmean(carry[1], axis), axis)),
        (0, flat),
    )
    return restore(flat)


def gradients_by_name_of_first_axis(loss_fn, params, batch, *, axis):
    return lax.pmean(_local(loss_fn, params, batch, "dp"), "dp")


def gradients_in_bfloat16(loss_fn, params, batch, *, axis):
    loss, gradients = _local(loss_fn, params, batch, axis)
    small = jax.tree.map(lambda g: g.astype(jnp.bfloat16), gradients)
    means = lax.pmean(small, axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda g: g.astype(jnp.float32), means)


def gradients_in_int8(loss_fn, params, batch, *, axis):
    loss, gradients = _local(loss_fn, params, batch, axis)
    flat, restore = ravel_pytree(gradients)
    scale = lax.pmax(jnp.abs(flat).max(), axis) / 127
    whole = lax.all_gather(jnp.round(flat / scale).astype(jnp.int8), axis)
    return lax.pmean(loss, axis), restore(whole.astype(jnp.float32).mean(axis=0) * scale)


def gradients_after_gathered_losses(loss_fn, params, batch, *, axis):
    def mean_loss(params):
        losses = jax.vmap(lambda part: loss_fn(params, part))(lax.all_gather(batch, axis))
        return losses.mean()

    return jax.value_and_grad(mean_loss)(_here(params, axis))


def gradients_on_one_device_only(loss_fn, params, batch, *, axis):
    loss, gradients = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    first = lax.axis_index(axis) == 0
    return loss, jax.tree.map(lambda g: jnp.where(first, g, 0), gradients)


def _first_and_rest(microbatches):
    first = jax.tree.map(lambda leaf: leaf[0], microbatches)
    return first, jax.tree.map(lambda leaf: leaf[1:], microbatches)


def _number(microbatches):
    return len(jax.tree.leaves(microbatches)[0])


def _sum(loss_fn, params, microbatches):
    grad = jax.value_and_grad(loss_fn)
    first, rest = _first_and_rest(microbatches)
    return lax.scan(
        lambda total, part: (jax.tree.map(jnp.add, total, grad(params, part)), None),
        grad(params, first),
        rest,
    )[0]


def accumulated_from_the_first(loss_fn, params, microbatches, *, axis):
    total = _sum(loss_fn, _here(params, axis), microbatches)
    return jax.tree.map(lambda leaf: lax.pmean(leaf, axis) / _number(microbatches), total)


def accumulated_as_running_mean(loss_fn, params, microbatches, *, axis):
    params, m = _here(params, axis), _number(microbatches)

    def add(i, mean):
        part = jax.tree.map(lambda leaf: leaf[i], microbatches)
        new = jax.value_and_grad(loss_fn)(params, part)
        return jax.tree.map(lambda old, new: old + new / m, mean, new)

    zeros = _here(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)
    return lax.pmean(lax.fori_loop(0, m, add, zeros), axis)


def accumulated_in_one_array(loss_fn, params, microbatches, *, axis):
    params = _here(params, axis)
    flat, restore = ravel_pytree((_here(jnp.float32(0), axis), params))

    def add(total, part):
        new, _ = ravel_pytree(jax.value_and_grad(loss_fn)(params, part))
        return total + new, None

    total, _ = lax.scan(add, jnp.zeros_like(flat), microbatches)
    return restore(lax.pmean(total / _number(microbatches), axis))


def accumulated_by_recomputing(loss_fn, params, microbatches, *, axis):
    def mean_loss(params):
        return lax.map(jax.checkpoint(lambda part: loss_fn(params, part)), microbatches).mean()

    return lax.pmean(jax.value_and_grad(mean_loss)(_here(params, axis)), axis)


def accumulated_backwards(loss_fn, params, microbatches, *, axis):
    params = _here(params, axis)

    def add(carry):
        i, total = carry
        part = jax.tree.map(lambda leaf: leaf[i], microbatches)
        return i - 1, jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, part))

    zeros = _here(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)
    m = _number(microbatches)
    _, total = lax.while_loop(lambda carry: carry[0] >= 0, add, (m - 1, zeros))
    return lax.pmean(jax.tree.map(lambda leaf: leaf / m, total), axis)


def accumulated_over_ten(loss_fn, params, microbatches, *, axis):
    total = _sum(loss_fn, _here(params, axis), microbatches)
    return lax.pmean(jax.tree.map(lambda leaf: leaf / 10, total), axis)


def accumulated_then_scattered(loss_fn, params, microbatches, *, axis):
    loss, total = _sum(loss_fn, _here(params, axis), microbatches)
    m = _number(microbatches)
    means = jax.tree.map(lambda g: _scatter_and_gather(g, axis) / m, total)
    return lax.pmean(loss / m, axis), means


def accumulated_as_one_batch(loss_fn, params, microbatches, *, axis):
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return lax.pmean(_local(loss_fn, params, batch, axis), axis)


def accumulated_in_bfloat16(loss_fn, params, microbatches, *, axis):
    small = jax.tree.map(lambda p: p.astype(jnp.bfloat16), _here(params, axis))

    def rough_loss(small, part):
        return loss_fn(jax.tree.map(lambda p: p.astype(jnp.float32), small), part)

    loss, total = _sum(rough_loss, small, microbatches)
    m = _number(microbatches)
    means = jax.tree.map(lambda g: g.astype(jnp.float32) / m, total)
    return lax.pmean((loss / m, means), axis)


def accumulated_and_reduced_under_a_condition(loss_fn, params, microbatches, *, axis):
    params, m = _here(params, axis), _number(microbatches)
    zeros = _here(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)

    def add(total, step):
        i, part = step
        total = jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, part))
        mean = lax.cond(
            i == m - 1,
            lambda total: _here(lax.pmean(total, axis), axis),
            lambda total: total,
            total,
        )
        return mean, None

    total, _ = lax.scan(add, zeros, (jnp.arange(m), microbatches))
    return jax.tree.map(lambda leaf: leaf / m, total)


def accumulated_with_a_gathered_batch(loss_fn, params, microbatches, *, axis):
    whole = lax.all_gather(microbatches, axis, axis=1, tiled=True)
    total = _sum(loss_fn, _here(params, axis), whole)
    return jax.tree.map(lambda leaf: leaf / _number(microbatches), total)


RIGHT = {
    "data_parallel_gradients": (
        gradients_leaf_by_leaf,
        gradients_in_one_array,
        gradients_scattered_and_gathered,
        gradients_exchanged_and_gathered,
        gradients_summed_by_jax,
        gradients_of_the_mean_loss,
        gradients_by_a_hook,
        gradients_as_complex_numbers,
    ),
    "accumulate_gradients": (
        accumulated_from_the_first,
        accumulated_as_running_mean,
        accumulated_in_one_array,
        accumulated_by_recomputing,
        accumulated_backwards,
        accumulated_then_scattered,
    ),
}
WRONG = {
    "data_parallel_gradients": {
        gradients_by_name_of_first_axis: "values",
        gradients_in_bfloat16: "values",
        gradients_in_int8: "values",
        gradients_after_gathered_losses: "communication",
        gradients_on_one_device_only: "values",
        gradients_as_flat_list: "values",
        gradients_in_a_loop_of_unknown_length: "communication",
    },
    "accumulate_gradients": {
        accumulated_as_one_batch: "memory",
        accumulated_in_bfloat16: "values",
        accumulated_over_ten: "values",
        accumulated_and_reduced_under_a_condition: "communication",
        accumulated_with_a_gathered_batch: "communication",
    },
}
