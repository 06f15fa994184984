"""ZeRO-1: each device updates its own rows, and holds the optimizer state of these alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import ring_bytes, whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.data_parallel.common import divided
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.losses import on_each_device
from jaxpar.contracts.steps import (
    among_zeros,
    enter,
    gathered,
    gathered_by_sum,
    own_shard,
    scattered,
)
from jaxpar.contracts.zero.common import (
    SCATTERS,
    matrices,
    mean_rows,
    new_params,
    own_rows,
    sharded_rows,
    updated_rows,
)
from jaxpar.parallel import zero


def _updated(
    case: Case, grads: Any, params: Any, opt_shard: Any, optimizer: optax.GradientTransformation
) -> list[Expected]:
    n = case.sizes[case.kwargs["axis"]]
    mean = jax.tree.map(lambda g: g.reshape(n, -1, *g.shape[1:]).mean(axis=0), grads)
    updates, state = optimizer.update(mean, opt_shard, params)
    return whole_on_all(case, optax.apply_updates(params, updates)) + sharded_rows(case, state)


ADAMW = Function("jaxpar.contracts.optimizers:ADAMW")
DECAYING_MOMENTUM = Made(
    Function("optax:chain"),
    (
        Made(Function("optax:add_decayed_weights"), (0.3,)),
        Made(Function("optax:sgd"), (0.2, 0.9)),
    ),
)


def _split(tree: Any, axis: str, **how: Any) -> Any:
    """The same leaves as a device of the axis has them: its rows."""
    return on_each_device(tree, 1, axis, **how)


def _adamw_state(params: Any, axis: str) -> Made:
    leaves = _split(params, axis), _split(params, axis, draw="positive")
    return Made(
        Function("jaxpar.contracts.optimizers:adamw_state"), (ArraySpec((), "", "int32"), *leaves)
    )


def _momentum_state(params: Any, axis: str) -> tuple[Any, ...]:
    empty = Made(Function("optax:EmptyState"), ())
    return empty, (Made(Function("optax:TraceState"), (_split(params, axis),)), empty)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Low precision and another optimizer; one device and two dtypes; a state of six copies."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, m = pick(rng, ((4, 3), (5, 2)))
    columns, rows = pick(rng, (5, 7)), n * pick(rng, (2, 3))
    deep = {
        "first": [ArraySpec((rows, 2, 3, columns), "a b c d", "bfloat16")] * 2,
        "then": {
            name: {"kernel": ArraySpec((size, columns), "d f", "bfloat16")}
            for name, size in (("p", rows + 2 * n), ("q", 2 * n), ("r", 5 * n))
        },
    }
    alone = [ArraySpec((columns, 6), "d f"), ArraySpec((7,), "d", "bfloat16")]
    wide = {"kernel": ArraySpec((8 * n, 30 + columns), "d f")}
    return (
        Case(
            mesh_of(rng, **{axis: n, other: m}),
            {
                "grads": on_each_device(deep, n, axis),
                "params": deep,
                "opt_shard": _momentum_state(deep, axis),
                "optimizer": DECAYING_MOMENTUM,
            },
            {"axis": axis},
        ),
        Case(
            f"{axis}=1,{other}=2",
            {
                "grads": on_each_device(alone, 1, axis),
                "params": alone,
                "opt_shard": _momentum_state(alone, axis),
                "optimizer": DECAYING_MOMENTUM,
            },
            {"axis": axis},
        ),
        # What a whole state takes stands out from what a right update holds.
        Case(
            f"{other}={m},{axis}={n}",
            {
                "grads": on_each_device(wide, n, axis),
                "params": wide,
                "opt_shard": (_adamw_state(wide, axis),) * 3,
                "optimizer": Made(Function("optax:chain"), (ADAMW,) * 3),
            },
            {"axis": axis},
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="update this device's rows by the mean gradient, and put all rows together over `axis`",
    reference=zero.zero1_update,
    oracle=_updated,
    cases=(
        Case(
            "dp=8",
            {
                "grads": matrices(16, 8, 8, "d_dp f"),
                "params": matrices(16, 8, 1, "d f"),
                "opt_shard": Made(
                    Function("jaxpar.contracts.optimizers:adamw_state"),
                    (
                        ArraySpec((), "", "int32"),
                        matrices(16, 8, 1, "d_dp f"),
                        {
                            "w": ArraySpec((16, 8), "d_dp f", draw="positive"),
                            "bias": ArraySpec((8,), "d_dp", draw="positive"),
                        },
                    ),
                ),
                "optimizer": Function("jaxpar.contracts.optimizers:ADAMW"),
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "grads": [matrices(6, 9, 3, "d_fsdp f"), ArraySpec((3 * 12, 2, 5), "d_fsdp a h")],
                "params": [matrices(6, 9, 1, "d f"), ArraySpec((12, 2, 5), "d a h")],
                "opt_shard": [matrices(6, 9, 1, "d_fsdp f"), ArraySpec((12, 2, 5), "d_fsdp a h")],
                "optimizer": Function("jaxpar.contracts.optimizers:MOMENTUM"),
            },
            {"axis": "fsdp"},
        ),
    ),
    draw=_drawn,
    sharding=True,
    communication=Communication(
        "a reduce-scatter of the gradients and an all-gather of the parameters: the bytes of one "
        "all-reduce",
        forward=((Limit((*SCATTERS, "all_gather"), "axis", ring_bytes(2, "params")),),),
    ),
    memory=MemoryLimit(
        "each device updates its own rows alone: at most 12 times the library's bytes of "
        "intermediate results, most of which are 1/n of the parameters",
        multiple=12,
    ),
    hints=(
        "Each device needs the mean gradient of its own rows only, and its rows of the parameters. "
        "Then every device has new rows, and needs those of all others.",
        "lax.psum_scatter(g, axis, tiled=True) adds up and leaves each device its rows; divide by "
        "lax.axis_size(axis). lax.dynamic_slice_in_dim takes rows from a traced index on.",
        "optimizer.update(grads, state, params) takes all three for the same rows, and "
        "optax.apply_updates adds what it returns. Last comes lax.all_gather(rows, axis, "
        "tiled=True).",
    ),
    minimal="The other devices' gradients of its rows must reach a device, and its new rows must "
    "reach all the others: (n-1)/n of the parameters each way, as in an all-reduce.",
    harder="Let dim 0 have any size: pad it, and return nothing of the padding.",
)


@wrong("values")
def gradients_not_divided(grads, params, opt_shard, optimizer, *, axis):
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    return new_params(scattered(grads, axis), params, opt_shard, optimizer, axis)


@wrong("values")
def constant_n(grads, params, opt_shard, optimizer, *, axis):
    """The number of devices is a constant, 8, or counts all devices; lax.axis_size(axis) is the
    size of the axis."""
    return new_params(divided(scattered(grads, axis), 8), params, opt_shard, optimizer, axis)


@wrong("values")
def update_by_own_gradients(grads, params, opt_shard, optimizer, *, axis):
    """Each device updates its rows by its own gradient; reduce-scatter the gradients first."""
    return new_params(own_rows(grads, axis), params, opt_shard, optimizer, axis)


@wrong("values")
def params_not_passed(grads, params, opt_shard, optimizer, *, axis):
    """The optimizer is not given the parameters, so that their decay is lost; pass it this device's
    rows of them."""
    updates, state = optimizer.update(mean_rows(grads, axis), opt_shard)
    return gathered(optax.apply_updates(own_rows(params, axis), updates), axis), state


@wrong("values")
def first_rows_everywhere(grads, params, opt_shard, optimizer, *, axis):
    """Every device updates the first rows; device i must take those that start at i times their
    number."""
    first = jax.tree.map(lambda leaf: leaf[: len(leaf) // lax.axis_size(axis)], params)
    updates, state = optimizer.update(mean_rows(grads, axis), opt_shard, first)
    return gathered(optax.apply_updates(first, updates), axis), state


@wrong("values")
def rows_not_gathered(grads, params, opt_shard, optimizer, *, axis):
    """Each device returns its new rows only; gather the rows of all."""
    return updated_rows(mean_rows(grads, axis), params, opt_shard, optimizer, axis)


@wrong("values")
def others_not_updated(grads, params, opt_shard, optimizer, *, axis):
    """Each device returns the old parameters with its new rows in them; gather the new rows of
    all."""
    new, state = updated_rows(mean_rows(grads, axis), params, opt_shard, optimizer, axis)

    def put(whole, rows):
        start = lax.axis_index(axis) * len(rows)
        return lax.dynamic_update_slice_in_dim(enter(whole, axis), rows, start, 0)

    return jax.tree.map(put, params, new), state


@wrong("values")
def updates_returned(grads, params, opt_shard, optimizer, *, axis):
    """The optimizer returns updates, not parameters; add them to the parameters with
    optax.apply_updates."""
    updates, state = optimizer.update(mean_rows(grads, axis), opt_shard, own_rows(params, axis))
    return gathered(updates, axis), state


@wrong("values")
def old_state_returned(grads, params, opt_shard, optimizer, *, axis):
    """The old state is returned; return the one that the optimizer made."""
    new, _ = new_params(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    return new, opt_shard


def _gathered_state(state, axis):
    return jax.tree.map(lambda leaf: gathered(leaf, axis) if leaf.ndim else leaf, state)


@wrong("sharding")
def returns_whole_state(grads, params, opt_shard, optimizer, *, axis):
    """The new state is gathered, so that every device holds all of it; return this device's
    part."""
    new, state = new_params(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    return new, _gathered_state(state, axis)


@wrong("communication")
def reduces_then_slices(grads, params, opt_shard, optimizer, *, axis):
    """The gradients are all-reduced and then cut, which sends twice the bytes of a
    reduce-scatter."""
    return new_params(own_rows(lax.pmean(grads, axis), axis), params, opt_shard, optimizer, axis)


@wrong("communication")
def gathers_gradients(grads, params, opt_shard, optimizer, *, axis):
    """Every device's gradients are gathered and averaged: n/2 times the bytes of an all-reduce."""
    mean = jax.tree.map(lambda g: lax.all_gather(g, axis).mean(axis=0), grads)
    return new_params(own_rows(mean, axis), params, opt_shard, optimizer, axis)


def _own_state(state, axis):
    return jax.tree.map(lambda leaf: own_shard(leaf, axis) if leaf.ndim else leaf, state)


@wrong("communication")
def gathers_state(grads, params, opt_shard, optimizer, *, axis):
    """The state is gathered, and every device updates everything; update this device's rows, with
    this device's state."""
    whole = _gathered_state(opt_shard, axis)
    updates, state = optimizer.update(lax.pmean(grads, axis), whole, params)
    return optax.apply_updates(params, updates), _own_state(state, axis)


@wrong("communication")
def adds_rows_in_zeros(grads, params, opt_shard, optimizer, *, axis):
    """The new rows are put together by an all-reduce of rows padded with zeros, which sends twice
    the bytes of an all-gather."""
    new, state = updated_rows(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    return jax.tree.map(lambda rows: gathered_by_sum(rows, axis), new), state


@wrong("communication")
def sends_float32(grads, params, opt_shard, optimizer, *, axis):
    """Gradients or parameters are sent as float32 whatever they are; send them in their own dtype,
    of which bfloat16 takes half the bytes."""
    wide = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
    rows = jax.tree.map(lambda g, p: g.astype(p.dtype), mean_rows(wide, axis), params)
    return new_params(rows, params, opt_shard, optimizer, axis)


def _among_zeros(tree, axis):
    return jax.tree.map(lambda leaf: among_zeros(leaf, axis) if leaf.ndim else leaf, tree)


@wrong("memory")
def updates_everything(grads, params, opt_shard, optimizer, *, axis):
    """Every device updates all rows, with zeros for the gradients and the state of the others;
    update this device's rows alone."""
    rows = _among_zeros(mean_rows(grads, axis), axis)
    updates, state = optimizer.update(rows, _among_zeros(opt_shard, axis), params)
    new = own_rows(optax.apply_updates(params, updates), axis)
    return gathered(new, axis), _own_state(state, axis)
