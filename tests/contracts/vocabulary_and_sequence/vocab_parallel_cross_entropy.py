"""Answers to vocab_parallel_cross_entropy: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter
from jaxpar.contracts.vocabulary_and_sequence.common import own_label_logit
from tests.contracts.answers import right


def _loss_less(logits, labels, shift, axis):
    total = lax.psum(jnp.exp(logits - shift[..., None]).sum(axis=-1), axis)
    return jnp.log(total) + shift - lax.psum(own_label_logit(logits, labels, axis), axis)


@right
def loss_token_by_token(logits_shard, labels, *, axis):
    def one(logits, label):
        largest = lax.pmax(lax.stop_gradient(logits.max()), axis)
        return _loss_less(logits, label, largest, axis)

    return jax.vmap(jax.vmap(one))(logits_shard.astype(jnp.float32), labels)


@right
def loss_computed_again(logits_shard, labels, *, axis):
    largest = lax.pmax(lax.stop_gradient(logits_shard).max(axis=-1), axis).astype(jnp.float32)

    @jax.checkpoint
    def sums(logits):
        shifted = logits.astype(jnp.float32) - largest[..., None]
        return jnp.exp(shifted).sum(axis=-1), own_label_logit(shifted, labels, axis)

    total, label = lax.psum(sums(logits_shard), axis)
    return jnp.log(total) - label


@wrong("values")
def loss_less_maximum_of_device_0(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    first = jnp.where(lax.axis_index(axis) == 0, lax.stop_gradient(logits.max(axis=-1)), 0)
    return _loss_less(logits, labels, lax.psum(first, axis), axis)


@wrong("values")
def loss_less_the_labels_logit(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    label = lax.psum(own_label_logit(lax.stop_gradient(logits), labels, axis), axis)
    return _loss_less(logits, labels, label, axis)


@wrong("values")
def loss_of_the_labels_chance(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    exps = jnp.exp(logits - largest[..., None])
    total = lax.psum(exps.sum(axis=-1), axis)
    return jnp.log(total) - jnp.log(lax.psum(own_label_logit(exps, labels, axis), axis))


@right
def loss_of_local_log_sums(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    local = jax.nn.logsumexp(logits, axis=-1)
    largest = lax.pmax(lax.stop_gradient(local), axis)
    total = largest + jnp.log(lax.psum(jnp.exp(local - largest), axis))
    return total - lax.psum(own_label_logit(logits, labels, axis), axis)


@right
def loss_by_one_hot(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    v = logits.shape[-1]
    hot = jax.nn.one_hot(labels - lax.axis_index(axis) * v, v)
    largest = lax.pmax(lax.stop_gradient(logits).max(axis=-1, keepdims=True), axis)
    total = lax.psum(jnp.exp(logits - largest).sum(axis=-1), axis)
    return jnp.log(total) + largest[..., 0] - lax.psum((hot * logits).sum(axis=-1), axis)


@right
def loss_with_gradient_by_hand(logits_shard, labels, *, axis):
    def forward(logits):
        wide = logits.astype(jnp.float32)
        largest = lax.pmax(wide.max(axis=-1), axis)
        exps = jnp.exp(wide - largest[..., None])
        total = lax.psum(exps.sum(axis=-1), axis)
        label = lax.psum(own_label_logit(wide, labels, axis), axis)
        return jnp.log(total) + largest - label, exps / total[..., None]

    def backward(chances, gradient):
        v = chances.shape[-1]
        hot = jax.nn.one_hot(labels - lax.axis_index(axis) * v, v)
        return (((chances - hot) * gradient[..., None]).astype(logits_shard.dtype),)

    loss = jax.custom_vjp(lambda logits: forward(logits)[0])
    loss.defvjp(forward, backward)
    return loss(logits_shard)


@right
def loss_in_a_stack(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    exps = jnp.exp(logits - largest[..., None]).sum(axis=-1)
    sums = lax.psum(jnp.stack([exps, own_label_logit(logits, labels, axis)]), axis)
    return jnp.log(sums[0]) + largest - sums[1]


@wrong("values")
def loss_less_a_hundred(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32) - 100
    total = lax.psum(jnp.exp(logits).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_of_clipped_logits(logits_shard, labels, *, axis):
    logits = jnp.clip(logits_shard.astype(jnp.float32), -80, 80)
    total = lax.psum(jnp.exp(logits).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_of_maximum_only(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    return largest - lax.psum(own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_rounded_to_bfloat16(logits_shard, labels, *, axis):
    return loss_in_a_stack(logits_shard, labels, axis=axis).astype(jnp.bfloat16).astype(jnp.float32)


@wrong("values")
def loss_in_dtype_of_arguments(logits_shard, labels, *, axis):
    return loss_in_a_stack(logits_shard, labels, axis=axis).astype(logits_shard.dtype)


@wrong("communication")
def loss_by_exchange(logits_shard, labels, *, axis):
    n = lax.axis_size(axis)
    flat = logits_shard.reshape(-1, logits_shard.shape[-1])
    flat = jnp.pad(flat, ((0, -len(flat) % n), (0, 0)))
    rows = lax.all_to_all(flat.reshape(n, -1, flat.shape[1]), axis, 0, 2, tiled=True)[0]
    total = jax.nn.logsumexp(rows.astype(jnp.float32), axis=-1)
    total = lax.all_gather(total, axis, tiled=True)[: labels.size].reshape(labels.shape)
    label = own_label_logit(logits_shard.astype(jnp.float32), labels, axis)
    return total - lax.psum(label, axis)


@wrong("communication")
def loss_with_gathered_maxima(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    top = lax.all_gather(lax.top_k(lax.stop_gradient(logits), 8)[0], axis, axis=-1, tiled=True)
    return _loss_less(logits, labels, top.max(axis=-1), axis)


@wrong("communication")
def loss_reduced_backward(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    once = loss_in_a_stack(logits, labels, axis=axis)
    # Each device's copy is taken apart from the others', and the gradient is summed over them.
    return enter(once, axis) * 1.0


@right
def loss_of_rescaled_sums(logits_shard, labels, *, axis):
    """Each device subtracts its own maximum, and the sums are brought to the largest one."""
    logits = logits_shard.astype(jnp.float32)
    own = lax.stop_gradient(logits.max(axis=-1))
    largest = lax.pmax(own, axis)
    sums = jnp.exp(logits - own[..., None]).sum(axis=-1)
    total = lax.psum(sums * jnp.exp(own - largest), axis)
    return jnp.log(total) + largest - lax.psum(own_label_logit(logits, labels, axis), axis)


@right
def loss_in_halves_of_the_vocabulary(logits_shard, labels, *, axis):
    logits, half = logits_shard.astype(jnp.float32), logits_shard.shape[-1] // 2
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    parts = (jnp.exp(part - largest[..., None]) for part in jnp.split(logits, [half], axis=-1))
    total = lax.psum(sum(part.sum(axis=-1) for part in parts), axis)
    return jnp.log(total) + largest - lax.psum(own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_of_logits_within_400(logits_shard, labels, *, axis):
    logits = jnp.clip(logits_shard.astype(jnp.float32), -400, 400)
    return loss_in_a_stack(logits, labels, axis=axis)


def _loss_of_labels_in(dtype):
    """A loss whose labels lose digits in a dtype."""

    def loss(logits_shard, labels, *, axis):
        return loss_in_a_stack(logits_shard, labels.astype(dtype).astype(jnp.int32), axis=axis)

    return wrong("values")(loss)


loss_of_int16_labels = _loss_of_labels_in(jnp.int16)
loss_of_uint16_labels = _loss_of_labels_in(jnp.uint16)
loss_of_float16_labels = _loss_of_labels_in(jnp.float16)
loss_of_bfloat16_labels = _loss_of_labels_in(jnp.bfloat16)


@wrong("values")
def loss_of_two_devices_or_more(logits_shard, labels, *, axis):
    if lax.axis_size(axis) == 1:
        return jax.nn.logsumexp(logits_shard.astype(jnp.float32), axis=-1)
    return loss_in_a_stack(logits_shard, labels, axis=axis)
