"""Answers to fsdp_apply: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.fsdp.fsdp_apply import full_params, scan_gathering
from jaxpar.contracts.steps import enter, gathered, hop, scattered
from tests.contracts.answers import right


@right
def applied_untiled(layer_fn, like, flat_shards, x, *, axis):
    def gather(shard, axis):
        return lax.all_gather(shard, axis).reshape(-1)

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@right
def applied_by_number(layer_fn, like, flat_shards, x, *, axis):
    @jax.checkpoint
    def layer(i, x):
        return layer_fn(full_params(gathered(flat_shards[i], axis), like), x)

    return lax.fori_loop(0, len(flat_shards), layer, x)


@right
def applied_with_own_derivative(layer_fn, like, flat_shards, x, *, axis):
    def of_flat(flat, x):
        return layer_fn(full_params(flat, like), x)

    @jax.custom_vjp
    def layer(shard, x):
        return of_flat(gathered(shard, axis), x)

    def backward(kept, c):
        shard, x = kept
        gradient, c = jax.vjp(of_flat, gathered(shard, axis), x)[1](c)
        return scattered(gradient, axis), c

    layer.defvjp(lambda shard, x: (layer(shard, x), (shard, x)), backward)
    return lax.scan(lambda x, shard: (layer(shard, x), None), x, flat_shards)[0]


@right
def applied_with_ravel_pytree(layer_fn, like, flat_shards, x, *, axis):
    flat, restore = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))

    def body(x, shard):
        return layer_fn(restore(gathered(shard, axis)[: flat.size]), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]


@right
def applied_by_ring(layer_fn, like, flat_shards, x, *, axis):
    def gather(shard, axis):
        n, i, shape = lax.axis_size(axis), lax.axis_index(axis), shard.shape
        whole = enter(jnp.zeros((n, *shape), shard.dtype), axis)
        for step in range(n):
            whole = lax.dynamic_update_index_in_dim(whole, shard, (i - step) % n, 0)
            if step < n - 1:
                shard = hop(shard, axis)
        return whole.reshape(-1)

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@right
def applied_with_a_policy(layer_fn, like, flat_shards, x, *, axis):
    def body(x, shard):
        return layer_fn(full_params(gathered(shard, axis), like), x), None

    policy = jax.checkpoint_policies.nothing_saveable
    return lax.scan(jax.checkpoint(body, policy=policy), x, flat_shards)[0]


@right
def applied_with_dynamic_slices(layer_fn, like, flat_shards, x, *, axis):
    leaves, structure = jax.tree.flatten(like)

    def body(x, shard):
        flat, start, found = gathered(shard, axis), 0, []
        for leaf in leaves:
            size = math.prod(leaf.shape)
            found.append(lax.dynamic_slice_in_dim(flat, start, size).reshape(leaf.shape))
            start += size
        return layer_fn(structure.unflatten(found), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]


@right
def applied_with_the_gather_alone_recomputed(layer_fn, like, flat_shards, x, *, axis):
    layer = jax.checkpoint(
        lambda shard, x: layer_fn(full_params(gathered(shard, axis), like), x), prevent_cse=False
    )
    return lax.scan(lambda x, shard: (layer(shard, x), None), x, flat_shards)[0]


@wrong("memory")
def applied_after_checkpoint(layer_fn, like, flat_shards, x, *, axis):
    def layer(x, shard):
        whole = full_params(gathered(shard, axis), like)
        return jax.checkpoint(layer_fn, prevent_cse=False)(whole, x), None

    return lax.scan(layer, x, flat_shards)[0]


@wrong("memory")
def applied_with_half_of_all_layers_before(layer_fn, like, flat_shards, x, *, axis):
    half = flat_shards.shape[1] // 2
    first = lax.all_gather(flat_shards[:, :half], axis, axis=1)

    def body(x, parts):
        early, late = parts
        flat = jnp.concatenate([early, lax.all_gather(late, axis)], axis=1).reshape(-1)
        return layer_fn(full_params(flat, like), x), None

    parts = first, flat_shards[:, half:]
    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, parts)[0]


@wrong("communication")
def applied_with_prefetch_that_is_kept(layer_fn, like, flat_shards, x, *, axis):
    def body(carry, shard):
        x, whole = carry
        return (layer_fn(full_params(whole, like), x), gathered(shard, axis)), None

    first, later = gathered(flat_shards[0], axis), jnp.roll(flat_shards, -1, axis=0)
    return lax.scan(jax.checkpoint(body, prevent_cse=False), (x, first), later)[0][0]


@wrong("values")
def applied_in_bfloat16(layer_fn, like, flat_shards, x, *, axis):
    def gather(shard, axis):
        return gathered(shard.astype(jnp.bfloat16), axis).astype(shard.dtype)

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@wrong("gradient")
def applied_to_fixed_weights(layer_fn, like, flat_shards, x, *, axis):
    return scan_gathering(layer_fn, like, lax.stop_gradient(flat_shards), x, axis)


@wrong("communication")
def applied_twice_as_often_gathered(layer_fn, like, flat_shards, x, *, axis):
    def gather(shard, axis):
        once, again = gathered((shard, shard), axis)
        return (once + again) / 2

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@wrong("values")
def applied_to_leaves_that_fill_the_array(layer_fn, like, flat_shards, x, *, axis):
    """The last leaf ends where the array ends, as if there were no padding."""

    def gather(shard, axis):
        flat = gathered(shard, axis)
        return flat[flat.size - sum(leaf.size for leaf in jax.tree.leaves(like)) :]

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@wrong("values")
def applied_to_a_dict(layer_fn, like, flat_shards, x, *, axis):
    """Only the leaves of a dict are known by name."""

    def body(x, shard):
        flat, start, found = gathered(shard, axis), 0, {}
        for name in sorted(like):
            found[name] = flat[start : start + like[name].size].reshape(like[name].shape)
            start += like[name].size
        return layer_fn(found, x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]


@wrong("values")
def applied_to_eight_layers(layer_fn, like, flat_shards, x, *, axis):
    return scan_gathering(layer_fn, like, flat_shards[:8], x, axis)


@wrong("values")
def applied_on_several_devices(layer_fn, like, flat_shards, x, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device has nothing to share")
    return scan_gathering(layer_fn, like, flat_shards, x, axis)


@wrong("values")
def applied_to_two_dims(layer_fn, like, flat_shards, x, *, axis):
    b, d = x.shape
    return scan_gathering(layer_fn, like, flat_shards, x, axis).reshape(b, d)


@wrong("values")
def applied_and_returned_in_float32(layer_fn, like, flat_shards, x, *, axis):
    y = scan_gathering(layer_fn, like, flat_shards, x, axis)
    return y.astype(jnp.float32)


@wrong("communication")
def applied_to_float32_shards(layer_fn, like, flat_shards, x, *, axis):
    def gather(shard, axis):
        return gathered(shard.astype(jnp.float32), axis).astype(shard.dtype)

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@wrong("flops")
def applied_to_every_example_twice(layer_fn, like, flat_shards, x, *, axis):
    both = jnp.concatenate([x, x])
    return scan_gathering(layer_fn, like, flat_shards, both, axis)[: len(x)]


@wrong("flops")
def applied_to_copies_for_all(layer_fn, like, flat_shards, x, *, axis):
    """Every device computes as many examples as there are in all, its own in each place."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    copies = jnp.concatenate([x] * n) if n > 1 else x
    y = scan_gathering(layer_fn, like, flat_shards, copies, axis)
    return lax.dynamic_slice_in_dim(y, i * len(x), len(x))


@wrong("flops")
def applied_with_layers_computed_before(layer_fn, like, flat_shards, x, *, axis):
    """Every layer is computed once to see whether it is finite, and once for its result."""

    def layer(layer, x):
        finite = jnp.isfinite(layer_fn(layer, x)).all()
        return jnp.where(finite, layer_fn(layer, x), jnp.nan)

    return scan_gathering(layer, like, flat_shards, x, axis)


@wrong("communication")
def applied_to_layers_gathered_twice(layer_fn, like, flat_shards, x, *, axis):
    """The second gather takes a number from the first."""

    def body(x, shard):
        flat = gathered(shard, axis)
        again = gathered(shard + 0 * flat[0], axis)
        return layer_fn(full_params(again, like), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]
