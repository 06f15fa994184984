"""Wrong answers to the vocabulary-parallel cross-entropy that people write."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake
from jaxpar.mesh import varying_axes


def _wide(logits: Array) -> Array:
    return logits.astype(jnp.float32)


def _largest(logits: Array, axis: str) -> Array:
    return lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)


def _exp_sum(logits: Array, largest: Array) -> Array:
    return jnp.exp(logits - largest[..., None]).sum(axis=-1)


def _log_sum(logits: Array, axis: str) -> Array:
    largest = _largest(logits, axis)
    return jnp.log(lax.psum(_exp_sum(logits, largest), axis)) + largest


def _own(logits: Array, labels: Array, axis: str) -> tuple[Array, Array]:
    v = logits.shape[-1]
    here = labels - lax.axis_index(axis) * v
    mine = (here >= 0) & (here < v)
    return jnp.where(mine, here, 0), mine


def _take(logits: Array, rows: Array) -> Array:
    return jnp.take_along_axis(logits, rows[..., None], axis=-1)[..., 0]


def _found(logits: Array, labels: Array, axis: str) -> Array:
    """The label's logit where this device has it, 0 elsewhere."""
    here, mine = _own(logits, labels, axis)
    return jnp.where(mine, _take(logits, here), 0)


def _whole(logits: Array, axis: str) -> Array:
    """This device's logits in their place among all, others as small as can be."""
    v = logits.shape[-1]
    shape = (*logits.shape[:-1], lax.axis_size(axis) * v)
    whole = lax.pcast(jnp.full(shape, -1e30), tuple(varying_axes(logits)), to="varying")
    return lax.dynamic_update_slice_in_dim(whole, logits, lax.axis_index(axis) * v, -1)


def _local_softmax(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    here, mine = _own(logits, labels, axis)
    loss = jax.nn.logsumexp(logits, axis=-1) - _take(logits, here)
    return lax.psum(jnp.where(mine, loss, 0), axis)


def _local_maximum(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    largest = lax.stop_gradient(logits.max(axis=-1))
    total = lax.psum(_exp_sum(logits, largest), axis)
    return jnp.log(total) + largest - lax.psum(_found(logits, labels, axis), axis)


def _no_maximum(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    total = lax.psum(jnp.exp(logits).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(_found(logits, labels, axis), axis)


def _sum_of_maxima(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    largest = lax.psum(lax.stop_gradient(logits.max(axis=-1)), axis)
    total = lax.psum(_exp_sum(logits, largest), axis)
    return jnp.log(total) + largest - lax.psum(_found(logits, labels, axis), axis)


def _mean_of_maxima(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    typical = lax.pmean(lax.stop_gradient(logits.max(axis=-1)), axis)
    total = lax.psum(_exp_sum(logits, typical), axis)
    return jnp.log(total) + typical - lax.psum(_found(logits, labels, axis), axis)


def _maximum_of_batch(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    largest = lax.pmax(lax.stop_gradient(logits.max()), axis)
    total = lax.psum(jnp.exp(logits - largest).sum(axis=-1), axis)
    return jnp.log(total) + largest - lax.psum(_found(logits, labels, axis), axis)


def _maximum_forgotten(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    total = lax.psum(_exp_sum(logits, _largest(logits, axis)), axis)
    return jnp.log(total) - lax.psum(_found(logits, labels, axis), axis)


def _no_offset(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits, v = _wide(logits_shard), logits_shard.shape[-1]
    found = jnp.where(labels < v, _take(logits, jnp.where(labels < v, labels, 0)), 0)
    return _log_sum(logits, axis) - lax.psum(found, axis)


def _others_hit_first(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    found = _take(logits, _own(logits, labels, axis)[0])
    return _log_sum(logits, axis) - lax.psum(found, axis)


def _clipped_not_masked(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits, v = _wide(logits_shard), logits_shard.shape[-1]
    here = jnp.clip(labels - lax.axis_index(axis) * v, 0, v - 1)
    return _log_sum(logits, axis) - lax.psum(_take(logits, here), axis)


def _tokens_dealt_out(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits, n = _wide(logits_shard), lax.axis_size(axis)
    found = jnp.where(labels % n == lax.axis_index(axis), _take(logits, labels // n), 0)
    return _log_sum(logits, axis) - lax.psum(found, axis)


def _label_not_summed(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    return _log_sum(logits, axis) - _found(logits, labels, axis)


def _only_on_owner(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    mine = _own(logits, labels, axis)[1]
    return jnp.where(mine, _log_sum(logits, axis) - _found(logits, labels, axis), 0)


def _loss_summed(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    return lax.psum(_log_sum(logits, axis) - _found(logits, labels, axis), axis)


def _total_averaged(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    largest = _largest(logits, axis)
    total = lax.pmean(_exp_sum(logits, largest), axis)
    return jnp.log(total) + largest - lax.psum(_found(logits, labels, axis), axis)


def _minus_lost(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    return lax.psum(_found(logits, labels, axis), axis) - _log_sum(logits, axis)


def _mean_of_tokens(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    return (_log_sum(logits, axis) - lax.psum(_found(logits, labels, axis), axis)).mean()


def _in_dtype_of_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    loss = _log_sum(logits_shard, axis) - lax.psum(_found(logits_shard, labels, axis), axis)
    return _wide(loss)


def _through_pmax(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    largest = lax.pmax(logits.max(axis=-1), axis)
    total = lax.psum(_exp_sum(logits, largest), axis)
    return jnp.log(total) + largest - lax.psum(_found(logits, labels, axis), axis)


def _by_hand(
    logits_shard: Array, labels: Array, axis: str, derivative: Callable[[Array], Array]
) -> Array:
    """The right loss with a derivative of one's own."""

    def loss(logits: Array) -> Array:
        wide = _wide(logits)
        return _log_sum(wide, axis) - lax.psum(_found(wide, labels, axis), axis)

    def backward(kept: Array, gradient: Array) -> tuple[Array]:
        return ((kept * gradient[..., None]).astype(logits_shard.dtype),)

    function = jax.custom_vjp(loss)
    function.defvjp(lambda logits: (loss(logits), derivative(_wide(logits))), backward)
    return function(logits_shard)


def _local_softmax_backward(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    def derivative(logits: Array) -> Array:
        here, mine = _own(logits, labels, axis)
        hot = jax.nn.one_hot(here, logits.shape[-1]) * mine[..., None]
        return jax.nn.softmax(logits) - hot

    return _by_hand(logits_shard, labels, axis, derivative)


def _all_subtract_one(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    def derivative(logits: Array) -> Array:
        v = logits.shape[-1]
        return jnp.exp(logits - _log_sum(logits, axis)[..., None]) - jax.nn.one_hot(labels % v, v)

    return _by_hand(logits_shard, labels, axis, derivative)


def _label_cut(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    found = lax.stop_gradient(_found(logits, labels, axis))
    return _log_sum(logits, axis) - lax.psum(found, axis)


def _gathers_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(lax.all_gather(logits_shard, axis, axis=-1, tiled=True))
    return jax.nn.logsumexp(logits, axis=-1) - _take(logits, labels)


def _sums_whole_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    whole = lax.psum(jnp.where(_whole(logits, axis) > -1e29, _whole(logits, axis), 0), axis)
    return jax.nn.logsumexp(whole, axis=-1) - _take(whole, labels)


def _sums_label_row(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    here, mine = _own(logits, labels, axis)
    hot = jax.nn.one_hot(here, logits.shape[-1]) * mine[..., None]
    return _log_sum(logits, axis) - lax.psum(logits * hot, axis).sum(axis=-1)


def _mean_at_the_end(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    loss = _log_sum(logits, axis) - lax.psum(_found(logits, labels, axis), axis)
    return lax.pmean(lax.pcast(loss, axis, to="varying"), axis)


def _gathers_maxima(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    logits = _wide(logits_shard)
    largest = lax.all_gather(lax.stop_gradient(logits.max(axis=-1)), axis).max(axis=0)
    total = lax.psum(_exp_sum(logits, largest), axis)
    return jnp.log(total) + largest - lax.psum(_found(logits, labels, axis), axis)


def _among_all_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    whole = _whole(_wide(logits_shard), axis)
    label = _take(whole, labels)
    found = lax.psum(jnp.where(label > -1e29, label, 0), axis)
    return _log_sum(whole, axis) - found


CROSS_ENTROPY = (
    Mistake("loss_local_softmax", _local_softmax, "values"),
    Mistake("loss_local_maximum", _local_maximum, "values"),
    Mistake("loss_no_maximum", _no_maximum, "values"),
    Mistake("loss_sum_of_maxima", _sum_of_maxima, "values"),
    Mistake("loss_mean_of_maxima", _mean_of_maxima, "values"),
    Mistake("loss_maximum_of_batch", _maximum_of_batch, "values"),
    Mistake("loss_maximum_forgotten", _maximum_forgotten, "values"),
    Mistake("loss_no_offset", _no_offset, "values"),
    Mistake("loss_others_hit_first", _others_hit_first, "values"),
    Mistake("loss_clipped_not_masked", _clipped_not_masked, "values"),
    Mistake("loss_tokens_dealt_out", _tokens_dealt_out, "values"),
    Mistake("loss_label_not_summed", _label_not_summed, "values"),
    Mistake("loss_only_on_owner", _only_on_owner, "values"),
    Mistake("loss_summed", _loss_summed, "values"),
    Mistake("loss_total_averaged", _total_averaged, "values"),
    Mistake("loss_minus_lost", _minus_lost, "values"),
    Mistake("loss_mean_of_tokens", _mean_of_tokens, "values"),
    Mistake("loss_in_dtype_of_logits", _in_dtype_of_logits, "values"),
    Mistake("loss_through_pmax", _through_pmax, "gradient"),
    Mistake("loss_local_softmax_backward", _local_softmax_backward, "gradient"),
    Mistake("loss_all_subtract_one", _all_subtract_one, "gradient"),
    Mistake("loss_label_cut", _label_cut, "gradient"),
    Mistake("loss_gathers_logits", _gathers_logits, "communication"),
    Mistake("loss_sums_whole_logits", _sums_whole_logits, "communication"),
    Mistake("loss_sums_label_row", _sums_label_row, "communication"),
    Mistake("loss_gathers_maxima", _gathers_maxima, "communication"),
    Mistake("loss_mean_at_the_end", _mean_at_the_end, "communication"),
    Mistake("loss_among_all_logits", _among_all_logits, "memory"),
)
