"""Contracts of lesson 11: a gated MLP and attention whose matrices the devices share."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxpar.contracts import tensor_mistakes as mistakes
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit
from jaxpar.contracts.blocks import share, whole_on_all
from jaxpar.contracts.case import Array, Case
from jaxpar.parallel import tensor

_ONE_ALL_REDUCE = ((Limit(("all_reduce",), "axis", share(2)),),)


def _gated(case: Case, x: jax.Array, *weights: jax.Array) -> list[Expected]:
    w_gate, w_up, w_down = weights
    gate = x @ w_gate
    return whole_on_all(case, (gate / (1 + jnp.exp(-gate)) * (x @ w_up)) @ w_down)


def _attended(case: Case, x: jax.Array, *weights: jax.Array) -> list[Expected]:
    heads, kv_heads = (case.kwargs[name] for name in ("num_heads", "num_kv_heads"))
    w_q, w_k, w_v, w_o = weights
    (b, t, _), h = x.shape, w_q.shape[1] // heads
    q, k, v = ((x @ w).reshape(b, t, -1, h) for w in (w_q, w_k, w_v))
    k, v = (jnp.repeat(y, heads // kv_heads, axis=2) for y in (k, v))
    scores = jnp.einsum("btah,bsah->bats", q, k) / math.sqrt(h)
    past = jnp.arange(t)[:, None] >= jnp.arange(t)[None]
    weights_of_past = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    gathered = jnp.einsum("bats,bsah->btah", weights_of_past, v)
    return whole_on_all(case, gathered.reshape(b, t, heads * h) @ w_o)


def _mlp(mesh: str, axis: str, b: int, t: int, d: int, f: int) -> Case:
    args = {
        "x": Array((b, t, d), "b t d"),
        "w_gate": Array((d, f), f"d f_{axis}"),
        "w_up": Array((d, f), f"d f_{axis}"),
        "w_down": Array((f, d), f"f_{axis} d"),
    }
    return Case(mesh, args, {"axis": axis})


def _heads(mesh: str, axis: str, heads: int, kv_heads: int, *sizes: int) -> Case:
    """A case of attention; `sizes` are b, t, d and h."""
    b, t, d, h = sizes or (2, 4, 6, 2)
    n = int(mesh.rpartition("=")[2])
    kv = Array((d, kv_heads * h), f"d k_{axis}" if kv_heads >= n else "d k")
    args: dict[str, Any] = {
        "x": Array((b, t, d), "b t d"),
        "w_q": Array((d, heads * h), f"d q_{axis}"),
        "w_k": kv,
        "w_v": kv,
        "w_o": Array((heads * h, d), f"q_{axis} d"),
    }
    return Case(mesh, args, {"num_heads": heads, "num_kv_heads": kv_heads, "axis": axis})


PARALLEL_SWIGLU = Contract(
    id="parallel_swiglu",
    kind="program",
    task="return the gated MLP of x; this device has its part of the hidden size",
    reference=tensor.parallel_swiglu,
    oracle=_gated,
    cases=(
        _mlp("tp=4", "tp", b=2, t=5, d=12, f=4 * 14),
        _mlp("dp=2,tpx=3", "tpx", b=3, t=4, d=9, f=3 * 8),
    ),
    hidden=(_mlp("tp=2,pp=3", "tp", b=4, t=3, d=10, f=2 * 9),),
    gradient=("x", "w_gate", "w_up", "w_down"),
    communication=Communication(
        "one all-reduce of x's size forward, one backward",
        forward=_ONE_ALL_REDUCE,
    ),
    mistakes=mistakes.PARALLEL_SWIGLU,
    hints=(
        "silu and * work on each hidden element alone. So whoever has some columns of w_gate and "
        "of w_up has all it needs for the same rows of w_down.",
        "Each device's product with w_down is a part of a sum over all hidden elements: one "
        "lax.psum at the very end.",
        "x is used twice. lax.pcast(x, axis, to='varying'), once and before both uses, has one "
        "all-reduce as its derivative; left out, JAX puts one at each use.",
    ),
    minimal="The result needs every device's part of the sum, and so does the gradient of x: an "
    "all-reduce each way.",
    harder="Put w_gate and w_up into one matrix, so that one product does both. In which order "
    "must its columns lie, so that each device gets columns of both?",
)

PARALLEL_ATTENTION = Contract(
    id="parallel_attention",
    kind="program",
    task="return causal attention of x; this device has its part of the heads",
    reference=tensor.parallel_attention,
    oracle=_attended,
    cases=(
        _heads("tp=2", "tp", 8, 4, 2, 4, 12, 3),
        _heads("dp=2,tpx=6", "tpx", 12, 2, 3, 5, 10, 4),
        _heads("tp=3", "tp", 3, 3, 2, 5, 9, 4),
        _heads("dp=2,tpx=3", "tpx", 6, 1, 2, 7, 8, 3),
    ),
    hidden=(_heads("dp=2,tp=4", "tp", 8, 2, 2, 6, 8, 4),),
    gradient=("x", "w_q", "w_k", "w_v", "w_o"),
    communication=Communication(
        "one all-reduce of x's size forward, one backward; where w_k and w_v are whole, one of "
        "each backward, too",
        forward=_ONE_ALL_REDUCE,
    ),
    errors=(
        BadCall(_heads("tp=4", "tp", 6, 6), "n does not divide num_heads"),
        BadCall(_heads("tp=4", "tp", 12, 6), "num_kv_heads is above n and n does not divide it"),
        BadCall(_heads("tp=6", "tp", 12, 4), "num_kv_heads is below n and does not divide it"),
    ),
    # Scores of dozens: what is rounded off them, softmax makes relative errors of its weights.
    tolerance=4,
    mistakes=mistakes.PARALLEL_ATTENTION,
    hints=(
        "Each head is computed alone, so device i computes its own: (x @ w_q) is [b, t, q], and "
        "its dim q is head after head, h numbers each.",
        "With few kv heads cut yours out of the whole w_k and w_v: columns head*h to (head+1)*h "
        "with head = lax.axis_index(axis) * num_kv_heads // n, by lax.dynamic_slice_in_dim.",
        "jnp.repeat makes each kv head stand beside its query heads. Then mask, softmax, product "
        "with w_o, and one lax.psum. And lax.pcast x once, before its three uses.",
    ),
    minimal="Heads never meet before w_o, and its product is a sum over them: one all-reduce. A "
    "matrix that all devices hold and use has a gradient on each, so these must be summed.",
    harder="Let only the devices that share a kv head hold it: w_k as [d, h], equal in groups of "
    "n/num_kv_heads. What does its gradient send then?",
)

CONTRACTS = (PARALLEL_SWIGLU, PARALLEL_ATTENTION)
