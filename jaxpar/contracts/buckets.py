"""The contract of lesson 05's buckets: one all-reduce for several leaves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxpar.contracts.base import Communication, Contract, Expected, Limit
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.bucket_mistakes import MISTAKES
from jaxpar.contracts.case import Array, Case, Sizes
from jaxpar.parallel import data


def _means(case: Case, gradients: Any) -> list[Expected]:
    leaves = jax.tree.leaves(gradients)
    return [Expected(on_every_device(case, axis_first(case, x).mean(axis=0))) for x in leaves]


def _bucket_bytes(sizes: Sizes) -> list[int]:
    """Bytes of each bucket."""
    buckets: list[int] = []
    for leaf in sizes.leaf_bytes("gradients"):
        if buckets and buckets[-1] + leaf <= sizes.case.kwargs["bucket_bytes"]:
            buckets[-1] += leaf
        else:
            buckets.append(leaf)
    return buckets


def _chunk_bytes(sizes: Sizes) -> list[int]:
    """Bytes of 1/n of each bucket, padded."""
    item_bytes = jnp.dtype(next(sizes.case.arrays())[1].dtype).itemsize
    return [-(-bucket // (sizes.n() * item_bytes)) * item_bytes for bucket in _bucket_bytes(sizes)]


def _half_round_bytes(sizes: Sizes) -> int:
    """Wire bytes of a reduce-scatter, or an all-gather, of all buckets."""
    return (sizes.n() - 1) * sum(_chunk_bytes(sizes))


# One all-reduce for each bucket, or a reduce-scatter of it (its chunks may also be exchanged, and
# added up after that) and an all-gather of what that leaves.
_BUCKETS = (
    (
        Limit(
            ("all_reduce",),
            "axis",
            lambda s: 2 * _half_round_bytes(s),
            exact=True,
            operand_bytes=_bucket_bytes,
        ),
    ),
    (
        Limit(
            ("reduce_scatter", "all_to_all"),
            "axis",
            _half_round_bytes,
            operand_bytes=lambda s: [s.n() * chunk for chunk in _chunk_bytes(s)],
        ),
        Limit(("all_gather",), "axis", _half_round_bytes, operand_bytes=_chunk_bytes),
    ),
)


BUCKETED_ALL_REDUCE = Contract(
    id="bucketed_all_reduce",
    kind="program",
    task="return the mean of the gradients over `axis`, by one all-reduce for each bucket",
    reference=data.bucketed_all_reduce,
    oracle=_means,
    cases=(
        Case(
            "dp=8",
            {
                "gradients": {
                    "embedding": Array((8 * 6, 8), "v_dp d"),
                    "first": {"b": Array((8 * 16,), "d_dp"), "w": Array((8 * 5, 8), "d_dp f")},
                    "last": {"b": Array((8 * 8,), "d_dp"), "w": Array((8 * 3, 8), "d_dp f")},
                    "output": Array((8 * 10, 8), "d_dp v"),
                    "scale": Array((8 * 8,), "d_dp"),
                },
            },
            {"axis": "dp", "bucket_bytes": 4 * 64},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "gradients": (
                    Array((6 * 44,), "d_fsdp_tp", "bfloat16"),  # too large before any other
                    [
                        {
                            "b": Array((6 * 12,), "d_fsdp_tp", "bfloat16"),
                            "w": Array((6 * 6, 5), "d_fsdp_tp f", "bfloat16"),
                        },
                        {
                            "b": Array((6 * 12,), "d_fsdp_tp", "bfloat16"),
                            "w": Array((6 * 6, 5), "d_fsdp_tp f", "bfloat16"),
                        },
                    ],
                ),
            },
            {"axis": "fsdp", "bucket_bytes": 2 * 42},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "gradients": [
                    Array((8 * 10,), "d_tp_dp"),
                    {"b": Array((8 * 9,), "d_tp_dp"), "w": Array((8 * 4, 10), "d_tp_dp f")},
                    Array((8 * 6, 11), "d_tp_dp f"),  # too large for any bucket
                    (Array((8 * 20,), "d_tp_dp"), Array((8 * 30,), "d_tp_dp")),
                ],
            },
            {"axis": "dp", "bucket_bytes": 4 * 50},
        ),
    ),
    communication=Communication("one all-reduce for each bucket, of its bytes", forward=_BUCKETS),
    mistakes=MISTAKES,
    hints=(
        "jax.tree.flatten gives the leaves in order, and what puts them together again. First "
        "decide which leaves share a bucket; sizes are known when the function is traced.",
        "A bucket is one array: concatenate its leaves, each made flat, and take lax.pmean of "
        "that. lax.pmean of a list sends each leaf by itself.",
        "Cut the mean where the leaves end, in the order in which you packed them, and give each "
        "its shape.",
    ),
    minimal="Every leaf must be reduced; a bucket saves the start of a message for each leaf after "
    "its first, and its size decides how early the first can go.",
    harder="Fill the buckets from the last leaf, whose gradient is ready first, as PyTorch does.",
)

CONTRACTS = (BUCKETED_ALL_REDUCE,)
