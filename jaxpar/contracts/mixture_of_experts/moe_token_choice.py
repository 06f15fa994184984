"""Experts on different devices: each token travels to its experts, as far as they have room."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import Case, Sizes, array_leaves
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.mixture_of_experts.common import (
    axes_of_call,
    every_expert,
    in_groups,
    moe_args,
    on_devices,
    weighed,
)
from jaxpar.contracts.steps import gathered, scattered
from jaxpar.experts import apply_experts, assign_slots, combine, dispatch
from jaxpar.parallel import expert
from jaxpar.parallel.expert import moe_token_choice

Matrices = tuple[Array, ...]  # those of gate, up and down
MOVES = ("all_to_all", "permute", "all_gather", "reduce_scatter")


def _case(mesh: str, axis: str, *, capacity: int, **sizes: Any) -> Case:
    return Case(mesh, moe_args(mesh, axis, **sizes), {"capacity": capacity, "axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Three choices in bfloat16; one device with room for all, which are more than bfloat16 counts;
    one row for each expert, of one on each device.
    """
    axis, other = axis_names(rng, 2, besides=("ep", "dp"))
    many = {"tokens": pick(rng, (33, 35)), "width": pick(rng, (14, 18)), "hidden": 28}
    many |= {"experts": 15, "top_k": 3, "chosen": 14, "dtype": "bfloat16"}
    few = {"tokens": 400, "width": 9, "hidden": pick(rng, (11, 13)), "experts": 5, "top_k": 4}
    few |= {"dtype": "bfloat16"}
    tight = {"tokens": pick(rng, (16, 18)), "width": 7, "hidden": 9, "experts": 3, "top_k": 2}
    return (
        _case(mesh_of(rng, **{axis: 5, other: 2}), axis, capacity=pick(rng, (8, 9)), **many),
        _case(f"{axis}=1,{other}=2", axis, capacity=400, chosen=5, **few),
        _case(f"{axis}=3", axis, capacity=1, chosen=3, **tight),
    )


def _kept(experts: Array, capacity: int) -> Array:
    """Whether each choice of a device's tokens [t, k] finds a row; counted by comparing pairs."""
    ranked = experts.T.reshape(-1)
    same = ranked[:, None] == ranked[None]
    earlier = jnp.tril(same, -1).sum(axis=1)
    return (earlier < capacity).reshape(experts.shape[::-1]).T


def _by_every_expert(
    case: Case, x: Array, weights: Array, experts: Array, *w: Array
) -> list[Expected]:
    """All experts on all tokens; a choice that finds no row weighs nothing."""
    axes = axes_of_call(case)

    def of_group(x: Array, weights: Array, experts: Array, *w: Array) -> Array:
        kept = jax.vmap(_kept, (0, None))(experts, case.kwargs["capacity"])
        matrices = (each.reshape(-1, *each.shape[2:]) for each in w)
        flat = (y.reshape(-1, y.shape[-1]) for y in (weights * kept, experts))
        return weighed(every_expert(x.reshape(-1, x.shape[-1]), *matrices), *flat).reshape(x.shape)

    groups = [in_groups(case, axes, given) for given in (x, weights, experts, *w)]
    y = jax.vmap(of_group)(*groups)
    n = y.shape[1]
    whole = jnp.broadcast_to(y.reshape(len(y), 1, -1, y.shape[-1]), (len(y), n, *_all(y)))
    return [Expected(on_devices(case, axes, y), on_devices(case, axes, whole) if n > 1 else None)]


def _all(y: Array) -> tuple[int, int]:
    """The shape of the tokens of all devices of a group."""
    return y.shape[1] * y.shape[2], y.shape[3]


def _there_and_back(sizes: Sizes) -> float:
    """Wire bytes of two all-to-alls of all experts' rows."""
    gate, x = (next(iter(array_leaves(sizes.case.args[name]))) for name in ("w_gate", "x"))
    devices = math.prod(sizes.case.sizes.values())
    experts, n = gate.shape[0] // devices * sizes.n(), sizes.n()
    row_bytes = x.shape[1] * jnp.dtype(x.dtype).itemsize
    return 2 * (n - 1) / n * experts * sizes.case.kwargs["capacity"] * row_bytes


FIRST = {"tokens": 64, "width": 32, "hidden": 24, "experts": 8, "top_k": 2, "chosen": 7}

CONTRACT = Contract(
    kind="program",
    task="send each token to its experts, as far as they have room, and add up what comes back",
    reference=expert.moe_token_choice,
    oracle=_by_every_expert,
    cases=(
        _case("ep=4", "ep", capacity=20, **FIRST),
        _case(
            "dp=2,ep=3",
            "ep",
            tokens=30,
            width=12,
            hidden=20,
            experts=6,
            top_k=1,
            chosen=6,
            capacity=6,
        ),
    ),
    draw=_drawn,
    gradient=("x", "weights", "w_gate", "w_up", "w_down"),
    communication=Communication(
        "two all-to-alls of the rows of all experts, backward as many",
        forward=((Limit(MOVES, "axis", _there_and_back),),),
        backward="forward",
    ),
    sharding=True,
    flops=work_is_split(),
    errors=(BadCall(_case("ep=4", "ep", capacity=0, **FIRST), "capacity = 0"),),
    imports=("jaxpar.experts.apply_experts",),
    hints=(
        "A buffer has `capacity` rows for each expert, on whatever device it is. Once it is known "
        "which row each choice has, tokens are copied into rows, and rows are read back, by index.",
        "jnp.cumsum of jax.nn.one_hot counts, for each choice, those before it of the same expert. "
        "Count the first choices of all tokens, then the second ones: experts.T.reshape(-1). A "
        "choice without a row gets one beyond the buffer: set(..., mode='drop') leaves it out, and "
        "get(mode='fill', fill_value=0) reads 0.",
        "lax.all_to_all(rows, axis, 0, 1, tiled=True) takes [e, c, d] to [e/n, n*c, d], and with 1 "
        "and 0 exchanged it brings the results back. The MLP of each expert is (silu(x @ w_gate) * "
        "(x @ w_up)) @ w_down, which jaxpar.experts.apply_experts computes.",
    ),
    minimal="Shapes are fixed before anybody knows where the tokens go, so every expert has its "
    "rows sent from every device, and (n-1)/n of them come from elsewhere; and so do the results.",
    harder="Send a token only once to a device, even if two of its experts are there (DeepEP). "
    "From which number of choices on does that save half?",
)


def _slots(experts: Array, w: Matrices, capacity: int, axis: str) -> Array:
    return assign_slots(experts, count=_count(w, axis), capacity=capacity)


def _count(w: Matrices, axis: str) -> int:
    return len(w[0]) * lax.axis_size(axis)


def _exchanged(rows: Array, w: Matrices, axis: str) -> Array:
    """The rows [e, c, d] go to their experts, and the results come back."""
    arrived = lax.all_to_all(rows, axis, 0, 1, tiled=True)
    return lax.all_to_all(apply_experts(arrived, *w), axis, 1, 0, tiled=True)


def _with_slots(
    x: Array,
    weights: Array,
    slots: Array,
    w: Matrices,
    capacity: int,
    axis: str,
    *,
    read: Callable = combine,
    exchanged: Callable = _exchanged,
) -> Array:
    """Every step after the slots, of which some may be others."""
    count = _count(w, axis)
    rows = dispatch(x, slots, rows=count * capacity).reshape(count, capacity, -1)
    return read(exchanged(rows, w, axis).reshape(-1, x.shape[1]), slots, weights)


def _answer(
    x: Array, weights: Array, experts: Array, w: Matrices, capacity: int, axis: str, **steps: Any
) -> Array:
    return _with_slots(x, weights, _slots(experts, w, capacity, axis), w, capacity, axis, **steps)


@wrong("values")
def added_without_weights(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The results of a token's experts are added up as they are; multiply each by its weight."""
    return _answer(x, jnp.ones_like(weights), experts, w, capacity, axis)


@wrong("values")
def added_in_float32(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The result is in float32; convert it to the dtype of x."""
    y = moe_token_choice(x, weights, experts, *w, capacity=capacity, axis=axis)
    return y.astype(jnp.float32)


@wrong("values")
def weighed_on_the_way_there(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Tokens are multiplied by their weights before the experts, which are not linear; weigh the
    results."""
    count, slots = _count(w, axis), _slots(experts, w, capacity, axis)
    rows = jnp.zeros_like(x, shape=(count * capacity, x.shape[1]))
    weighed = (x[:, None] * weights[..., None]).astype(x.dtype)
    rows = rows.at[slots].set(weighed, mode="drop")
    y = _exchanged(rows.reshape(count, capacity, -1), w, axis).reshape(rows.shape)
    return combine(y, slots, jnp.ones_like(weights))


@wrong("values")
def token_by_token(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Rows are given token by token, so that second choices take those of later tokens' first ones;
    give them to all first choices, then to the second ones."""
    slots = _slots(experts.reshape(-1, 1), w, capacity, axis).reshape(experts.shape)
    return _with_slots(x, weights, slots, w, capacity, axis)


@wrong("values")
def last_tokens_first(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Later tokens get rows before earlier ones; of one rank, earlier tokens come first."""
    slots = jnp.flip(_slots(jnp.flip(experts, axis=0), w, capacity, axis), axis=0)
    return _with_slots(x, weights, slots, w, capacity, axis)


@wrong("values")
def best_weights_first(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Rows are given to tokens with large weights first; of one rank, earlier tokens come first."""
    order = jnp.argsort(-weights[:, 0])
    slots = _slots(experts[order], w, capacity, axis)[jnp.argsort(order)]
    return _with_slots(x, weights, slots, w, capacity, axis)


@wrong("values")
def one_row_too_few(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The last row of each expert stays empty; a choice is dropped if `capacity` or more earlier
    ones are of its expert, not if `capacity` - 1 are."""
    slots = _slots(experts, w, capacity, axis)
    slots = jnp.where(slots % capacity < capacity - 1, slots, _count(w, axis) * capacity)
    return _with_slots(x, weights, slots, w, capacity, axis)


@wrong("values")
def one_row_too_many(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Each expert takes one token more than `capacity`; a choice with `capacity` earlier ones of
    its expert is dropped."""
    return _answer(x, weights, experts, w, capacity + 1, axis)


@wrong("values")
def rows_for_each_rank(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Second choices are counted from 0 again, so that they take the rows of first ones; count on
    from the first choices."""
    ranks = (experts[:, i : i + 1] for i in range(experts.shape[1]))
    slots = jnp.concatenate([_slots(rank, w, capacity, axis) for rank in ranks], axis=1)
    return _with_slots(x, weights, slots, w, capacity, axis)


@wrong("values")
def rows_of_the_next_expert(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """What exceeds an expert's rows goes into those of the next; drop it."""
    room = experts.size
    place = _slots(experts, w, room, axis) % room
    return _with_slots(x, weights, experts * capacity + place, w, capacity, axis)


@wrong("values")
def dropped_reads_the_last_row(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """A choice that was dropped reads the last row of all, for an index beyond the end is moved to
    it; it must add 0: y.at[slots].get(mode="fill", fill_value=0)."""

    def read(y: Array, slots: Array, weights: Array) -> Array:
        return combine(y, jnp.minimum(slots, len(y) - 1), weights)

    return _answer(x, weights, experts, w, capacity, axis, read=read)


@wrong("values")
def dropped_reads_row_0(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """A choice that was dropped reads row 0, which is another token's; it must add 0."""

    def read(y: Array, slots: Array, weights: Array) -> Array:
        return combine(y, jnp.where(slots < len(y), slots, 0), weights)

    return _answer(x, weights, experts, w, capacity, axis, read=read)


@wrong("values")
def dropped_takes_the_last_row(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """A choice that is dropped is written into the last row of all, where another token may be; an
    index beyond the end with mode="drop" writes nothing."""
    count = _count(w, axis)
    slots = _slots(experts, w, capacity, axis)
    written = jnp.minimum(slots, count * capacity - 1)
    rows = dispatch(x, written, rows=count * capacity).reshape(count, capacity, -1)
    return combine(_exchanged(rows, w, axis).reshape(-1, x.shape[1]), slots, weights)


@wrong("values")
def dropped_keeps_the_token(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """A dropped choice gives the token itself; it gives 0, and the residual of the layer keeps the
    token."""
    slots = _slots(experts, w, capacity, axis)
    dropped = jnp.where(slots < _count(w, axis) * capacity, 0, weights).sum(axis=1)
    return _with_slots(x, weights, slots, w, capacity, axis) + (x * dropped[:, None]).astype(
        x.dtype
    )


@wrong("values")
def weights_of_the_kept_divided(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Where a choice is dropped, the weights of the others are made larger; use them as they are
    given."""
    slots = _slots(experts, w, capacity, axis)
    kept = jnp.where(slots < _count(w, axis) * capacity, weights, 0)
    share = weights.sum(axis=1) / jnp.maximum(kept.sum(axis=1), 1e-6)
    return _with_slots(x, weights * share[:, None], slots, w, capacity, axis)


@wrong("values")
def capacity_of_all_devices(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """An expert takes `capacity` tokens of all devices together; it takes as many of each."""
    own = max(1, capacity // lax.axis_size(axis))
    return moe_token_choice(x, weights, experts, *w, capacity=own, axis=axis)


@wrong("values")
def counted_over_devices(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The choices of earlier devices take rows of this device's tokens; each device has rows of its
    own, so count its own choices."""
    everyone = gathered(experts.T.reshape(1, -1), axis)
    slots = _slots(everyone.reshape(-1, 1), w, capacity, axis).reshape(everyone.shape)
    own = slots[lax.axis_index(axis)].reshape(experts.shape[::-1]).T
    return _with_slots(x, weights, own, w, capacity, axis)


@wrong("values")
def nothing_is_dropped(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """No choice is dropped; what exceeds the capacity adds 0."""
    return moe_token_choice(x, weights, experts, *w, capacity=experts.size, axis=axis)


@wrong("values")
def tokens_stay(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Tokens go to this device's experts, whichever they have chosen; send them to the devices that
    have theirs, by an all-to-all."""
    count = len(w[0])
    slots = assign_slots(experts % count, count=count, capacity=capacity)
    rows = dispatch(x, slots, rows=count * capacity).reshape(count, capacity, -1)
    return combine(apply_experts(rows, *w).reshape(-1, x.shape[1]), slots, weights)


@wrong("values")
def results_stay(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The results stay with the experts; a second all-to-all brings them back to their tokens."""

    def exchanged(rows: Array, w: Matrices, axis: str) -> Array:
        return apply_experts(lax.all_to_all(rows, axis, 0, 1, tiled=True), *w)

    return _answer(x, weights, experts, w, capacity, axis, exchanged=exchanged)


@wrong("values")
def blocks_of_devices_mixed_up(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """What arrives is in the order of devices, and you read it in that of experts: an expert gets
    rows of another. Concatenate along dim 1: lax.all_to_all(rows, axis, 0, 1, tiled=True)."""

    def exchanged(rows: Array, w: Matrices, axis: str) -> Array:
        arrived = lax.all_to_all(rows, axis, 0, 0, tiled=True)
        y = apply_experts(arrived.reshape(len(w[0]), -1, arrived.shape[2]), *w)
        return lax.all_to_all(y.reshape(arrived.shape), axis, 0, 0, tiled=True)

    return _answer(x, weights, experts, w, capacity, axis, exchanged=exchanged)


@wrong("values")
def gate_and_up_exchanged(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """silu is applied to the product with w_up; it is that with w_gate which opens and closes."""
    gate, up, down = w
    return moe_token_choice(x, weights, experts, up, gate, down, capacity=capacity, axis=axis)


@wrong("gradient")
def weights_not_learned(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The weights have no gradient, and the router learns through nothing else; leave
    lax.stop_gradient out."""
    fixed = lax.stop_gradient(weights)
    return moe_token_choice(x, fixed, experts, *w, capacity=capacity, axis=axis)


@wrong("gradient")
def tokens_cut_off(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """No gradient comes back to the tokens; the derivative of an all-to-all is the one back, so
    leave lax.stop_gradient out."""
    fixed = lax.stop_gradient(x)
    return moe_token_choice(fixed, weights, experts, *w, capacity=capacity, axis=axis)


@wrong("communication")
def rows_sent_in_float32(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Rows are converted to float32 before they are sent; send them in the dtype of x."""

    def exchanged(rows: Array, w: Matrices, axis: str) -> Array:
        wide = rows.astype(jnp.float32)
        arrived = lax.all_to_all(wide, axis, 0, 1, tiled=True).astype(rows.dtype)
        y = apply_experts(arrived, *w).astype(jnp.float32)
        return lax.all_to_all(y, axis, 1, 0, tiled=True).astype(rows.dtype)

    return _answer(x, weights, experts, w, capacity, axis, exchanged=exchanged)


@wrong("communication")
def weights_sent_along(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The weight of a row travels to the expert with it; weigh what comes back, where the weights
    are already."""
    count, slots = _count(w, axis), _slots(experts, w, capacity, axis)
    rows = dispatch(x, slots, rows=count * capacity)
    column = jnp.zeros_like(rows, shape=(len(rows), 1))
    each = column.at[slots, 0].set(weights.astype(x.dtype), mode="drop")
    both = jnp.concatenate([rows, each], axis=1).reshape(count, capacity, -1)
    arrived = lax.all_to_all(both, axis, 0, 1, tiled=True)
    y = apply_experts(arrived[..., :-1], *w) * arrived[..., -1:]
    back = lax.all_to_all(y, axis, 1, 0, tiled=True).reshape(rows.shape)
    return combine(back, slots, jnp.ones_like(weights))


@wrong("communication")
def sent_again_for_the_gradient(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The backward pass sends the rows once more, since the all-to-all is within jax.checkpoint;
    recompute the experts alone, from the rows that have arrived."""

    @jax.checkpoint
    def exchanged(rows: Array, w: Matrices) -> Array:
        return _exchanged(rows, w, axis)

    return _answer(
        x, weights, experts, w, capacity, axis, exchanged=lambda rows, w, axis: exchanged(rows, w)
    )


@wrong("communication")
def tokens_gathered(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """All tokens are gathered on every device. With so many devices, a token goes to few of them,
    and an all-to-all sends less."""
    count = _count(w, axis)
    kept = jnp.where(_slots(experts, w, capacity, axis) < count * capacity, weights, 0)
    x, kept, experts = (gathered(given, axis) for given in (x, kept, experts))
    y = apply_experts(jnp.broadcast_to(x[None], (len(w[0]), *x.shape)), *w)
    own = experts - lax.axis_index(axis) * len(w[0])
    hot = jax.nn.one_hot(own, len(w[0]), dtype=x.dtype)  # zeros for strangers
    of_expert = (hot * kept[..., None]).sum(axis=1)
    total = (y * of_expert.T[..., None]).sum(axis=0)
    return scattered(total.astype(x.dtype), axis)


@wrong("communication")
def experts_gathered(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """All experts' matrices are gathered, and tokens stay; the tokens are fewer bytes."""
    whole = tuple(gathered(each, axis) for each in w)
    count = len(whole[0])
    slots = assign_slots(experts, count=count, capacity=capacity)
    rows = dispatch(x, slots, rows=count * capacity).reshape(count, capacity, -1)
    return combine(apply_experts(rows, *whole).reshape(-1, x.shape[1]), slots, weights)


@wrong("communication")
def rows_of_everyone(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """The rows of all devices are gathered, and each device takes those of its experts; an
    all-to-all sends them there and nowhere else."""

    def exchanged(rows: Array, w: Matrices, axis: str) -> Array:
        n, i, own = lax.axis_size(axis), lax.axis_index(axis), len(w[0])
        everyone = gathered(rows[None], axis)  # [n, e, c, d]
        mine = lax.dynamic_slice_in_dim(everyone, i * own, own, 1).swapaxes(0, 1)
        y = apply_experts(mine.reshape(own, -1, rows.shape[2]), *w)
        y = y.reshape(own, n, *rows.shape[1:]).swapaxes(0, 1)
        return lax.all_to_all(y, axis, 0, 0, tiled=True).reshape(rows.shape)

    return _answer(x, weights, experts, w, capacity, axis, exchanged=exchanged)


@wrong("flops")
def moved_by_products(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Tokens are copied into rows, and read back, by products with a matrix of zeros and ones,
    which cost as much as experts do; copy by index: at[slots].set and at[slots].get."""
    count, slots = _count(w, axis), _slots(experts, w, capacity, axis)
    hot = jax.nn.one_hot(slots, count * capacity, dtype=x.dtype)  # [t, k, rows]
    rows = jnp.einsum("tkr,td->rd", hot, x).reshape(count, capacity, -1)
    y = _exchanged(rows, w, axis).reshape(-1, x.shape[1])
    return jnp.einsum("tkr,tk,rd->td", hot, weights, y).astype(x.dtype)


@wrong("errors")
def any_capacity(
    x: Array, weights: Array, experts: Array, *w: Array, capacity: int, axis: str
) -> Array:
    """Raise ValueError where `capacity` is below 1."""
    return moe_token_choice(x, weights, experts, *w, capacity=max(1, capacity), axis=axis)
