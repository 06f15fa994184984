"""The loss of each token from logits whose vocabulary is split: no device has them whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import ring_bytes
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import Step, as_it_is, enter, gathered
from jaxpar.contracts.vocabulary_and_sequence.common import (
    of_batch,
    own_label_logit,
    own_tokens,
    take,
)
from jaxpar.parallel import vocabulary


def _losses(case: Case, logits: Array, labels: Array) -> list[Expected]:
    return of_batch(case, jax.nn.logsumexp(logits, axis=-1) - take(logits, labels))


def _case(
    mesh: str, shape: tuple[int, int, int], layout: str, axis: str,
    dtype: str = "float32", draw: Literal["shifted", "peaked", "spread"] = "shifted",
) -> Case:  # fmt: skip
    """A case of logits with this shape and layout; labels are laid out as b and t are."""
    logits_shard = ArraySpec(shape, layout, dtype, draw)
    labels = ArraySpec(shape[:2], layout.rpartition(" ")[0], "int32")
    return Case(mesh, {"logits_shard": logits_shard, "labels": labels}, {"axis": axis})


def drawn_labels(drawn: Array, count: int) -> Array:
    """Labels below `count` from any integers; the first and the last one are always among them."""
    return (drawn % count).at[..., 0].set(0).at[..., -1].set(count - 1)


def _of_many(case: Case) -> Case:
    """The case, with labels of the whole vocabulary, however many there are."""
    logits, labels = case.args["logits_shard"], case.args["labels"]
    labels = Made(
        Function(f"{__name__}:drawn_labels"), (replace(labels, draw="large"), logits.shape[-1])
    )
    return replace(case, args={"logits_shard": logits, "labels": labels})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    n, t, v = pick(rng, (5, 6)), pick(rng, (7, 8, 9)), pick(rng, range(14_000, 14_100))
    # More tokens than 16 bits can count, and logits that are far from what exp can take.
    many = (2, t, n * v), f"b_{other} t v_{axis}", axis, "bfloat16", "spread"
    one = (2 * pick(rng, (6, 7)), 11, 29), f"b_{other} t v_{axis}", axis, "float32", "peaked"
    return (
        _of_many(_case(mesh_of(rng, **{axis: n, other: 2}), *many)),
        _of_many(_case(f"{axis}=1,{other}=2", *one)),
    )


CONTRACT = Contract(
    kind="program",
    task="return the loss of each token in float32, without ever gathering logits",
    reference=vocabulary.vocab_parallel_cross_entropy,
    oracle=_losses,
    cases=(
        _case("tp=8", (4, 16, 8 * 13), "b t v_tp", "tp"),
        _case("dp=2,tpx=3", (2 * 3, 20, 3 * 34), "b_dp t v_tpx", "tpx", "bfloat16", "peaked"),
    ),
    draw=_drawn,
    gradient=("logits_shard",),
    communication=Communication(
        "three all-reduces of one number for each token, backward nothing",
        forward=((Limit(("all_reduce",), "axis", ring_bytes(6, "labels")),),),
    ),
    memory=MemoryLimit(
        "never all logits of a token: at most ten times the library's bytes of intermediate "
        "results, forward and backward",
        multiple=10,
        programs=("forward", "gradient"),
    ),
    hints=(
        "The loss is log(sum of exp(logits)) less the label's logit. Both are sums over the "
        "vocabulary: each device adds its part, one number for each token.",
        "exp overflows, so subtract from all logits of a token one number, the same on all "
        "devices: their maximum, by lax.pmax. Any number near it would do, so it needs no "
        "gradient, and lax.pmax has none: put its argument into lax.stop_gradient.",
        "The label's logit is on one device: look up labels - i * v where that is in 0..v-1, put 0 "
        "elsewhere, and sum with lax.psum. Work in float32: begin with logits.astype(jnp.float32).",
    ),
    minimal="Every token needs the maximum, the sum and the label's logit of all devices: three "
    "numbers, whatever the size of the vocabulary.",
    harder="Take x and this device's columns of the head instead of logits, and work through the "
    "positions in parts, so that only one part's logits exist at a time.",
)


def _in_float32(logits_shard: Array) -> Array:
    return logits_shard.astype(jnp.float32)


def _log_sum(
    logits: Array, axis: str, *, largest: Step = lax.pmax, total: Step = lax.psum
) -> Array:
    """The logarithm of the sum of exp over the vocabulary, with one step done in another way.

    `largest` takes this device's maximum of each token to what is subtracted from its logits.
    """
    less = largest(lax.stop_gradient(logits.max(axis=-1)), axis)
    return jnp.log(total(jnp.exp(logits - less[..., None]).sum(axis=-1), axis)) + less


def _loss(logits: Array, labels: Array, axis: str, **steps: Step) -> Array:
    """The loss in the dtype of the logits, with one step of `_log_sum` done in another way."""
    label = lax.psum(own_label_logit(logits, labels, axis), axis)
    return _log_sum(logits, axis, **steps) - label


@wrong("values")
def loss_local_softmax(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Each softmax is over the tokens of one device; sum exp of the logits over the devices before
    the logarithm."""
    logits = _in_float32(logits_shard)
    place, mine = own_tokens(labels, logits.shape[-1], axis)
    loss = jax.nn.logsumexp(logits, axis=-1) - take(logits, jnp.where(mine, place, 0))
    return lax.psum(jnp.where(mine, loss, 0), axis)


@wrong("values")
def loss_local_maximum(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Each device subtracts its own maximum, and the sums of exp do not fit together; take lax.pmax
    of it first."""
    return _loss(_in_float32(logits_shard), labels, axis, largest=as_it_is)


@wrong("values")
def loss_no_maximum(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """exp of large logits is infinite, and of very small ones zero; subtract the maximum over all
    devices first, and add it to the logarithm."""
    logits = _in_float32(logits_shard)
    total = lax.psum(jnp.exp(logits).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_sum_of_maxima(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The devices' maxima are summed; take lax.pmax of them."""
    return _loss(_in_float32(logits_shard), labels, axis, largest=lax.psum)


@wrong("values")
def loss_mean_of_maxima(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Where one logit is far above all others, the loss is infinite: subtract the maximum of all
    devices, by lax.pmax, not their mean or another logit; and subtract the label's logit, not the
    logarithm of its probability."""
    return _loss(_in_float32(logits_shard), labels, axis, largest=lax.pmean)


@wrong("values")
def loss_maximum_of_batch(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """One maximum is used for all tokens of the batch, and exp of the logits of another token may
    be all zero; each token needs its own maximum."""

    def largest(maxima: Array, axis: str) -> Array:
        return jnp.broadcast_to(lax.pmax(maxima.max(), axis), labels.shape)

    return _loss(_in_float32(logits_shard), labels, axis, largest=largest)


@wrong("values")
def loss_maximum_forgotten(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The maximum is subtracted before exp, but not added to the logarithm of the sum."""
    logits = _in_float32(logits_shard)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    total = lax.psum(jnp.exp(logits - largest[..., None]).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_no_offset(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Every device looks labels up as if its first token were 0; subtract lax.axis_index(axis) * v
    from them."""
    logits = _in_float32(logits_shard)
    mine = labels < logits.shape[-1]
    found = jnp.where(mine, take(logits, jnp.where(mine, labels, 0)), 0)
    return _log_sum(logits, axis) - lax.psum(found, axis)


@wrong("values")
def loss_others_hit_first(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """For labels of other devices, the logit of this device's first token goes into the sum; put 0
    there with jnp.where."""
    logits = _in_float32(logits_shard)
    place, mine = own_tokens(labels, logits.shape[-1], axis)
    found = take(logits, jnp.where(mine, place, 0))
    return _log_sum(logits, axis) - lax.psum(found, axis)


@wrong("values")
def loss_clipped_not_masked(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Labels of other devices are clipped, and add the logit of this device's first or last token;
    put 0 there with jnp.where."""
    logits, v = _in_float32(logits_shard), logits_shard.shape[-1]
    place = jnp.clip(labels - lax.axis_index(axis) * v, 0, v - 1)
    return _log_sum(logits, axis) - lax.psum(take(logits, place), axis)


@wrong("values")
def loss_tokens_dealt_out(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The tokens are taken to be dealt out in turn, a label to device label % n; they are split
    into blocks: device i has tokens i * v to (i + 1) * v - 1."""
    logits, n = _in_float32(logits_shard), lax.axis_size(axis)
    found = jnp.where(labels % n == lax.axis_index(axis), take(logits, labels // n), 0)
    return _log_sum(logits, axis) - lax.psum(found, axis)


@wrong("values")
def loss_label_not_summed(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Only the device that has the label subtracts its logit; sum it with lax.psum, so that all
    devices do."""
    logits = _in_float32(logits_shard)
    return _log_sum(logits, axis) - own_label_logit(logits, labels, axis)


@wrong("values")
def loss_only_on_owner(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The loss is right on the device that has the label and 0 on all others; sum the label's logit
    with lax.psum, and return the loss everywhere."""
    logits = _in_float32(logits_shard)
    _, mine = own_tokens(labels, logits.shape[-1], axis)
    return jnp.where(mine, _log_sum(logits, axis) - own_label_logit(logits, labels, axis), 0)


@wrong("values")
def loss_summed(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The whole loss is summed over the devices, and the logarithm in it counts n times; sum the
    label's logit only."""
    logits = _in_float32(logits_shard)
    return lax.psum(_log_sum(logits, axis) - own_label_logit(logits, labels, axis), axis)


@wrong("values")
def loss_total_averaged(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The sums of exp are averaged over the devices; sum them."""
    return _loss(_in_float32(logits_shard), labels, axis, total=lax.pmean)


@wrong("values")
def loss_minus_lost(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The sign is wrong: the loss is the logarithm of the sum minus the label's logit."""
    return -_loss(_in_float32(logits_shard), labels, axis)


@wrong("values")
def loss_mean_of_tokens(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The mean over all tokens is returned; return the loss of each, [b, t]."""
    return _loss(_in_float32(logits_shard), labels, axis).mean()


@wrong("values")
def loss_in_dtype_of_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The sums are in the dtype of the logits, and bfloat16 keeps fewer than three digits; convert
    the logits to float32 first."""
    return _in_float32(_loss(logits_shard, labels, axis))


@wrong("gradient")
def loss_through_pmax(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """lax.pmax has no derivative, and needs none here: any number near the maximum gives the same
    loss; put its argument into lax.stop_gradient."""
    logits = _in_float32(logits_shard)
    largest = lax.pmax(logits.max(axis=-1), axis)
    total = lax.psum(jnp.exp(logits - largest[..., None]).sum(axis=-1), axis)
    return jnp.log(total) + largest - lax.psum(own_label_logit(logits, labels, axis), axis)


def _with_derivative(
    logits_shard: Array, labels: Array, axis: str, derivative: Callable[[Array], Array]
) -> Array:
    """The right loss with another derivative, by the logits in float32."""

    def loss(logits: Array) -> Array:
        return _loss(_in_float32(logits), labels, axis)

    def backward(kept: Array, gradient: Array) -> tuple[Array]:
        return ((kept * gradient[..., None]).astype(logits_shard.dtype),)

    function = jax.custom_vjp(loss)
    function.defvjp(lambda logits: (loss(logits), derivative(_in_float32(logits))), backward)
    return function(logits_shard)


def _own_one_hot(labels: Array, v: int, axis: str) -> Array:
    """1 at the label of each token on the device that has it, 0 elsewhere."""
    place, mine = own_tokens(labels, v, axis)
    return jax.nn.one_hot(jnp.where(mine, place, 0), v) * mine[..., None]


@wrong("gradient")
def loss_local_softmax_backward(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The derivative takes the softmax of this device's tokens; divide exp by the sum over all
    devices."""

    def derivative(logits: Array) -> Array:
        return jax.nn.softmax(logits) - _own_one_hot(labels, logits.shape[-1], axis)

    return _with_derivative(logits_shard, labels, axis, derivative)


@wrong("gradient")
def loss_all_subtract_one(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Every device subtracts 1 from the gradient of some token; only the device that has the label
    does."""

    def derivative(logits: Array) -> Array:
        v = logits.shape[-1]
        return jnp.exp(logits - _log_sum(logits, axis)[..., None]) - jax.nn.one_hot(labels % v, v)

    return _with_derivative(logits_shard, labels, axis, derivative)


@wrong("gradient")
def loss_label_cut(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """No gradient goes through the label's logit; leave lax.stop_gradient out there."""
    logits = _in_float32(logits_shard)
    found = lax.stop_gradient(own_label_logit(logits, labels, axis))
    return _log_sum(logits, axis) - lax.psum(found, axis)


@wrong("communication")
def loss_gathers_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """The logits are gathered, v numbers for each token; send the maximum, the sum of exp and the
    label's logit only."""
    logits = _in_float32(gathered(logits_shard, axis, -1))
    return jax.nn.logsumexp(logits, axis=-1) - take(logits, labels)


def _among_all_logits(logits: Array, axis: str) -> Array:
    """This device's logits in their place among all; the others are as small as can be."""
    v = logits.shape[-1]
    shape = (*logits.shape[:-1], lax.axis_size(axis) * v)
    whole = jnp.full_like(logits, -1e30, shape=shape)
    return lax.dynamic_update_slice_in_dim(whole, logits, lax.axis_index(axis) * v, -1)


@wrong("communication")
def loss_sums_whole_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Every device sums logits of the whole vocabulary; send the maximum, the sum of exp and the
    label's logit only."""
    whole = _among_all_logits(_in_float32(logits_shard), axis)
    logits = lax.psum(jnp.where(whole > -1e29, whole, 0), axis)
    return jax.nn.logsumexp(logits, axis=-1) - take(logits, labels)


@wrong("communication")
def loss_sums_label_row(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """A vector of the vocabulary is summed over the devices to find the label's logit; sum over the
    tokens first, and send one number."""
    logits = _in_float32(logits_shard)
    own_row = logits * _own_one_hot(labels, logits.shape[-1], axis)
    return _log_sum(logits, axis) - lax.psum(own_row, axis).sum(axis=-1)


@wrong("communication")
def loss_gathers_maxima(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Every device gathers all devices' maxima: n/2 times the bytes of lax.pmax, which needs no
    derivative here: put its argument into lax.stop_gradient."""

    def largest(maxima: Array, axis: str) -> Array:
        return lax.all_gather(maxima, axis).max(axis=0)

    return _loss(_in_float32(logits_shard), labels, axis, largest=largest)


@wrong("communication")
def loss_mean_at_the_end(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """All devices have the loss already; a mean over them sends it once more."""
    loss = _loss(_in_float32(logits_shard), labels, axis)
    return lax.pmean(enter(loss, axis), axis)


@wrong("memory")
def loss_among_all_logits(logits_shard: Array, labels: Array, *, axis: str) -> Array:
    """Each device makes room for the logits of the whole vocabulary; its own are enough, and labels
    relative to its first token."""
    whole = _among_all_logits(_in_float32(logits_shard), axis)
    label = take(whole, labels)
    found = lax.psum(jnp.where(label > -1e29, label, 0), axis)
    return _log_sum(whole, axis) - found
