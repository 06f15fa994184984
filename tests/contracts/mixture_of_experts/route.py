"""Answers to route: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.experts import Routing
from tests.contracts.answers import right


def _checked(top_k, router):
    if not 0 < top_k <= router.shape[1]:
        raise ValueError(f"{top_k} of {router.shape[1]}")


def _logits(x, router):
    return x.astype(jnp.float32) @ router.astype(jnp.float32)


def _scores(logits, score):
    return jax.nn.softmax(logits, axis=-1) if score == "softmax" else jax.nn.sigmoid(logits)


@right
def route_by_scores(x, router, bias=None, *, top_k, score="softmax"):
    _checked(top_k, router)
    logits = _logits(x, router)
    scores = _scores(logits, score)
    _, chosen = lax.top_k(scores if bias is None else scores + bias[None], top_k)
    weights = jnp.take_along_axis(scores, chosen, axis=1)
    return Routing(weights / weights.sum(axis=1, keepdims=True), chosen, scores, logits)


@right
def route_by_sorting(x, router, bias=None, *, top_k, score="softmax"):
    _checked(top_k, router)
    logits = jnp.einsum("td,de->te", x, router, preferred_element_type=jnp.float32)
    scores = _scores(logits, score)
    ranked = scores if bias is None else scores + bias[None]
    chosen = jnp.argsort(-ranked, axis=1)[:, :top_k].astype(jnp.int32)
    weights = jnp.take_along_axis(scores, chosen, axis=1)
    return Routing(weights / jnp.sum(weights, axis=1)[:, None], chosen, scores, logits)


@right
def route_one_rank_after_the_other(x, router, bias=None, *, top_k, score="softmax"):
    _checked(top_k, router)
    logits = _logits(x, router)
    scores = _scores(logits, score)
    ranked = lax.stop_gradient(scores if bias is None else scores + bias[None])
    chosen = []
    for _ in range(top_k):
        best = jnp.argmax(ranked, axis=1)
        chosen.append(best)
        hot = jax.nn.one_hot(best, ranked.shape[1], dtype=bool)
        ranked = jnp.where(hot, -jnp.inf, ranked)
    chosen = jnp.stack(chosen, axis=1).astype(jnp.int32)
    weights = jnp.take_along_axis(scores, chosen, axis=1)
    return Routing(weights / weights.sum(axis=1, keepdims=True), chosen, scores, logits)


@right
def route_by_a_mask(x, router, bias=None, *, top_k, score="softmax"):
    """The weights of all experts, zero for those that are not chosen, divided by their sum."""
    _checked(top_k, router)
    logits = _logits(x, router)
    scores = _scores(logits, score)
    _, chosen = lax.top_k(scores if bias is None else scores + bias[None], top_k)
    mask = jax.nn.one_hot(chosen, router.shape[1]).sum(axis=1)
    every = scores * mask
    every = every / every.sum(axis=1, keepdims=True)
    return Routing(jnp.take_along_axis(every, chosen, axis=1), chosen, scores, logits)


@right
def route_by_sorting_with_numbers(x, router, bias=None, *, top_k, score="softmax"):
    """Sorted by score and then by number, and the scores without the bias along with them."""
    _checked(top_k, router)
    logits = _logits(x, router)
    scores = _scores(logits, score)
    ranked = lax.stop_gradient(scores if bias is None else scores + bias[None])
    numbers = jnp.argsort(jnp.zeros_like(ranked), axis=1).astype(jnp.int32)
    _, chosen, weights = lax.sort((-ranked, numbers, scores), dimension=1, num_keys=2)
    weights = weights[:, :top_k]
    weights = weights / weights.sum(axis=1, keepdims=True)
    return Routing(weights, chosen[:, :top_k], scores, logits)


@right
def route_token_by_token(x, router, bias=None, *, top_k, score="softmax"):
    _checked(top_k, router)

    def one(token):
        logits = token.astype(jnp.float32) @ router.astype(jnp.float32)
        scores = _scores(logits, score)
        _, chosen = lax.top_k(scores if bias is None else scores + bias, top_k)
        return Routing(scores[chosen] / scores[chosen].sum(), chosen, scores, logits)

    return jax.vmap(one)(x)


@wrong("values")
def routed_as_a_tuple(x, router, bias=None, *, top_k, score="softmax"):
    return tuple(route_by_scores(x, router, bias, top_k=top_k, score=score))


@wrong("values")
def routed_with_weights_in_the_dtype_of_x(x, router, bias=None, *, top_k, score="softmax"):
    found = route_by_scores(x, router, bias, top_k=top_k, score=score)
    return found._replace(weights=found.weights.astype(x.dtype))


@wrong("values")
def routed_with_rounded_weights(x, router, bias=None, *, top_k, score="softmax"):
    found = route_by_scores(x, router, bias, top_k=top_k, score=score)
    return found._replace(weights=found.weights.astype(jnp.bfloat16).astype(jnp.float32))


@wrong("values")
def routed_by_the_bias_of_the_first_experts(x, router, bias=None, *, top_k, score="softmax"):
    bias = None if bias is None else bias * (jnp.arange(len(bias)) < 5)
    return route_by_scores(x, router, bias, top_k=top_k, score=score)


@wrong("values")
def routed_to_three_at_most(x, router, bias=None, *, top_k, score="softmax"):
    found = route_by_scores(x, router, bias, top_k=top_k, score=score)
    weights = jnp.where(jnp.arange(top_k)[None] < 3, found.weights, 0)
    return found._replace(weights=weights / weights.sum(axis=1, keepdims=True))


@wrong("values")
def routed_to_all_but_one_at_most(x, router, bias=None, *, top_k, score="softmax"):
    if top_k == router.shape[1]:
        raise ValueError("nothing is left to choose")
    return route_by_scores(x, router, bias, top_k=top_k, score=score)


@wrong("values")
def routed_with_something_added_to_the_sum(x, router, bias=None, *, top_k, score="softmax"):
    """So that nothing is divided by 0; it must be less than any sum of scores."""
    found = route_by_scores(x, router, bias, top_k=top_k, score=score)
    chosen = jnp.take_along_axis(found.scores, found.experts, axis=1)
    return found._replace(weights=chosen / (chosen.sum(axis=1, keepdims=True) + 1e-9))


@wrong("gradient")
def routed_without_gradient_of_the_sum(x, router, bias=None, *, top_k, score="softmax"):
    found = route_by_scores(x, router, bias, top_k=top_k, score=score)
    chosen = jnp.take_along_axis(found.scores, found.experts, axis=1)
    total = lax.stop_gradient(chosen.sum(axis=1, keepdims=True))
    return found._replace(weights=chosen / total)


@wrong("flops")
def routed_three_times(x, router, bias=None, *, top_k, score="softmax"):
    """One product for each use of the logits."""
    _checked(top_k, router)
    one, two, three = (_logits(x, router + 0 * i) for i in range(3))
    scores = _scores(one, score)
    ranked = _scores(two, score)
    _, chosen = lax.top_k(ranked if bias is None else ranked + bias[None], top_k)
    weights = jnp.take_along_axis(scores, chosen, axis=1)
    return Routing(weights / weights.sum(axis=1, keepdims=True), chosen, ranked, three)


@wrong("errors")
def routed_to_all_where_there_are_too_few(x, router, bias=None, *, top_k, score="softmax"):
    if top_k < 1:
        raise ValueError("top_k")
    k = min(top_k, router.shape[1])
    return route_by_scores(x, router, bias, top_k=k, score=score)


@wrong("errors")
def routed_to_nobody(x, router, bias=None, *, top_k, score="softmax"):
    """lax.top_k refuses too large a k by itself, with a ValueError; it takes 0."""
    if top_k == 0:
        top_k = 1
    return route_by_scores(x, router, bias, top_k=top_k, score=score)
