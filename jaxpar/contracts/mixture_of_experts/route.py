"""The experts of each token, and their weights."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import experts, nn
from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.mixture_of_experts.common import in_groups, on_devices
from jaxpar.experts import Routing, Score, route


@jax.custom_jvp
def _on_a_grid(x: Array, steps: float) -> Array:
    return jnp.round(x * steps) / steps


@_on_a_grid.defjvp
def _as_it_is(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _on_a_grid(*primals), tangents[0]


def on_a_grid(x: Array, steps: float) -> Array:
    """Multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be equal.

    So no rounding decides between two experts. The gradient is that of x.
    """
    return _on_a_grid(x, steps)


def with_ones(x: Array, steps: float) -> Array:
    """Multiples of 1, 1/4 or 1/16, with 1 in column 0."""
    return on_a_grid(x, steps).at[:, 0].set(1)


def lowered(router: Array, steps: float, width: int) -> Array:
    """Multiples of 1, 1/4 or 1/16, with -24 in row 0, which lowers all logits.

    The tokens are those of `with_ones`. There are `width` rows for each device.
    """
    first = jnp.arange(len(router)) % width == 0
    return jnp.where(first[:, None], -24, on_a_grid(router, steps)).astype(router.dtype)


def levels(drawn: Array, height: float) -> Array:
    """One of three levels for each expert, further apart than any two scores."""
    return (drawn % 3 - 1) * jnp.float32(height)


Draw = Literal["normal", "wide"]


def _case(
    mesh: str,
    t: int,
    d: int,
    e: int,
    *,
    dtype: str = "float32",
    draw: Draw = "normal",
    steps: float,
    bias: float = 0,
    low: bool = False,
    **how: Any,
) -> Case:
    """Every device has tokens, a router and a bias of its own; none if `bias` is 0.

    With `low`, sigmoids of all logits are nearly 0, but may be divided by their sum.
    """
    devices, at = math.prod(parse_mesh(mesh).values()), all_axes(mesh)
    grid, ones, lower, level = (
        Function(f"{__name__}:{name}") for name in ("on_a_grid", "with_ones", "lowered", "levels")
    )
    x = ArraySpec((devices * t, d), f"t_{at} d", dtype, draw)
    router = ArraySpec((devices * d, e), f"d_{at} e", dtype)
    args = {"x": Made(grid, (x, steps)), "router": Made(grid, (router, steps))}
    if low:
        args = {"x": Made(ones, (x, steps)), "router": Made(lower, (router, steps, d))}
    if bias:
        args["bias"] = Made(level, (ArraySpec((devices * e,), f"e_{at}", "int32"), bias))
    return Case(mesh, args, how)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """In bfloat16; logits that overflow a naive exponential; a bias; many ties; all experts, with
    scores that are nearly 0.
    """
    a, b, c = axis_names(rng, 3, besides=("dp", "ep", "tp"))
    fine = {"steps": 16, "dtype": "bfloat16", "top_k": 3}
    return (
        _case(mesh_of(rng, **{a: 3, b: 2}), pick(rng, (40, 44)), 37, pick(rng, (15, 17)), **fine),
        _case(f"{c}=2", pick(rng, (33, 35)), 7, 19, steps=4, draw="wide", top_k=1),
        _case(f"{a}=2", 21, 8, 7, steps=16, bias=2, top_k=5, score="sigmoid"),
        _case(f"{b}=1,{c}=2", pick(rng, (51, 53)), 5, 11, steps=1, bias=3, top_k=7),
        _case(f"{b}=3", pick(rng, (12, 14)), 10, 4, steps=4, low=True, top_k=4, score="sigmoid"),
    )


def _routed(case: Case, x: Array, router: Array, bias: Array | None = None) -> list[Expected]:
    """On each device the experts in the order of the scores, the first of equal ones first."""
    how = case.kwargs

    def of_device(x: Array, router: Array, bias: Array) -> tuple[Array, ...]:
        logits = x[0] @ router[0]
        logs = jax.nn.log_softmax(logits)
        if how.get("score", "softmax") == "sigmoid":
            logs = -jnp.logaddexp(0, -logits)
        order = jnp.argsort(-(jnp.exp(logs) + bias), axis=1, stable=True)[:, : how["top_k"]]
        chosen = jnp.take_along_axis(logs, order, axis=1)
        weights = jnp.exp(chosen - jax.nn.logsumexp(chosen, axis=1, keepdims=True))
        return tuple(y[None] for y in (weights, order.astype("int32"), jnp.exp(logs), logits))

    devices = math.prod(case.sizes.values())
    bias = jnp.zeros(devices * router.shape[1]) if bias is None else bias
    blocks = (in_groups(case, (), given) for given in (x, router, bias))
    return [Expected(on_devices(case, (), y)) for y in jax.vmap(of_device)(*blocks)]


FIRST = _case("dp=4", t=24, d=12, e=8, steps=1, top_k=2)

CONTRACT = Contract(
    kind="program",
    task="choose the best experts of each token, and return a Routing with their weights",
    reference=experts.route,
    oracle=_routed,
    cases=(
        FIRST,
        _case("ep=2,tp=3", t=10, d=9, e=6, steps=4, bias=2, top_k=1, score="sigmoid"),
        _case("dp=2", t=30, d=6, e=5, steps=1, bias=2, top_k=2),
    ),
    draw=_drawn,
    gradient=("x", "router"),
    communication=Communication("nothing is sent", forward=((),)),
    flops=work_is_split(),
    errors=(
        BadCall(_case("dp=4", t=24, d=12, e=8, steps=1, top_k=0), "top_k = 0"),
        BadCall(_case("dp=4", t=24, d=12, e=8, steps=1, top_k=9), "top_k = 9 of 8 experts"),
    ),
    imports=("jaxpar.experts.Routing", "jaxpar.experts.Score"),
    hints=(
        "Three things must be kept apart: logits, scores made of them, and what experts are ranked "
        "by, which is the scores plus the bias.",
        "lax.top_k(ranked, top_k) returns values and places; of equal ones the first is first. "
        "jnp.take_along_axis(scores, places, axis=1) reads the scores without the bias.",
        "Divide the chosen scores by their sum, for each token. Convert x and the router to "
        "float32 before their product.",
    ),
    minimal="A token is routed by its own numbers and the router, which is on every device.",
    harder="Choose groups of experts first, and experts only within these: so a token goes to few "
    "nodes (DeepSeek-V3).",
)


def _of_logits(
    logits: Array,
    bias: Array | None,
    top_k: int,
    score: Score,
    *,
    ranked: Any = lambda scores, bias: scores + bias,
    weigh: Any = lambda chosen: chosen / chosen.sum(axis=1, keepdims=True),
    read: Any = lambda scores, ranked: scores,
) -> Routing:
    """A routing in which each step may be another one."""
    scores = jax.nn.softmax(logits) if score == "softmax" else jax.nn.sigmoid(logits)
    order_by = scores if bias is None else ranked(scores, nn.expand_to(scores, bias))
    _, chosen = lax.top_k(order_by, top_k)
    weights = weigh(jnp.take_along_axis(read(scores, order_by), chosen, axis=1))
    return Routing(weights, chosen, scores, logits)


def _logits(x: Array, router: Array) -> Array:
    return x.astype(jnp.float32) @ router.astype(jnp.float32)


def _answer(
    x: Array,
    router: Array,
    bias: Array | None,
    top_k: int,
    score: Score,
    **steps: Any,
) -> Routing:
    return _of_logits(_logits(x, router), bias, top_k, score, **steps)


Bias = Array | None


@wrong("values")
def weights_not_divided(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The weights of a token do not add up to 1; divide the chosen scores by their sum."""
    return _answer(x, router, bias, top_k, score, weigh=lambda chosen: chosen)


@wrong("values")
def bias_in_weights(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The bias is in the weights, too; it only decides who is chosen, so read the weights from the
    scores without it."""
    return _answer(x, router, bias, top_k, score, read=lambda scores, ranked: ranked)


@wrong("values")
def bias_on_logits(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The bias is added to the logits, and so changes the scores; add it to the scores, where
    experts are ranked."""
    logits = _logits(x, router)
    logits = logits if bias is None else logits + nn.expand_to(logits, bias)
    return _of_logits(logits, None, top_k, score)


@wrong("values")
def ranked_by_biased_logits(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """Experts are ranked by logit plus bias; rank them by score plus bias, where the scores are
    between 0 and 1."""
    logits = _logits(x, router)
    return _answer(x, router, bias, top_k, score, ranked=lambda scores, bias: logits + bias)


@wrong("values")
def bias_forgotten(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The bias has no effect; add it to the scores where experts are chosen."""
    return route(x, router, top_k=top_k, score=score)


@wrong("values")
def bias_subtracted(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The bias is subtracted; an expert with a larger bias is chosen more often."""
    return _answer(x, router, bias, top_k, score, ranked=lambda scores, bias: scores - bias)


@wrong("values")
def softmax_always(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The scores are always a softmax; with score="sigmoid" each is the sigmoid of its logit."""
    return route(x, router, bias, top_k=top_k)


@wrong("values")
def softmax_without_bias(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """Where there is no bias, the scores are a softmax even with score="sigmoid"; the two have
    nothing to do with each other."""
    return route(x, router, bias, top_k=top_k, score="softmax" if bias is None else score)


@wrong("values")
def softmax_of_chosen_as_scores(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The weights are a softmax of the chosen scores; they are these scores divided by their sum,
    which is a softmax of their logits only where the score is one."""
    return _answer(x, router, bias, top_k, score, weigh=jax.nn.softmax)


@wrong("values")
def softmax_of_chosen_logits(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The weights are a softmax of the chosen logits, also with score="sigmoid"; divide the chosen
    scores by their sum, whatever they are made by."""
    found = route(x, router, bias, top_k=top_k, score=score)
    chosen = jnp.take_along_axis(found.logits, found.experts, axis=1)
    return found._replace(weights=jax.nn.softmax(chosen))


@wrong("values")
def divided_by_all_scores(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The chosen scores are divided by the sum of all scores of the token; divide them by that of
    the chosen ones, so that the weights add up to 1."""
    found = route(x, router, bias, top_k=top_k, score=score)
    chosen = jnp.take_along_axis(found.scores, found.experts, axis=1)
    return found._replace(weights=chosen / found.scores.sum(axis=1, keepdims=True))


@wrong("values")
def weights_of_all(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """You return a weight for every expert; return those of the chosen ones, best first."""
    found = route(x, router, bias, top_k=top_k, score=score)
    rows = jnp.arange(len(x))[:, None]
    return found._replace(
        weights=jnp.zeros_like(found.scores).at[rows, found.experts].set(found.weights)
    )


@wrong("values")
def in_order_of_experts(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The experts of a token are in the order of their numbers; the best comes first, for first
    choices get their rows first."""
    found = route(x, router, bias, top_k=top_k, score=score)
    order = jnp.argsort(found.experts, axis=1)
    weights, chosen = (jnp.take_along_axis(y, order, axis=1) for y in found[:2])
    return found._replace(weights=weights, experts=chosen)


@wrong("values")
def last_of_equal_ones(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """Of experts with equal scores you take the last; take the first, as lax.top_k does."""
    found = route(x, router, bias, top_k=top_k, score=score)
    ranked = found.scores if bias is None else found.scores + nn.expand_to(found.scores, bias)
    chosen = jnp.flip(jnp.argsort(ranked, axis=1), axis=1)[:, :top_k]
    weights = jnp.take_along_axis(found.scores, chosen, axis=1)
    return found._replace(weights=weights / weights.sum(axis=1, keepdims=True), experts=chosen)


@wrong("values")
def routed_as_it_comes(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The logits are computed in the dtype of x; in bfloat16 many of them are then equal. Convert
    x and the router to float32 before the product."""
    found = _of_logits(x @ router, bias, top_k, score)
    return Routing(*(y if y.dtype == jnp.int32 else y.astype(jnp.float32) for y in found))


@wrong("values")
def naive_exponential(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """Exponentials of large logits are infinite; jax.nn.softmax subtracts the largest first."""
    if score == "sigmoid":
        return route(x, router, bias, top_k=top_k, score=score)
    logits = _logits(x, router)
    exponentials = jnp.exp(logits)
    logs = jnp.log(exponentials / exponentials.sum(axis=1, keepdims=True))
    return _of_logits(logs, bias, top_k, score)._replace(logits=logits)


@wrong("values")
def scores_of_experts_of_rank_two(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """You always choose two experts; `top_k` says how many."""
    return _answer(x, router, bias, 2, score)


@wrong("gradient")
def weights_have_no_gradient(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The weights have no gradient, so that the router cannot learn from the experts' results;
    leave lax.stop_gradient out, which only the choice could do without."""
    found = route(x, router, bias, top_k=top_k, score=score)
    return found._replace(weights=lax.stop_gradient(found.weights))


@wrong("gradient")
def scores_have_no_gradient(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """The scores have no gradient, so that a loss of them cannot balance the load; leave
    lax.stop_gradient out."""
    found = route(x, router, bias, top_k=top_k, score=score)
    return found._replace(scores=lax.stop_gradient(found.scores))


@wrong("errors")
def any_number_of_experts(
    x: Array, router: Array, bias: Bias = None, *, top_k: int, score: Score = "softmax"
) -> Routing:
    """Raise ValueError where top_k is below 1, or above the number of experts."""
    return _answer(x, router, bias, min(max(top_k, 1), router.shape[1]), score)
