"""Answers to adapter_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter
from tests.contracts.answers import right


def _local(loss_fn, base, adapters, batch, axis):
    return jax.value_and_grad(loss_fn, argnums=1)(base, enter(adapters, axis), batch)


@right
def leaf_by_leaf(loss_fn, base, adapters, batch, *, axis):
    loss, gradients = _local(loss_fn, base, adapters, batch, axis)
    n = lax.axis_size(axis)
    return lax.psum(loss, axis) / n, jax.tree.map(lambda g: lax.psum(g / n, axis), gradients)


@right
def with_a_closure_over_a_cast_base(loss_fn, base, adapters, batch, *, axis):
    base = lax.stop_gradient(enter(base, axis))

    def loss(adapters):
        return loss_fn(base, adapters, batch)

    return lax.pmean(jax.value_and_grad(loss)(enter(adapters, axis)), axis)


@right
def in_one_array(loss_fn, base, adapters, batch, *, axis):
    flat, restore = ravel_pytree(_local(loss_fn, base, adapters, batch, axis))
    return restore(lax.pmean(flat, axis))


@right
def summed_by_jax(loss_fn, base, adapters, batch, *, axis):
    def mean_loss(adapters):
        return lax.pmean(loss_fn(base, adapters, batch), axis)

    return jax.value_and_grad(mean_loss)(adapters)


@wrong("values")
def divided_by_eight(loss_fn, base, adapters, batch, *, axis):
    total = lax.psum(_local(loss_fn, base, adapters, batch, axis), axis)
    return jax.tree.map(lambda leaf: leaf / 8, total)


@wrong("values")
def of_lists_of_layers(loss_fn, base, adapters, batch, *, axis):
    assert isinstance(adapters, list)
    return leaf_by_leaf(loss_fn, base, adapters, batch, axis=axis)


@wrong("values")
def in_bfloat16(loss_fn, base, adapters, batch, *, axis):
    loss, gradients = _local(loss_fn, base, adapters, batch, axis)
    mean = lax.pmean(jax.tree.map(lambda g: g.astype(jnp.bfloat16), gradients), axis)
    return lax.pmean(loss, axis), jax.tree.map(lambda m, g: m.astype(g.dtype), mean, gradients)


@wrong("communication")
def base_summed_by_jax(loss_fn, base, adapters, batch, *, axis):
    """JAX sums the gradient of a base that is not cast."""
    both = jax.value_and_grad(loss_fn, argnums=(0, 1))
    loss, (of_base, gradients) = both(base, enter(adapters, axis), batch)
    nothing = sum(0 * leaf.sum() for leaf in jax.tree.leaves(of_base))
    return lax.pmean((loss + enter(nothing, axis).astype(loss.dtype), gradients), axis)


@wrong("communication")
def over_every_axis(loss_fn, base, adapters, batch, *, axis):
    names = tuple(jax.sharding.get_abstract_mesh().axis_names)
    others = tuple(name for name in names if name != axis)
    return lax.pmean(enter(_local(loss_fn, base, adapters, batch, axis), others), names)


@wrong("flops")
def of_every_example_twice(loss_fn, base, adapters, batch, *, axis):
    double = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), batch)
    return lax.pmean(_local(loss_fn, base, adapters, double, axis), axis)


@wrong("flops")
def by_forward_differentiation(loss_fn, base, adapters, batch, *, axis):
    local = enter(adapters, axis)
    gradients = jax.jacfwd(loss_fn, argnums=1)(base, local, batch)
    return lax.pmean((loss_fn(base, local, batch), gradients), axis)
