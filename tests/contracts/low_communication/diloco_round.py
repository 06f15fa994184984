"""Answers to diloco_round: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, hop
from tests.contracts.answers import right


def _trained(loss_fn, params, state, batches, inner, axis):
    """This device's losses, parameters and state after its steps."""

    def step(carry, batch):
        own, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        updates, state = inner.update(gradients, state, own)
        return (optax.apply_updates(own, updates), state), loss

    (own, state), losses = lax.scan(step, (enter(params, axis), state), batches)
    return losses, own, state


def _stepped(params, delta, state, outer):
    updates, state = outer.update(delta, state, params)
    return optax.apply_updates(params, updates), state


def _finished(params, mean, inner_state, outer_state, outer):
    delta = jax.tree.map(jnp.subtract, params, mean)
    params, outer_state = _stepped(params, delta, outer_state, outer)
    return params, inner_state, outer_state


@right
def delta_averaged(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    delta = lax.pmean(jax.tree.map(jnp.subtract, params, own), axis)
    params, outer_state = _stepped(params, delta, outer_state, outer)
    return lax.pmean(losses.mean(), axis), params, inner_state, outer_state


@right
def batches_in_a_python_loop(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    own, losses = enter(params, axis), []
    for i in range(len(jax.tree.leaves(batches)[0])):
        batch = jax.tree.map(lambda leaf, i=i: leaf[i], batches)
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        updates, inner_state = inner.update(gradients, inner_state, own)
        own, losses = optax.apply_updates(own, updates), [*losses, loss]
    loss, mean = lax.pmean((sum(losses) / len(losses), own), axis)
    return loss, *_finished(params, mean, inner_state, outer_state, outer)


@right
def losses_added_up_in_the_carry(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    def step(carry, batch):
        own, state, total = carry
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        updates, state = inner.update(gradients, state, own)
        return (optax.apply_updates(own, updates), state, total + loss), None

    none = enter(jnp.float32(0), axis)
    start = enter(params, axis), inner_state, none
    (own, inner_state, total), _ = lax.scan(step, start, batches)
    steps = len(jax.tree.leaves(batches)[0])
    mean = lax.pmean(own, axis)
    done = _finished(params, mean, inner_state, outer_state, outer)
    return lax.pmean(total / steps, axis), *done


@right
def parameters_in_one_array(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    flat, restore = ravel_pytree(own)
    loss = lax.pmean(losses.mean(), axis)
    mean = restore(lax.psum(flat, axis) / lax.axis_size(axis))
    mean = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), mean, params)
    return loss, *_finished(params, mean, inner_state, outer_state, outer)


@right
def typed_as_varying(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    mean = enter(lax.pmean(own, axis), axis)
    done = _finished(enter(params, axis), mean, inner_state, outer_state, outer)
    return lax.pmean(losses.mean(), axis), *done


@wrong("values")
def weights_decay_by_old_parameters(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    start = enter(params, axis)

    def step(carry, batch):
        own, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        updates, state = inner.update(gradients, state, start)
        return (optax.apply_updates(own, updates), state), loss

    (own, inner_state), losses = lax.scan(step, (start, inner_state), batches)
    loss, mean = lax.pmean((losses.mean(), own), axis)
    return loss, *_finished(params, mean, inner_state, outer_state, outer)


@wrong("values")
def weights_decay_by_the_mean(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    loss, mean = lax.pmean((losses.mean(), own), axis)
    delta = jax.tree.map(jnp.subtract, params, mean)
    updates, outer_state = outer.update(delta, outer_state, mean)
    return loss, optax.apply_updates(params, updates), inner_state, outer_state


@wrong("values")
def no_steps(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    batch = jax.tree.map(lambda leaf: leaf[0], batches)
    loss = lax.pmean(loss_fn(enter(params, axis), batch), axis)
    return loss, params, inner_state, outer_state


@wrong("values")
def first_batch_again_and_again(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), batches)
    return delta_averaged(loss_fn, params, inner_state, outer_state, same, inner, outer, axis=axis)


@wrong("values")
def batches_backwards(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    last_first = jax.tree.map(lambda leaf: leaf[::-1], batches)
    return delta_averaged(
        loss_fn, params, inner_state, outer_state, last_first, inner, outer, axis=axis
    )


@wrong("values")
def five_steps(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    few = jax.tree.map(lambda leaf: leaf[:5], batches)
    return delta_averaged(loss_fn, params, inner_state, outer_state, few, inner, outer, axis=axis)


@wrong("values")
def delta_in_bfloat16(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    delta = jax.tree.map(lambda a, b: (a - b).astype(jnp.bfloat16), params, own)
    delta = jax.tree.map(lambda d, p: d.astype(p.dtype), lax.pmean(delta, axis), params)
    params, outer_state = _stepped(params, delta, outer_state, outer)
    return lax.pmean(losses.mean(), axis), params, inner_state, outer_state


@wrong("values")
def outer_optimizer_given_no_params(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    mean = lax.pmean(own, axis)
    updates, outer_state = outer.update(jax.tree.map(jnp.subtract, params, mean), outer_state)
    return lax.pmean(losses.mean(), axis), updates, inner_state, outer_state


@wrong("values")
def outer_steps_of_the_stub(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    by_heart = optax.sgd(0.7, momentum=0.9, nesterov=True)
    return delta_averaged(
        loss_fn, params, inner_state, outer_state, batches, inner, by_heart, axis=axis
    )


@wrong("communication")
def batches_gathered(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    i = lax.axis_index(axis)
    own = jax.tree.map(lambda leaf: lax.all_gather(leaf, axis)[i], batches)
    return delta_averaged(loss_fn, params, inner_state, outer_state, own, inner, outer, axis=axis)


@wrong("communication")
def sent_round_a_ring(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """All parameters go round the ring: n-1 times as many bytes, where 2(n-1)/n are enough."""
    n = lax.axis_size(axis)
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    total = passing = own
    for _ in range(n - 1):
        passing = jax.tree.map(lambda leaf: hop(leaf, axis), passing)
        total = jax.tree.map(jnp.add, total, passing)
    mean = jax.tree.map(lambda leaf: (leaf / n).astype(leaf.dtype), total)
    done = _finished(enter(params, axis), mean, inner_state, outer_state, outer)
    return lax.pmean(losses.mean(), axis), *done


@wrong("values")
def outer_state_begins_anew(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    fresh = jax.tree.map(jnp.zeros_like, outer_state)
    return delta_averaged(loss_fn, params, inner_state, fresh, batches, inner, outer, axis=axis)


@wrong("values")
def update_subtracted(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """As by a gradient, though an update of optax is added."""
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    loss, mean = lax.pmean((losses.mean(), own), axis)
    updates, outer_state = outer.update(
        jax.tree.map(jnp.subtract, params, mean), outer_state, params
    )
    moved = jax.tree.map(lambda old, up: (old - up).astype(old.dtype), params, updates)
    return loss, moved, inner_state, outer_state


@wrong("values")
def losses_after_the_steps(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The loss of each batch after its step, not before."""

    def step(carry, batch):
        own, state = carry
        gradients = jax.grad(loss_fn)(own, batch)
        updates, state = inner.update(gradients, state, own)
        own = optax.apply_updates(own, updates)
        return (own, state), loss_fn(own, batch)

    (own, inner_state), losses = lax.scan(step, (enter(params, axis), inner_state), batches)
    loss, mean = lax.pmean((losses.mean(), own), axis)
    return loss, *_finished(params, mean, inner_state, outer_state, outer)


@wrong("values")
def outer_step_on_each_device(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The outer optimizer steps towards this device's parameters, and the results are averaged."""
    losses, own, inner_state = _trained(loss_fn, params, inner_state, batches, inner, axis)
    start = enter(params, axis)
    delta = jax.tree.map(jnp.subtract, start, own)
    moved, state = _stepped(start, delta, enter(outer_state, axis), outer)
    return *lax.pmean((losses.mean(), moved), axis), inner_state, state


@wrong("communication")
def parameters_averaged_in_the_middle(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """An average of the first batch's parameters is sent, to look whether the devices agree."""
    first = jax.tree.map(lambda leaf: leaf[:1], batches)
    _, early, _ = _trained(loss_fn, params, inner_state, first, inner, axis)
    spread = jax.tree.map(lambda leaf: jnp.abs(lax.pmean(leaf, axis)).max(), early)
    fine = jax.tree.reduce(jnp.logical_and, jax.tree.map(jnp.isfinite, spread))
    loss, *others = delta_averaged(
        loss_fn, params, inner_state, outer_state, batches, inner, outer, axis=axis
    )
    return jnp.where(fine, loss, jnp.nan), *others
