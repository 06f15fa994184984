"""Answers to fsdp_apply: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.fsdp.fsdp_apply import scan_gathering, scan_layers
from jaxpar.contracts.steps import enter, gathered, hop, scattered
from tests.contracts.answers import right


@right
def applied_untiled(layer_fn, param_shards, x, *, axis):
    def gather(shard, axis):
        return lax.all_gather(shard, axis).reshape(-1, *shard.shape[1:])

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@right
def applied_by_number(layer_fn, param_shards, x, *, axis):
    @jax.checkpoint
    def layer(i, x):
        shards = jax.tree.map(lambda leaf: leaf[i], param_shards)
        return layer_fn(gathered(shards, axis), x)

    return lax.fori_loop(0, len(jax.tree.leaves(param_shards)[0]), layer, x)


@right
def applied_with_own_derivative(layer_fn, param_shards, x, *, axis):
    @jax.custom_vjp
    def layer(shards, x):
        return layer_fn(gathered(shards, axis), x)

    def backward(kept, c):
        shards, x = kept
        gradients, c = jax.vjp(layer_fn, gathered(shards, axis), x)[1](c)
        return scattered(gradients, axis), c

    layer.defvjp(lambda shards, x: (layer(shards, x), (shards, x)), backward)
    return lax.scan(lambda x, s: (layer(s, x), None), x, param_shards)[0]


@right
def applied_in_one_array(layer_fn, param_shards, x, *, axis):
    def layer(shards, x):
        flat, restore = ravel_pytree(shards)
        parts = jax.vmap(restore)(lax.all_gather(flat, axis))
        return layer_fn(jax.tree.map(jnp.concatenate, parts), x)

    return scan_layers(layer, param_shards, x)


@right
def applied_by_ring(layer_fn, param_shards, x, *, axis):
    def gather(shard, axis):
        n, i, shape = lax.axis_size(axis), lax.axis_index(axis), shard.shape
        whole = enter(jnp.zeros((n, *shape), shard.dtype), axis)
        for step in range(n):
            whole = lax.dynamic_update_index_in_dim(whole, shard, (i - step) % n, 0)
            if step < n - 1:
                shard = hop(shard, axis)
        return whole.reshape(-1, *shape[1:])

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@wrong("memory")
def applied_after_checkpoint(layer_fn, param_shards, x, *, axis):
    def layer(x, shards):
        return jax.checkpoint(layer_fn, prevent_cse=False)(gathered(shards, axis), x), None

    return lax.scan(layer, x, param_shards)[0]


@wrong("memory")
def applied_with_one_leaf_before(layer_fn, param_shards, x, *, axis):
    shards, structure = jax.tree.flatten(param_shards)
    first = gathered(shards[0], axis, 1)

    def layer(parts, x):
        return layer_fn(structure.unflatten([parts[0], *gathered(parts[1:], axis)]), x)

    return scan_layers(layer, [first, *shards[1:]], x)


@wrong("communication")
def applied_with_prefetch_that_is_kept(layer_fn, param_shards, x, *, axis):
    def body(carry, shards):
        x, whole = carry
        return (layer_fn(whole, x), gathered(shards, axis)), None

    first = gathered(jax.tree.map(lambda leaf: leaf[0], param_shards), axis)
    later = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), param_shards)
    return lax.scan(jax.checkpoint(body, prevent_cse=False), (x, first), later)[0][0]


@wrong("values")
def applied_in_bfloat16(layer_fn, param_shards, x, *, axis):
    def gather(shard, axis):
        return gathered(shard.astype(jnp.bfloat16), axis).astype(shard.dtype)

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@wrong("gradient")
def applied_to_fixed_weights(layer_fn, param_shards, x, *, axis):
    return scan_gathering(layer_fn, lax.stop_gradient(param_shards), x, axis)


@wrong("communication")
def applied_twice_as_often_gathered(layer_fn, param_shards, x, *, axis):
    def gather(shard, axis):
        once, again = gathered((shard, shard), axis)
        return (once + again) / 2

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@right
def applied_with_a_policy(layer_fn, param_shards, x, *, axis):
    def body(x, shards):
        return layer_fn(gathered(shards, axis), x), None

    policy = jax.checkpoint_policies.nothing_saveable
    return lax.scan(jax.checkpoint(body, policy=policy), x, param_shards)[0]


@right
def applied_to_leaves(layer_fn, param_shards, x, *, axis):
    leaves, structure = jax.tree.flatten(param_shards)

    def body(x, shards):
        whole = [gathered(shard, axis) for shard in shards]
        return layer_fn(structure.unflatten(whole), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, leaves)[0]


@wrong("values")
def applied_to_eight_layers(layer_fn, param_shards, x, *, axis):
    first = jax.tree.map(lambda leaf: leaf[:8], param_shards)
    return scan_gathering(layer_fn, first, x, axis)


@wrong("values")
def applied_on_several_devices(layer_fn, param_shards, x, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device has nothing to share")
    return scan_gathering(layer_fn, param_shards, x, axis)


@wrong("values")
def applied_to_two_dims(layer_fn, param_shards, x, *, axis):
    b, d = x.shape
    return scan_gathering(layer_fn, param_shards, x, axis).reshape(b, d)


@wrong("values")
def applied_and_returned_in_float32(layer_fn, param_shards, x, *, axis):
    y = scan_gathering(layer_fn, param_shards, x, axis)
    return y.astype(jnp.float32)


@wrong("communication")
def applied_to_float32_shards(layer_fn, param_shards, x, *, axis):
    def gather(shard, axis):
        return gathered(shard.astype(jnp.float32), axis).astype(shard.dtype)

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@wrong("flops")
def applied_to_every_example_twice(layer_fn, param_shards, x, *, axis):
    both = jnp.concatenate([x, x])
    return scan_gathering(layer_fn, param_shards, both, axis)[: len(x)]


@wrong("flops")
def applied_to_copies_for_all(layer_fn, param_shards, x, *, axis):
    """Every device computes as many examples as there are in all, its own in each place."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    copies = jnp.concatenate([x] * n) if n > 1 else x
    y = scan_gathering(layer_fn, param_shards, copies, axis)
    return lax.dynamic_slice_in_dim(y, i * len(x), len(x))


@wrong("flops")
def applied_with_layers_computed_before(layer_fn, param_shards, x, *, axis):
    """Every layer is computed once to see whether it is finite, and once for its result."""

    def layer(layer, x):
        finite = jnp.isfinite(layer_fn(layer, x)).all()
        return jnp.where(finite, layer_fn(layer, x), jnp.nan)

    return scan_gathering(layer, param_shards, x, axis)
