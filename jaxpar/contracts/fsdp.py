"""Contracts of lesson 10: layers gathered one at a time, and hybrid sharding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxpar.contracts import fsdp_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import axis_first, share
from jaxpar.contracts.case import Array, Case, Function, Sizes
from jaxpar.parallel import fsdp


def _applied(case: Case, layer_fn: Callable, params: Any, x: jax.Array) -> list[Expected]:
    """Each device's part of the batch after all layers; the other axes hold copies."""
    for i in range(len(jax.tree.leaves(params)[0])):
        x = layer_fn(jax.tree.map(lambda leaf, i=i: leaf[i], params), x)
    axis, sizes = case.kwargs["axis"], case.sizes
    local = [n if name == axis else 1 for name, n in sizes.items()]
    blocks = x.reshape(*local, -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes.values(), *blocks.shape[len(sizes) :])))]


def _hybrid(case: Case, grad: Any) -> list[Expected]:
    return [_mean_rows(case, leaf) for leaf in jax.tree.leaves(grad)]


def _mean_rows(case: Case, x: jax.Array) -> Expected:
    """The mean over both axes on every device, and of it the rows of each."""
    shard, replica = (
        list(case.sizes).index(case.kwargs[f"{k}_axis"]) for k in ("shard", "replica")
    )
    sizes = tuple(case.sizes.values())
    blocks = axis_first(case, x, over="shard_axis")
    blocks = jnp.moveaxis(blocks, 0, shard)
    mean = blocks.mean(axis=(shard, replica), keepdims=True)
    whole = jnp.broadcast_to(mean, blocks.shape)
    rows = jnp.stack(jnp.split(mean, sizes[shard], axis=len(sizes)), axis=shard)
    rows = rows.squeeze(shard + 1)
    return Expected(jnp.broadcast_to(rows, (*sizes, *rows.shape[len(sizes) :])), whole)


def _other_shards(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("param_shards")


def _replicas_of_rows(sizes: Sizes) -> float:
    return share(2, "grad", "replica_axis")(sizes) / sizes.n("shard_axis")


FSDP_APPLY = Contract(
    id="fsdp_apply",
    kind="program",
    task="return x after all layers, each gathered when it is used, and again backward",
    reference=fsdp.fsdp_apply,
    oracle=_applied,
    cases=(
        Case(
            "fsdp=4",
            {
                "layer_fn": Function("jaxpar.contracts.layers:residual_mlp"),
                "param_shards": {
                    "up": Array((8, 32, 64), "l d_fsdp f"),
                    "down": Array((8, 64, 32), "l f_fsdp d"),
                },
                "x": Array((4 * 4, 32), "b_fsdp d"),
            },
            {"axis": "fsdp"},
        ),
        Case(
            "dp=3,tp=2",
            {
                "layer_fn": Function("jaxpar.contracts.layers:scaled_projection"),
                "param_shards": (Array((7, 48, 48), "l d_dp f"), Array((7, 48), "l f_dp")),
                "x": Array((3 * 2, 48), "b_dp d"),
            },
            {"axis": "dp"},
        ),
    ),
    hidden=(
        Case(
            "pp=2,fsdp=2",
            {
                "layer_fn": Function("jaxpar.contracts.layers:residual_mlp"),
                "param_shards": {
                    "up": Array((9, 24, 40), "l d_fsdp f"),
                    "down": Array((9, 40, 24), "l f_fsdp d"),
                },
                "x": Array((2 * 3, 24), "b_fsdp d"),
            },
            {"axis": "fsdp"},
        ),
    ),
    gradient=("param_shards", "x"),
    communication=Communication(
        "each layer gathered once forward and once backward, and its gradient reduce-scattered",
        forward=((Limit(("all_gather", "permute"), "axis", _other_shards),),),
    ),
    memory=MemoryLimit(
        "two layers' weights and every layer's input: at most twice the library's bytes of "
        "intermediate results, forward and backward",
        multiple=2,
        programs=("forward", "gradient"),
    ),
    mistakes=mistakes.FSDP_APPLY,
    hints=(
        "lax.scan over the stacked shards hands you one layer's at a time; gather them inside, so "
        "that the whole layer is gone when the next one comes.",
        "lax.all_gather(shards, axis, tiled=True) takes a pytree. Its derivative is the "
        "reduce-scatter: nothing is left to write for the gradients.",
        "What the gradient needs is kept for every layer, and gathered weights are among it. "
        "jax.checkpoint around the whole body, gather included, keeps shards and x only.",
    ),
    minimal="A device holds 1/n of a layer and needs all of it, twice if it may not keep it; the "
    "gradient of each row must come together on the device that holds it.",
    harder="Gather the next layer while this one is computed: carry it through the scan. "
    "What does it take in memory?",
)

HYBRID_GRADIENTS = Contract(
    id="hybrid_gradients",
    kind="program",
    task="return the mean gradient over both axes, this device's rows of `shard_axis` only",
    reference=fsdp.hybrid_gradients,
    oracle=_hybrid,
    cases=(
        Case(
            "dp=4,fsdp=2",
            {
                "grad": {
                    "matrix": Array((8 * 12, 6), "d_dp_fsdp f"),
                    "scale": Array((8 * 8,), "d_dp_fsdp"),
                }
            },
            {"shard_axis": "fsdp", "replica_axis": "dp"},
        ),
        Case(
            "dp=2,fsdp=3,tp=2",
            {"grad": [Array((12 * 6, 4, 2), "d_dp_fsdp_tp f h")]},
            {"shard_axis": "fsdp", "replica_axis": "tp"},
        ),
    ),
    hidden=(
        Case(
            "fsdp=4,dp=2",
            {"grad": (Array((8 * 8, 3), "d_fsdp_dp f"), Array((8 * 16,), "d_fsdp_dp"))},
            {"shard_axis": "fsdp", "replica_axis": "dp"},
        ),
    ),
    communication=Communication(
        "over `shard_axis` a reduce-scatter of the gradient, over `replica_axis` an all-reduce of "
        "this device's rows",
        forward=(
            (
                Limit(
                    ("reduce_scatter", "all_to_all", "permute"),
                    "shard_axis",
                    share(1, "grad", "shard_axis"),
                ),
                Limit(("all_reduce", "all_to_all", "permute"), "replica_axis", _replicas_of_rows),
            ),
        ),
    ),
    sharding=True,
    mistakes=mistakes.HYBRID_GRADIENTS,
    hints=(
        "Two axes, two collectives. The order matters: what is sent last is smaller.",
        "lax.psum_scatter(leaf, shard_axis, tiled=True) leaves each device its rows of the sum: "
        "1/n of the bytes go on to the other axis.",
        "Then lax.pmean over replica_axis, and divide by lax.axis_size(shard_axis), as "
        "psum_scatter does not.",
    ),
    minimal="Rows that only one device in a node keeps need not cross between the nodes more than "
    "once each way.",
    harder="Gather the updated rows, so that each node has whole parameters: the same for ZeRO-1.",
)

CONTRACTS = (FSDP_APPLY, HYBRID_GRADIENTS)
