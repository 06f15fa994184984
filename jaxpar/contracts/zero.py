"""Contracts of lesson 09: ZeRO."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxpar.contracts import global_norm_mistakes, zero_accumulate_mistakes, zero_update_mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import mesh_order, on_every_device, share, whole_on_all
from jaxpar.contracts.case import Array, Case, Function, Made, Sizes, array_leaves
from jaxpar.parallel import zero

_SCALAR_BYTES = 4
_SCATTERS = ("reduce_scatter", "all_to_all", "permute")


def _shared_rows(case: Case, tree: Any) -> list[Expected]:
    """Of every leaf, the rows of dim 0 that belong to each device of the axis; scalars whole."""
    return [
        whole if leaf.ndim == 0 else Expected(_rows(case, leaf), whole.blocks)
        for leaf, whole in zip(jax.tree.leaves(tree), whole_on_all(case, tree), strict=True)
    ]


def _rows(case: Case, leaf: jax.Array) -> jax.Array:
    axis = case.kwargs["axis"]
    n, others = case.sizes[axis], [size for name, size in case.sizes.items() if name != axis]
    rows = leaf.reshape(n, *[1] * len(others), -1, *leaf.shape[1:])
    return mesh_order(case, jnp.broadcast_to(rows, (n, *others, *rows.shape[1 + len(others) :])))


def _updated(
    case: Case, grads: Any, params: Any, opt_shard: Any, optimizer: optax.GradientTransformation
) -> list[Expected]:
    n = case.sizes[case.kwargs["axis"]]
    mean = jax.tree.map(lambda g: g.reshape(n, -1, *g.shape[1:]).mean(axis=0), grads)
    updates, state = optimizer.update(mean, opt_shard, params)
    return whole_on_all(case, optax.apply_updates(params, updates)) + _shared_rows(case, state)


def _norm(case: Case, shards: Any) -> list[Expected]:
    """The last dim of each leaf is split over the other axes, for whose devices it is a norm."""
    others = [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]
    squares = jnp.float32(0)
    for leaf in jax.tree.leaves(shards):
        parts = leaf.reshape(-1, *others, leaf.shape[-1] // math.prod(others))
        squares += jnp.sum(parts**2, axis=(0, -1))
    return [Expected(on_every_device(case, jnp.sqrt(squares)))]


def _accumulated(case: Case, loss_fn: Callable, params: Any, microbatches: Any) -> list[Expected]:
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return _shared_rows(case, jax.grad(loss_fn)(params, batch))


def _microbatch_scatters(sizes: Sizes) -> float:
    """Wire bytes of a reduce-scatter of all gradients in each microbatch."""
    m = next(array_leaves(sizes.case.args["microbatches"])).shape[0]
    return m * share(1, "params")(sizes)


def _matrices(d: int, f: int, rows: int, layout: str) -> dict[str, Array]:
    """Two leaves; `rows` times as many rows as one device has of them."""
    return {"w": Array((rows * d, f), layout), "bias": Array((rows * f,), layout.split()[0])}


ZERO1_UPDATE = Contract(
    id="zero1_update",
    kind="program",
    task="update this device's rows by the mean gradient, and put all rows together over `axis`",
    reference=zero.zero1_update,
    oracle=_updated,
    cases=(
        Case(
            "dp=8",
            {
                "grads": _matrices(16, 8, 8, "d_dp f"),
                "params": _matrices(16, 8, 1, "d f"),
                "opt_shard": Made(
                    Function("jaxpar.contracts.optimizers:adamw_state"),
                    (
                        Array((), "", "int32"),
                        _matrices(16, 8, 1, "d_dp f"),
                        {
                            "w": Array((16, 8), "d_dp f", draw="positive"),
                            "bias": Array((8,), "d_dp", draw="positive"),
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
                "grads": [_matrices(6, 9, 3, "d_fsdp f"), Array((3 * 12, 2, 5), "d_fsdp a h")],
                "params": [_matrices(6, 9, 1, "d f"), Array((12, 2, 5), "d a h")],
                "opt_shard": [_matrices(6, 9, 1, "d_fsdp f"), Array((12, 2, 5), "d_fsdp a h")],
                "optimizer": Function("jaxpar.contracts.optimizers:MOMENTUM"),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "grads": [_matrices(12, 8, 4, "d_dp f"), Array((4 * 16, 3), "d_dp h")],
                "params": [_matrices(12, 8, 1, "d f"), Array((16, 3), "d h")],
                "opt_shard": [_matrices(12, 8, 1, "d_dp f"), Array((16, 3), "d_dp h")],
                "optimizer": Function("jaxpar.contracts.optimizers:MOMENTUM"),
            },
            {"axis": "dp"},
        ),
    ),
    sharding=True,
    communication=Communication(
        "a reduce-scatter of the gradients and an all-gather of the parameters: the bytes of one "
        "all-reduce",
        forward=((Limit((*_SCATTERS, "all_gather"), "axis", share(2, "params")),),),
    ),
    mistakes=zero_update_mistakes.MISTAKES,
    hints=(
        "Each device needs the mean gradient of its own rows only, and its rows of the parameters. "
        "Then every device has new rows, and needs those of all others.",
        "lax.psum_scatter(g, axis, tiled=True) adds up and leaves each device its rows; divide by "
        "lax.axis_size(axis). lax.dynamic_slice_in_dim takes rows from a traced index on.",
        "optimizer.update(grads, state, params) takes all three for the same rows, and "
        "optax.apply_updates adds what it returns. lax.all_gather(rows, axis, tiled=True) at last.",
    ),
    minimal="Other devices' gradients of its rows must reach a device, and its new rows all "
    "others: (n-1)/n of the parameters each way, as in an all-reduce.",
    harder="Let dim 0 be of any size: pad it, and let nobody see the padding.",
)

GLOBAL_NORM_OF_SHARDS = Contract(
    id="global_norm_of_shards",
    kind="program",
    task="return the norm of all leaves together, each of which is shared over `axis`",
    reference=zero.global_norm_of_shards,
    oracle=_norm,
    cases=(
        Case(
            "dp=8",
            {
                "shards": {
                    "embedding": Array((8 * 2, 5), "v_dp d"),
                    "layers": [_matrices(2 + i, 3, 8, "d_dp f") for i in range(5)],
                }
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            {"shards": [Array((i + 1, 3 * 4, 2 * 3), "l d_fsdp f_tp") for i in range(10)]},
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "shards": {
                    f"layer_{i}": Array((i + 2, 4 * 3, 2 * 5), "l d_dp f_tp") for i in range(6)
                }
            },
            {"axis": "dp"},
        ),
    ),
    communication=Communication(
        "one all-reduce of one number",
        forward=(
            (
                Limit(
                    ("all_reduce", "all_to_all", "permute"),
                    "axis",
                    lambda s: 2 * _SCALAR_BYTES * (s.n() - 1),
                ),
            ),
        ),
    ),
    mistakes=global_norm_mistakes.MISTAKES,
    hints=(
        "The norm is the square root of a sum of squares; a device has some of the squares.",
        "Add up the squares of all leaves on the device first: then there is one number to send.",
        "lax.psum of that number over the axis, and jnp.sqrt of the result.",
    ),
    minimal="Each device must tell one number, and hear one.",
    harder="Let some leaves be whole on every device: they count once.",
)

ZERO2_ACCUMULATE = Contract(
    id="zero2_accumulate",
    kind="program",
    task="return this device's rows of the mean gradient of m microbatches, over `axis`",
    reference=zero.zero2_accumulate,
    oracle=_accumulated,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": Function("jaxpar.contracts.losses:squared_error"),
                "params": {
                    "w_in": Array((64, 64), "d f"),
                    "bias": Array((64,), "f"),
                    "w_out": Array((64,), "f"),
                },
                "microbatches": {
                    "inputs": Array((8, 8 * 4, 64), "m b_dp d"),
                    "targets": Array((8, 8 * 4), "m b_dp"),
                },
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "loss_fn": Function("jaxpar.contracts.losses:layered_error"),
                "params": [
                    {"w": Array((96, 48), "d f"), "scale": Array((48,), "f")},
                    {"w": Array((48, 4), "f d")},
                ],
                "microbatches": (
                    Array((6, 3 * 4, 96), "m b_fsdp d"),
                    Array((6, 3 * 4, 4), "m b_fsdp f"),
                ),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "loss_fn": Function("jaxpar.contracts.losses:squared_error"),
                "params": {
                    "w_in": Array((48, 72), "d f"),
                    "bias": Array((72,), "f"),
                    "w_out": Array((72,), "f"),
                },
                "microbatches": {
                    "inputs": Array((10, 4 * 4, 48), "m b_dp d"),
                    "targets": Array((10, 4 * 4), "m b_dp"),
                },
            },
            {"axis": "dp"},
        ),
    ),
    sharding=True,
    communication=Communication(
        "a reduce-scatter of the gradients in each microbatch, and nothing else",
        forward=((Limit(_SCATTERS, "axis", _microbatch_scatters),),),
    ),
    memory=MemoryLimit(
        "one microbatch's activations, one gradient, and this device's rows of their sum: at most "
        "1.3 times the library's bytes of intermediate results",
        multiple=1.3,
    ),
    # tanh of sums of 64 products is nearly 1: its derivative is a difference of equals.
    tolerance=3,
    mistakes=zero_accumulate_mistakes.MISTAKES,
    hints=(
        "A sum of whole gradients is as large as one. Let each device add up its rows only.",
        "lax.psum_scatter(g, axis, tiled=True) in the loop adds up over the devices, and leaves "
        "each its rows; the carry of lax.scan has their shape, and is typed as varying.",
        "lax.pcast params before the loop; inside, JAX would sum each gradient over the devices. "
        "At last divide by m and by lax.axis_size(axis).",
    ),
    minimal="No device may keep the rows of others, so that it must send them before it computes "
    "the next gradient: (n-1)/n of the gradient in each microbatch.",
    harder="Return the mean loss, too, with no more than one scalar sent for it.",
)

CONTRACTS = (ZERO1_UPDATE, GLOBAL_NORM_OF_SHARDS, ZERO2_ACCUMULATE)
