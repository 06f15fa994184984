"""The loss by which a router learns to give all experts as many tokens."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.mixture_of_experts.common import (
    EVERY_KIND,
    axes_of_call,
    devices_of,
    drawn_choices,
    in_groups,
    load,
    on_devices,
)
from jaxpar.mesh import Axis, entry_axes
from jaxpar.parallel import expert
from jaxpar.parallel.expert import load_balance_loss


def _case(mesh: str, axis: Axis, *, t: int, e: int, top_k: int, chosen: int = 0) -> Case:
    """Every device has tokens of its own."""
    tokens = math.prod(parse_mesh(mesh).values()) * t
    args = {
        "scores": ArraySpec((tokens, e), f"t_{all_axes(mesh)} e", draw="positive"),
        "experts": drawn_choices(mesh, t, top_k, chosen or e),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Two of three axes, in any order; more choices of an expert than 16-bit floats count; one
    device, where every choice is of two experts.
    """
    a, b, c = axis_names(rng, 3, besides=("ep", "dp", "fsdp", "tp"))
    e = pick(rng, (13, 14))
    mesh = mesh_of(rng, **{a: 3, b: 2, c: 2})
    return (
        _case(mesh, (b, a), t=pick(rng, (22, 25)), e=e, top_k=3),
        _case(f"{c}=5", c, t=pick(rng, (1201, 1203)), e=10, top_k=4, chosen=9),
        _case(f"{b}=1,{a}=2", b, t=9, e=7, top_k=2, chosen=2),
    )


def _of_all_tokens(case: Case, scores: Array, experts: Array) -> list[Expected]:
    axes = axes_of_call(case)

    def of_group(scores: Array, experts: Array) -> Array:
        count = scores.shape[-1]
        fraction = load(experts, count) / experts.size
        loss = count * (fraction * scores.mean(axis=(0, 1))).sum()
        return jnp.broadcast_to(loss, len(scores))

    groups = (in_groups(case, axes, given) for given in (scores, experts))
    return [Expected(on_devices(case, axes, jax.vmap(of_group)(*groups)))]


def _two_numbers_an_expert(sizes: Sizes) -> float:
    (_, scores), *_ = sizes.case.arrays()
    n = devices_of(sizes)
    return 2 * (n - 1) / n * 2 * scores.shape[1] * 4


CONTRACT = Contract(
    kind="program",
    task="return e times the sum of f_i * p_i, where f and p are of the tokens of all devices",
    reference=expert.load_balance_loss,
    oracle=_of_all_tokens,
    cases=(
        _case("ep=4", "ep", t=20, e=8, top_k=2, chosen=7),
        _case("dp=2,fsdp=3", ("dp", "fsdp"), t=15, e=6, top_k=1),
        _case("dp=3,tp=2", "dp", t=12, e=5, top_k=2),
    ),
    draw=_drawn,
    gradient=("scores",),
    communication=Communication(
        "one all-reduce of two numbers for each expert, or two of one number",
        forward=((Limit(EVERY_KIND, None, _two_numbers_an_expert),),),
    ),
    hints=(
        "Both f and p are means over the tokens of all devices. A product of two means is not the "
        "mean of products, so average first.",
        "jnp.bincount(experts.reshape(-1), length=e) counts; divided by experts.size, these are "
        "fractions. p is scores.mean(axis=0).",
        "lax.pmean takes a tuple of arrays, and a tuple of axes. Then multiply by e.",
    ),
    minimal="f and p are sums of what all devices have, e numbers each, and a device must receive "
    "what the others add to them.",
    harder="Split the loss over microbatches: f of all of them is known only at the end, p is "
    "differentiated before. What do you do?",
)


def _loss(fraction: Array, score: Array) -> Array:
    return len(score) * (fraction * score).sum()


def _own(scores: Array, experts: Array) -> tuple[Array, Array]:
    """The fractions of this device's choices, and its mean scores."""
    count = load(experts, scores.shape[1]).astype(scores.dtype)
    return count / experts.size, scores.mean(axis=0)


@wrong("values")
def loss_of_own_tokens(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The loss is that of this device's tokens; take those of all devices."""
    return _loss(*_own(scores, experts))


@wrong("values")
def mean_of_own_losses(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """Each device computes a loss of its own, and you average these, which asks every device for
    balance by itself; average f and p over the devices, then multiply."""
    return lax.pmean(_loss(*_own(scores, experts)), axis)


@wrong("values")
def own_fractions(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The fractions are those of this device's choices; average them over the devices as you do
    with the scores."""
    fraction, score = _own(scores, experts)
    return _loss(fraction, lax.pmean(score, axis))


@wrong("values")
def own_scores(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The mean scores are those of this device's tokens; average them over the devices as you do
    with the fractions."""
    fraction, score = _own(scores, experts)
    return _loss(lax.pmean(fraction, axis), score)


@wrong("values")
def sums_for_means(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The devices' fractions and mean scores are added up; average them, with lax.pmean."""
    fraction, score = _own(scores, experts)
    return _loss(lax.psum(fraction, axis), lax.psum(score, axis))


@wrong("values")
def without_e(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The number of experts is left out; an even load must have a loss of 1."""
    return load_balance_loss(scores, experts, axis=axis) / scores.shape[1]


@wrong("values")
def without_k(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The choices are divided by the number of tokens; each token has k, and the fractions must add
    up to 1."""
    return load_balance_loss(scores, experts, axis=axis) * experts.shape[1]


@wrong("values")
def counts_in_place_of_fractions(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """f has numbers of choices; divide them by the number of all choices."""
    return load_balance_loss(scores, experts, axis=axis) * experts.size


@wrong("values")
def first_choices_alone(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """Only first choices are counted; a token loads all of its k experts."""
    return load_balance_loss(scores, experts[:, :1], axis=axis)


@wrong("values")
def scores_of_chosen_alone(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """p has the scores of chosen experts only; it is the mean over all tokens, whoever they
    choose."""
    mask = jax.nn.one_hot(experts, scores.shape[1]).sum(axis=1)
    return load_balance_loss(scores * mask, experts, axis=axis)


@wrong("values")
def fractions_squared(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The loss has f times f, which has no gradient; multiply f by the mean scores."""
    fraction, score = _own(scores, experts)
    fraction, score = lax.pmean((fraction, score), axis)
    return _loss(fraction, fraction) + 0 * score.sum()


@wrong("values")
def over_whole_mesh(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The means are over all axes of the mesh; take those that `axis` names."""
    return load_balance_loss(scores, experts, axis=jax.sharding.get_abstract_mesh().axis_names)


@wrong("gradient")
def gradient_divided(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The gradient is divided by the number of devices once more; the derivative of lax.pmean does
    that already."""
    fixed = lax.stop_gradient(scores)
    scores = fixed + (scores - fixed) / lax.axis_size(axis)
    return load_balance_loss(scores, experts, axis=axis)


@wrong("gradient")
def fractions_with_the_gradient_of_scores(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """f has a gradient, as if it were the mean scores; it is a number of choices, so that p alone
    has one: leave f as it is counted."""
    fraction, score = lax.pmean(_own(scores, experts), axis)
    return _loss(fraction + score - lax.stop_gradient(score), score)


@wrong("gradient")
def gradient_of_nothing(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The loss has no gradient; only f is without one, so leave lax.stop_gradient of the scores
    out."""
    return load_balance_loss(lax.stop_gradient(scores), experts, axis=axis)


@wrong("communication")
def all_scores_gathered(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The scores of all tokens are gathered; their mean is e numbers, so average on each device
    first."""
    fraction, _ = _own(scores, experts)
    everyone = lax.all_gather(scores, axis, tiled=True)
    return _loss(lax.pmean(fraction, axis), everyone.mean(axis=0))


@wrong("communication")
def all_choices_gathered(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The choices of all tokens are gathered; count on each device first."""
    everyone = lax.all_gather(experts, axis, tiled=True)
    _, score = _own(scores, experts)
    fraction, _ = _own(scores, everyone)
    return _loss(fraction, lax.pmean(score, axis))


@wrong("communication")
def a_mean_for_each_axis(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """f and p are averaged over one axis after the other, which sends more than one mean over all:
    lax.pmean takes a tuple of axes."""
    both = _own(scores, experts)
    for one in entry_axes(axis):
        both = lax.pmean(both, one)
    return _loss(*both)


@wrong("communication")
def means_gathered(scores: Array, experts: Array, *, axis: Axis) -> Array:
    """The means of all devices are gathered, and averaged then; an all-reduce adds them up on the
    way."""
    both = lax.all_gather(jnp.stack(_own(scores, experts)), axis).mean(axis=0)
    return _loss(*both)
