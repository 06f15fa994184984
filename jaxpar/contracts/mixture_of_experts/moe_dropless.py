"""Experts on different devices: all tokens come to all devices, and no choice is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import nn
from jaxpar.contracts.base import Communication, Contract, Expected, FlopsLimit, Limit, wrong
from jaxpar.contracts.case import Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.mixture_of_experts.common import (
    axes_of_call,
    every_expert,
    in_groups,
    moe_args,
    on_devices,
    weighed,
)
from jaxpar.contracts.steps import enter, gathered, gathered_by_sum, own_shard, scattered
from jaxpar.experts import apply_experts, grouped_matmul
from jaxpar.parallel import expert
from jaxpar.parallel.expert import moe_dropless

Matrices = tuple[Array, ...]  # those of gate, up and down
MOVES = ("all_gather", "reduce_scatter", "all_to_all", "permute")


def _case(mesh: str, axis: str, *, block: int, **sizes: Any) -> Case:
    return Case(mesh, moe_args(mesh, axis, **sizes), {"block": block, "axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Three choices in bfloat16; one device; one expert that every token chooses, of one on each
    device.
    """
    axis, other = axis_names(rng, 2, besides=("ep", "dp"))
    many = {"tokens": pick(rng, (20, 22)), "width": pick(rng, (10, 14)), "hidden": 18}
    many |= {"experts": 21, "top_k": 3, "chosen": 20, "dtype": "bfloat16"}
    few = {"tokens": 19, "width": pick(rng, (11, 13)), "hidden": pick(rng, (26, 28)), "experts": 8}
    one = {"tokens": pick(rng, (9, 10)), "width": 7, "hidden": 9, "experts": 5, "top_k": 1}
    return (
        _case(mesh_of(rng, **{axis: 3, other: 2}), axis, block=5, **many),
        _case(f"{axis}=1,{other}=2", axis, block=pick(rng, (6, 7)), chosen=8, top_k=4, **few),
        _case(f"{axis}=5", axis, block=2, chosen=1, **one),
    )


def _by_every_expert(
    case: Case, x: Array, weights: Array, experts: Array, *w: Array
) -> list[Expected]:
    """All experts on all tokens."""
    axes = axes_of_call(case)

    def of_group(x: Array, weights: Array, experts: Array, *w: Array) -> Array:
        x, weights, experts, *matrices = (
            y.reshape(-1, *y.shape[2:]) for y in (x, weights, experts, *w)
        )
        return weighed(every_expert(x, *matrices), weights, experts)

    groups = [in_groups(case, axes, given) for given in (x, weights, experts, *w)]
    y = jax.vmap(of_group)(*groups)
    n, shape = groups[0].shape[1], groups[0].shape
    whole = jnp.broadcast_to(y[:, None], (len(y), n, *y.shape[1:]))
    return [
        Expected(
            on_devices(case, axes, y.reshape(shape)),
            on_devices(case, axes, whole) if n > 1 else None,
        )
    ]


def _gathered_and_scattered(sizes: Sizes) -> int:
    """Wire bytes of tokens, weights and experts gathered, and of the sums scattered."""
    once = 2 * sizes.bytes("experts")  # a weight has 4 bytes, as the number of an expert has
    return (sizes.n() - 1) * (2 * sizes.bytes("x") + once)


CONTRACT = Contract(
    kind="program",
    task="gather all tokens, and return the sums for this device's; `skip` is not judged",
    reference=expert.moe_dropless,
    oracle=_by_every_expert,
    cases=(
        _case(
            "ep=4",
            "ep",
            tokens=12,
            width=16,
            hidden=24,
            experts=24,
            top_k=2,
            chosen=20,
            block=4,
        ),
        _case(
            "dp=2,ep=2",
            "ep",
            tokens=15,
            width=9,
            hidden=20,
            experts=10,
            top_k=1,
            chosen=10,
            block=3,
        ),
    ),
    draw=_drawn,
    gradient=("x", "weights", "w_gate", "w_up", "w_down"),
    communication=Communication(
        "an all-gather of x, weights and experts, and a reduce-scatter of the sums; backward an "
        "all-gather of the result's gradient, and reduce-scatters of those of x and of weights",
        forward=((Limit(MOVES, "axis", _gathered_and_scattered),),),
    ),
    sharding=True,
    flops=FlopsLimit(
        "each choice is multiplied by its expert's matrices, and groups are padded to full blocks: "
        "at most 1.25 times the library's flops, and as many products; a gradient may compute the "
        "forward pass again",
        multiple=1.25,
        programs=("forward", "gradient"),
        may_recompute=True,
        large=True,
    ),
    imports=("jaxpar.experts.grouped_matmul",),
    hints=(
        "After an all-gather each device knows all choices. Which of them are of its own experts, "
        "it knows only when it runs; sorted by expert, with all others last, they are groups for "
        "grouped_matmul.",
        "experts.reshape(-1) - lax.axis_index(axis) * len(w_gate) is the expert's number here, if "
        "it is at least 0 and below len(w_gate). jnp.argsort of that, with strangers last, is the "
        "order; jnp.bincount gives the sizes; and choice i is of token i // k.",
        "Weigh the results in the same order, add them to their tokens by at[order // k].add, and "
        "lax.psum_scatter(total, axis, tiled=True). jaxpar.experts.grouped_matmul gives 0 to rows "
        "in no group.",
    ),
    minimal="A device knows nothing of the others' tokens, of which any may choose its experts: so "
    "n-1 shards must come, and for n-1 shards it has sums to send.",
    harder="Send each token only where it is needed, in buffers as large as the worst case needs: "
    "from which capacity on is that more than a gather?",
)


def _sorted(experts: Array, count: int, axis: str) -> tuple[Array, Array]:
    """The choices of this device's experts first, in their order, and how many each has."""
    own = experts.reshape(-1) - lax.axis_index(axis) * count
    own = jnp.where((own >= 0) & (own < count), own, count)
    return jnp.argsort(own), jnp.bincount(own, length=count + 1)[:count]


def _mlp(rows: Array, w: Matrices, sizes: Array, block: int) -> Array:
    gate, up = (grouped_matmul(rows, each, sizes, block=block) for each in w[:2])
    return grouped_matmul(nn.swiglu(gate, up), w[2], sizes, block=block)


def _weighed(y: Array, weights: Array) -> Array:
    """Rows, each times its weight; the dtype of the rows stays."""
    return (y * weights[:, None]).astype(y.dtype)


def _answer(
    x: Array,
    weights: Array,
    experts: Array,
    w: Matrices,
    block: int,
    axis: str,
    *,
    gather: Callable = gathered,
    token: Callable = lambda order, k, t: order // k,
    weigh: Callable = lambda weights, order: weights.reshape(-1)[order],
    add: Callable = lambda zeros, tokens, y: zeros.at[tokens].add(y),
    reduce: Callable = scattered,
) -> Array:
    """A right answer in which each step may be another one."""
    x, weights, experts = (gather(given, axis) for given in (x, weights, experts))
    order, sizes = _sorted(experts, len(w[0]), axis)
    tokens = token(order, experts.shape[1], len(x))
    y = _weighed(_mlp(x[tokens], w, sizes, block), weigh(weights, order))
    return reduce(add(jnp.zeros_like(x), tokens, y), axis)


@wrong("values")
def own_tokens_alone(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Each device asks its own experts for its own tokens, and those of others never see them;
    gather the tokens of all devices first."""
    order, sizes = _sorted(experts, len(w[0]), axis)
    tokens = order // experts.shape[1]
    y = _weighed(_mlp(x[tokens], w, sizes, block), weights.reshape(-1)[order])
    return jnp.zeros_like(x).at[tokens].add(y)


@wrong("values")
def results_of_own_experts_alone(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Each device keeps what its own experts give; a token's experts are on several devices, so sum
    over them, by a reduce-scatter."""
    return _answer(x, weights, experts, w, block, axis, reduce=own_shard)


@wrong("values")
def means_over_devices(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The results are averaged over the devices; add them up."""
    y = moe_dropless(x, weights, experts, *w, block=block, axis=axis)
    return y / lax.axis_size(axis)


@wrong("values")
def numbers_of_first_device(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Every device takes the choices of the first experts; its own begin at axis_index * e/n."""
    shift = lax.axis_index(axis) * len(w[0])
    return moe_dropless(x, weights, experts + shift, *w, block=block, axis=axis)


@wrong("values")
def strangers_counted(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Choices of other devices' experts are multiplied by one of this device's, and added; leave
    them out: they are in no group."""
    whole, k = gathered(x, axis), experts.shape[1]
    experts, weights = gathered(experts, axis), gathered(weights, axis)
    own = jnp.clip(experts.reshape(-1) - lax.axis_index(axis) * len(w[0]), 0, len(w[0]) - 1)
    order, sizes = jnp.argsort(own), jnp.bincount(own, length=len(w[0]))
    y = _weighed(_mlp(whole[order // k], w, sizes, block), weights.reshape(-1)[order])
    return scattered(jnp.zeros_like(whole).at[order // k].add(y), axis)


@wrong("values")
def results_left_in_order(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The results stay in the order of the experts; add row i to token order[i] // k."""
    k = experts.shape[1]

    def add(zeros: Array, tokens: Array, y: Array) -> Array:
        return zeros + y.reshape(len(zeros), k, -1).sum(axis=1)

    return _answer(x, weights, experts, w, block, axis, add=add)


@wrong("values")
def sorted_twice(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The results are put back by the order itself, y[order], which sorts them once more; back goes
    its inverse, or at[order // k].add."""
    x, weights, experts = (gathered(given, axis) for given in (x, weights, experts))
    order, sizes = _sorted(experts, len(w[0]), axis)
    k = experts.shape[1]
    y = _weighed(_mlp(x[order // k], w, sizes, block)[order], weights.reshape(-1))
    return scattered(y.reshape(len(x), k, -1).sum(axis=1), axis)


@wrong("values")
def weights_not_sorted(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The weights are in the order of the tokens, and the rows in that of the experts; sort the
    weights like the rows."""

    def weigh(weights: Array, order: Array) -> Array:
        return weights.reshape(-1)

    return _answer(x, weights, experts, w, block, axis, weigh=weigh)


@wrong("values")
def dropless_without_weights(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The results of a token's experts are added up as they are; multiply each by its weight."""
    ones = jnp.ones_like(weights)
    return moe_dropless(x, ones, experts, *w, block=block, axis=axis)


@wrong("values")
def dropless_in_float32(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The result is in float32; convert the sums to the dtype of x."""
    y = moe_dropless(x, weights, experts, *w, block=block, axis=axis)
    return y.astype(jnp.float32)


@wrong("values")
def ranks_before_tokens(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The token of a choice is its number modulo the tokens; choices are flattened token by token,
    so it is the number divided by k, rounded down."""
    return _answer(
        x, weights, experts, w, block, axis, token=lambda order, k, tokens: order % tokens
    )


@wrong("values")
def last_result_alone(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Of several results, a token keeps the one that is written last; add them up, with at[].add
    in place of at[].set."""

    def add(zeros: Array, tokens: Array, y: Array) -> Array:
        return zeros.at[tokens].set(y)

    return _answer(x, weights, experts, w, block, axis, add=add)


@wrong("values")
def dropless_first_choices_alone(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Only the first choice of each token counts; it has k experts."""
    one, best = weights[:, :1], experts[:, :1]
    return moe_dropless(x, one, best, *w, block=block, axis=axis)


@wrong("values")
def capacity_in_disguise(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """A device computes as many choices as there are on average, and drops the others; it must have
    room for all, if all choose its experts."""
    room = experts.size  # that of this device's tokens

    def add(zeros: Array, tokens: Array, y: Array) -> Array:
        fits = jnp.arange(len(y)) < room
        return zeros.at[tokens].add(jnp.where(fits[:, None], y, 0))

    return _answer(x, weights, experts, w, block, axis, add=add)


@wrong("gradient")
def dropless_weights_not_learned(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The weights have no gradient, and the router learns through nothing else; leave
    lax.stop_gradient out."""
    fixed = lax.stop_gradient(weights)
    return moe_dropless(x, fixed, experts, *w, block=block, axis=axis)


@wrong("gradient")
def gradient_of_own_copy(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """A token's gradient has the part of this device's experts only; the derivative of an
    all-gather sums those of all devices, so leave lax.stop_gradient out."""

    def gather(given: Array, axis: str) -> Array:
        if not jnp.issubdtype(given.dtype, jnp.floating):
            return gathered(given, axis)
        whole, i = lax.stop_gradient(gathered(given, axis)), lax.axis_index(axis)
        return lax.dynamic_update_slice_in_dim(whole, given, i * len(given), 0)

    return _answer(x, weights, experts, w, block, axis, gather=gather)


@wrong("communication")
def summed_on_all(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """All sums come to all devices, of which each takes its own; a reduce-scatter sends half of
    that."""

    def reduce(total: Array, axis: str) -> Array:
        return own_shard(lax.psum(total, axis), axis)

    return _answer(x, weights, experts, w, block, axis, reduce=reduce)


@wrong("communication")
def gathered_among_zeros(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The tokens are gathered as a sum of shards among zeros, which sends twice the bytes of
    lax.all_gather."""

    def gather(given: Array, axis: str) -> Array:
        return enter(gathered_by_sum(given, axis), axis)

    return _answer(x, weights, experts, w, block, axis, gather=gather)


@wrong("communication")
def gathered_again_for_the_gradient(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The backward pass gathers the tokens once more, since the all-gather is within
    jax.checkpoint; recompute the experts alone, from the tokens that have arrived."""

    @jax.checkpoint
    def summed(x: Array, weights: Array, w: Matrices) -> Array:
        return _answer(x, weights, experts, w, block, axis)

    return summed(x, weights, w)


@wrong("communication")
def sums_sent_in_float32(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """The sums are sent in float32; convert them to the dtype of x before the reduce-scatter."""

    def reduce(total: Array, axis: str) -> Array:
        return scattered(total.astype(jnp.float32), axis).astype(total.dtype)

    return _answer(x, weights, experts, w, block, axis, reduce=reduce)


@wrong("communication")
def matrices_gathered(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """All experts' matrices are gathered, and tokens stay; the tokens are fewer bytes."""
    whole = tuple(gathered(each, axis) for each in w)
    order, k = jnp.argsort(experts.reshape(-1)), experts.shape[1]
    sizes = jnp.bincount(experts.reshape(-1), length=len(whole[0]))
    y = _weighed(_mlp(x[order // k], whole, sizes, block), weights.reshape(-1)[order])
    return jnp.zeros_like(x).at[order // k].add(y)


@wrong("communication")
def each_choice_gathered(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """A copy of a token is gathered for each of its choices; gather each token once, and copy it
    there."""
    k = experts.shape[1]
    copies = gathered(jnp.repeat(x, k, axis=0), axis)
    weights, experts = gathered(weights, axis), gathered(experts, axis)
    order, sizes = _sorted(experts, len(w[0]), axis)
    y = _weighed(_mlp(copies[order], w, sizes, block), weights.reshape(-1)[order])
    total = jnp.zeros_like(copies, shape=(len(copies) // k, x.shape[1]))
    return scattered(total.at[order // k].add(y), axis)


@wrong("flops")
def all_tokens_by_all_experts(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Every expert multiplies every token, and a mask keeps what is wanted; sort the choices, and
    multiply each by its own expert."""
    x, weights, experts = (gathered(given, axis) for given in (x, weights, experts))
    own = experts - lax.axis_index(axis) * len(w[0])
    hot = jax.nn.one_hot(own, len(w[0]), dtype=x.dtype)  # zeros for strangers
    of_expert = (hot * weights[..., None]).sum(axis=1)
    y = apply_experts(jnp.broadcast_to(x[None], (len(w[0]), *x.shape)), *w)
    total = (y * of_expert.T[..., None]).sum(axis=0)
    return scattered(total.astype(x.dtype), axis)


@wrong("flops")
def by_ragged_dot(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """lax.ragged_dot multiplies all rows by all matrices where it has no kernel, as on CPUs; use
    grouped_matmul."""
    x, weights, experts = (gathered(given, axis) for given in (x, weights, experts))
    order, sizes = _sorted(experts, len(w[0]), axis)
    rows = x[order // experts.shape[1]]
    gate, up = (lax.ragged_dot(rows, each, sizes) for each in w[:2])
    y = lax.ragged_dot(nn.swiglu(gate, up), w[2], sizes)
    y = _weighed(y, weights.reshape(-1)[order])
    return scattered(jnp.zeros_like(x).at[order // experts.shape[1]].add(y), axis)


@wrong("flops")
def dropless_row_by_row(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """Rows are multiplied one by one, so that a matrix is read for each of them; give `block` to
    grouped_matmul."""
    return moe_dropless(x, weights, experts, *w, block=1, axis=axis)


@wrong("flops")
def dropless_blocks_in_use(
    x: Array, weights: Array, experts: Array, *w: Array, block: int, axis: str
) -> Array:
    """How many blocks are multiplied is known only when the program runs, so that nobody can count
    them before; multiply as many as there can be at most."""
    return moe_dropless(x, weights, experts, *w, block=block, axis=axis, skip=True)
