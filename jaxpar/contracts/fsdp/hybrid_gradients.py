"""Gradients that are sharded within a node and equal between nodes."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import ring_bytes
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.steps import scattered
from jaxpar.contracts.zero.common import mean_rows, own_rows
from jaxpar.parallel import fsdp


def _hybrid(case: Case, grad: Any) -> list[Expected]:
    return [_mean_rows(case, leaf) for leaf in jax.tree.leaves(grad)]


def _mean_rows(case: Case, x: Array) -> Expected:
    """The rows of each device of the mean over both axes; the whole mean, too, if it is more."""
    axes, sizes = list(case.sizes), tuple(case.sizes.values())
    shard = axes.index(case.kwargs["shard_axis"])
    replica = axes.index(case.kwargs["replica_axis"])
    blocks = x.reshape(*sizes, -1, *x.shape[1:])
    mean = blocks.mean(axis=(shard, replica), keepdims=True)
    rows = jnp.stack(jnp.split(mean, sizes[shard], axis=len(sizes)), axis=shard)
    rows = rows.squeeze(shard + 1)
    rows = jnp.broadcast_to(rows, (*sizes, *rows.shape[len(sizes) :]))
    whole = None if sizes[shard] == 1 else jnp.broadcast_to(mean, blocks.shape)
    return Expected(rows, whole)


def _replicas_of_rows(sizes: Sizes) -> float:
    """Wire bytes of an all-reduce of this device's rows over `replica_axis`."""
    return ring_bytes(2, "grad", "replica_axis")(sizes) / sizes.n("shard_axis")


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """More leaves than in the stub, of low precision; one device on either axis, and on both.

    Where it is one on both, leaves differ in dtype: one array of all may be float32, if it is not
    sent.
    """
    shard, replica, other = axis_names(rng, 3, besides=("dp", "fsdp", "tp"))
    axes = {"shard_axis": shard, "replica_axis": replica}
    columns, low, wide = pick(rng, (5, 7, 9)), "bfloat16", "float32"

    def case(mesh: str, rows: int, dtype: str, vector_dtype: str) -> Case:
        """Each device has gradients of `rows` rows, and of twice as many."""
        every, devices = all_axes(mesh), math.prod(parse_mesh(mesh).values())
        matrix = ArraySpec((devices * rows, columns), f"d_{every} f", dtype)
        vector = ArraySpec((devices * 2 * rows,), f"d_{every}", vector_dtype)
        stack = ArraySpec((devices * rows, 2, 1, columns), f"d_{every} a b f", dtype)
        grad = {"layers": [(matrix, vector), {"kernel": stack}], "head": {"w": (matrix,)}}
        return Case(mesh, {"grad": grad}, axes)

    return (
        case(mesh_of(rng, **{shard: 4, replica: 3}), 4 * pick(rng, (9, 15)), low, low),
        case(f"{shard}=1,{replica}=3", pick(rng, (9, 15)), wide, wide),
        case(f"{shard}=5,{replica}=1", 5 * pick(rng, (2, 3)), wide, wide),
        case(f"{shard}=1,{replica}=1,{other}=2", pick(rng, (9, 15)), low, wide),
    )


CONTRACT = Contract(
    kind="program",
    task="return the mean gradient over both axes, this device's rows of `shard_axis` only",
    reference=fsdp.hybrid_gradients,
    oracle=_hybrid,
    cases=(
        Case(
            "dp=4,fsdp=2",
            {
                "grad": {
                    "matrix": ArraySpec((8 * 12, 6), "d_dp_fsdp f"),
                    "scale": ArraySpec((8 * 8,), "d_dp_fsdp"),
                }
            },
            {"shard_axis": "fsdp", "replica_axis": "dp"},
        ),
        Case(
            "dp=2,fsdp=3,tp=2",
            {"grad": [ArraySpec((12 * 6, 4, 2), "d_dp_fsdp_tp f h")]},
            {"shard_axis": "fsdp", "replica_axis": "tp"},
        ),
    ),
    draw=_drawn,
    communication=Communication(
        "over `shard_axis` a reduce-scatter of the gradient, over `replica_axis` an all-reduce of "
        "this device's rows",
        forward=(
            (
                Limit(
                    ("reduce_scatter", "all_to_all", "permute"),
                    "shard_axis",
                    ring_bytes(1, "grad", "shard_axis"),
                ),
                Limit(("all_reduce", "all_to_all", "permute"), "replica_axis", _replicas_of_rows),
            ),
        ),
    ),
    sharding=True,
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


@wrong("values")
def sum_over_shards(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The gradients are summed over `shard_axis`, not averaged: psum_scatter does not divide."""
    return lax.pmean(scattered(grad, shard_axis), replica_axis)


@wrong("values")
def sum_over_replicas(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The gradients are summed over `replica_axis`, not averaged."""
    return lax.psum(mean_rows(grad, shard_axis), replica_axis)


@wrong("values")
def sum_over_both(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The gradients are summed over both axes; divide by the devices of both."""
    return lax.psum(scattered(grad, shard_axis), replica_axis)


@wrong("values")
def replicas_not_reduced(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The replicas have different gradients: average over `replica_axis`, too."""
    return mean_rows(grad, shard_axis)


@wrong("values")
def axes_swapped(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The rows are split over `replica_axis`; its devices hold copies, and those of `shard_axis`
    hold the rows."""
    return lax.pmean(mean_rows(grad, replica_axis), shard_axis)


@wrong("values")
def own_rows_of_own_gradient(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """Each device keeps rows of its own gradient; average them over `shard_axis`, too."""
    return lax.pmean(own_rows(grad, shard_axis), replica_axis)


@wrong("sharding")
def hybrid_whole_mean(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """Every device returns the whole mean gradient; it must return the rows that it holds, which a
    reduce-scatter leaves it."""
    return lax.pmean(grad, (replica_axis, shard_axis))


@wrong("communication")
def replicas_first(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The whole gradient goes over `replica_axis`, the slow links; reduce-scatter over `shard_axis`
    first, and 1/n of it is left to send."""
    return mean_rows(lax.pmean(grad, replica_axis), shard_axis)


@wrong("communication")
def whole_mean_then_rows(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The whole gradient is averaged over both axes, and rows are cut from it; reduce-scatter over
    `shard_axis`, then average the rows over `replica_axis`."""
    return own_rows(lax.pmean(grad, (replica_axis, shard_axis)), shard_axis)


@wrong("communication")
def all_reduce_then_rows(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The whole gradient is averaged over `shard_axis`, and rows are cut from it: twice the bytes
    of a reduce-scatter."""
    return lax.pmean(own_rows(lax.pmean(grad, shard_axis), shard_axis), replica_axis)


@wrong("communication")
def gathers_replicas(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The rows of all replicas are gathered and averaged: r/2 times the bytes of an all-reduce over
    r replicas."""
    rows = mean_rows(grad, shard_axis)
    return jax.tree.map(lambda leaf: lax.all_gather(leaf, replica_axis).mean(axis=0), rows)


@wrong("values")
def hybrid_in_float32(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The gradients are float32, whatever comes in; send and return them in their own dtype."""
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), grad)
    return lax.pmean(mean_rows(wide, shard_axis), replica_axis)


@wrong("communication")
def hybrid_sent_in_float32(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    """The gradients are sent as float32, whatever they are; send them in their own dtype, of which
    bfloat16 takes half the bytes."""
    mean = hybrid_in_float32(grad, shard_axis=shard_axis, replica_axis=replica_axis)
    return jax.tree.map(lambda rows, leaf: rows.astype(leaf.dtype), mean, grad)
