"""Contracts of lesson 12: an embedding and a loss whose tokens the devices share."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxpar.contracts import vocabulary_loss_mistakes, vocabulary_mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import share
from jaxpar.contracts.case import Array, Case, Sizes
from jaxpar.parallel import vocabulary

_ID_BYTES = 4


def _embedded(case: Case, ids: jax.Array, table: jax.Array) -> list[Expected]:
    """Each part of the batch by a table of its own, for the table varies over all axes.

    Were it equal on some, an answer's gradient could be summed over them at a place of its choice.
    """

    def rows(ids: jax.Array, table: jax.Array) -> jax.Array:
        known = (ids >= 0) & (ids < len(table))
        return jnp.where(known[..., None], table[jnp.where(known, ids, 0)], 0)

    parts = math.prod(_others(case))
    y = jax.vmap(rows)(*(x.reshape(parts, -1, *x.shape[1:]) for x in (ids, table)))
    return _of_batch(case, y.reshape(*ids.shape, -1))


def _losses(case: Case, logits: jax.Array, labels: jax.Array) -> list[Expected]:
    label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return _of_batch(case, jax.nn.logsumexp(logits, axis=-1) - label)


def _others(case: Case) -> list[int]:
    """The sizes of the mesh, 1 for the axis that splits the vocabulary."""
    return [1 if name == case.kwargs["axis"] else n for name, n in case.sizes.items()]


def _of_batch(case: Case, x: jax.Array) -> list[Expected]:
    """Dim 0 split over all axes but the one that splits the vocabulary."""
    sizes = tuple(case.sizes.values())
    blocks = x.reshape(*_others(case), -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes, *blocks.shape[len(sizes) :])))]


def _all_reduce_of_rows(sizes: Sizes) -> float:
    """Wire bytes of one all-reduce of a row of the table for each id."""
    rows = sizes.bytes("ids") // _ID_BYTES
    table, devices = sizes.case.args["table"], math.prod(sizes.case.sizes.values())
    row_bytes = sizes.bytes("table") * devices // table.shape[0]
    return 2 * (sizes.n() - 1) / sizes.n() * rows * row_bytes


VOCAB_PARALLEL_EMBEDDING = Contract(
    id="vocab_parallel_embedding",
    kind="program",
    task="return the row of each id on every device, zeros for an id that no device has",
    reference=vocabulary.vocab_parallel_embedding,
    oracle=_embedded,
    cases=(
        Case(
            "tp=8",
            {
                "ids": Array((2, 12), "b t", "int32", "around"),
                "table": Array((8 * 16, 24), "v_tp d"),
            },
            {"axis": "tp"},
        ),
        Case(
            "dp=2,tpx=3",
            {
                "ids": Array((2 * 150,), "b_dp", "int32", "around"),
                "table": Array((6 * 34, 32), "v_dp_tpx d", "bfloat16"),
            },
            {"axis": "tpx"},
        ),
    ),
    hidden=(
        Case(
            "dp=2,cp=4",
            {
                "ids": Array((2 * 70,), "b_dp", "int32", "around"),
                "table": Array((8 * 30, 40), "v_dp_cp d"),
            },
            {"axis": "cp"},
        ),
    ),
    gradient=("table",),
    communication=Communication(
        "one all-reduce of the result, backward nothing",
        forward=((Limit(("all_reduce",), "axis", _all_reduce_of_rows),),),
    ),
    memory=MemoryLimit(
        "never as much as the whole table: at most twice the library's bytes of intermediate "
        "results, forward and backward",
        multiple=2,
        programs=("forward", "gradient"),
    ),
    mistakes=vocabulary_mistakes.EMBEDDING,
    hints=(
        "Each id is a row of one device at most. If all others have zeros there, a sum over the "
        "devices is the row.",
        "Row r of device i is token i * v + r, with v = len(table). A device has an id if r = id - "
        "i * v is at least 0 and less than v.",
        "Look up jnp.where(mine, r, 0), so that no index is out of range, put zeros where "
        "`mine` is false, and lax.psum over the axis.",
    ),
    minimal="A device that has no row of an id must hear of it, and one that has must tell: each "
    "element of the result is summed over the devices once, which is one all-reduce.",
    harder="Return this device's positions only, by a reduce-scatter: half the bytes, and what "
    "sequence parallelism needs.",
)

VOCAB_PARALLEL_CROSS_ENTROPY = Contract(
    id="vocab_parallel_cross_entropy",
    kind="program",
    task="return the loss of each token in float32, without ever gathering logits",
    reference=vocabulary.vocab_parallel_cross_entropy,
    oracle=_losses,
    cases=(
        Case(
            "tp=8",
            {
                "logits_shard": Array((4, 16, 8 * 13), "b t v_tp", draw="shifted"),
                "labels": Array((4, 16), "b t", "int32"),
            },
            {"axis": "tp"},
        ),
        Case(
            "dp=2,tpx=3",
            {
                "logits_shard": Array((2 * 3, 20, 3 * 34), "b_dp t v_tpx", "bfloat16", "peaked"),
                "labels": Array((2 * 3, 20), "b_dp t", "int32"),
            },
            {"axis": "tpx"},
        ),
    ),
    hidden=(
        Case(
            "dp=2,cp=4",
            {
                "logits_shard": Array((2 * 5, 12, 4 * 27), "b_dp t v_cp", draw="shifted"),
                "labels": Array((2 * 5, 12), "b_dp t", "int32"),
            },
            {"axis": "cp"},
        ),
    ),
    gradient=("logits_shard",),
    communication=Communication(
        "three all-reduces of one number for each token, backward nothing",
        forward=((Limit(("all_reduce",), "axis", share(6, "labels")),),),
    ),
    memory=MemoryLimit(
        "never all logits of a token: at most ten times the library's bytes of intermediate "
        "results, forward and backward",
        multiple=10,
        programs=("forward", "gradient"),
    ),
    mistakes=vocabulary_loss_mistakes.CROSS_ENTROPY,
    hints=(
        "The loss is log(sum of exp(logits)) less the label's logit. Both are sums over the "
        "vocabulary: each device adds its part, one number for each token.",
        "exp overflows, so subtract from all logits of a token one number, the same on all "
        "devices: their maximum, by lax.pmax. Any number near it would do, so it needs no "
        "gradient, and lax.pmax has none: lax.stop_gradient its argument.",
        "The label's logit is on one device: look up labels - i * v where that is in 0..v-1, put 0 "
        "elsewhere, and lax.psum. In float32: logits.astype(jnp.float32) first.",
    ),
    minimal="Every token needs the maximum, the sum and the label's logit of all devices: three "
    "numbers, whatever the size of the vocabulary.",
    harder="Take x and this device's columns of the head instead of logits, and work through the "
    "positions in parts, so that only one part's logits exist at a time.",
)

CONTRACTS = (VOCAB_PARALLEL_EMBEDDING, VOCAB_PARALLEL_CROSS_ENTROPY)
