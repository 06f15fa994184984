"""Exercise parallel_attention: each device has its heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.tensor_parallel.common import (
    ONE_ALL_REDUCE,
    as_it_is,
    enter,
    sum_again,
    twice,
    whole_columns,
    whole_rows,
)
from jaxpar.parallel import tensor


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


def _attention_case(mesh: str, axis: str, heads: int, kv_heads: int, *sizes: int) -> Case:
    """A case of attention; `sizes` are b, t, d and h."""
    b, t, d, h = sizes or (2, 4, 6, 2)
    n = int(mesh.rpartition("=")[2])
    kv = ArraySpec((d, kv_heads * h), f"d k_{axis}" if kv_heads >= n else "d k")
    args: dict[str, Any] = {
        "x": ArraySpec((b, t, d), "b t d"),
        "w_q": ArraySpec((d, heads * h), f"d q_{axis}"),
        "w_k": kv,
        "w_v": kv,
        "w_o": ArraySpec((heads * h, d), f"q_{axis} d"),
    }
    return Case(mesh, args, {"num_heads": heads, "num_kv_heads": kv_heads, "axis": axis})


CONTRACT = Contract(
    kind="program",
    task="return causal attention of x; this device has its part of the heads",
    reference=tensor.parallel_attention,
    oracle=_attended,
    cases=(
        _attention_case("tp=2", "tp", 8, 4, 2, 4, 12, 3),
        _attention_case("dp=2,tpx=6", "tpx", 12, 2, 3, 5, 10, 4),
        _attention_case("tp=3", "tp", 3, 3, 2, 5, 9, 4),
        _attention_case("dp=2,tpx=3", "tpx", 6, 1, 2, 7, 8, 3),
    ),
    hidden=(_attention_case("dp=2,tp=4", "tp", 8, 2, 2, 6, 8, 4),),
    gradient=("x", "w_q", "w_k", "w_v", "w_o"),
    communication=Communication(
        "one all-reduce of x's size forward, one backward; where w_k and w_v are whole, one of "
        "each backward, too",
        forward=ONE_ALL_REDUCE,
    ),
    errors=(
        BadCall(_attention_case("tp=4", "tp", 6, 6), "n does not divide num_heads"),
        BadCall(
            _attention_case("tp=4", "tp", 12, 6), "num_kv_heads is above n and n does not divide it"
        ),
        BadCall(
            _attention_case("tp=6", "tp", 12, 4), "num_kv_heads is below n and does not divide it"
        ),
    ),
    # Scores of dozens: what is rounded off them, softmax makes relative errors of its weights.
    tolerance=4,
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


def _own_heads(w: Array, kv_heads: int, h: int, axis: str, choose: Callable | None) -> Array:
    """The columns of this device's kv heads, of all if they are few."""
    n = lax.axis_size(axis)
    if kv_heads >= n or choose is None:
        return w
    return lax.dynamic_slice_in_dim(w, choose(lax.axis_index(axis), kv_heads, n) * h, h, axis=1)


def _neighbours(i: Array, kv_heads: int, n: int) -> Array:
    return i * kv_heads // n


def _heads(y: Array, h: int) -> Array:
    """[b, t, heads*h] to [b, heads, t, h]."""
    return y.reshape(*y.shape[:2], -1, h).swapaxes(1, 2)


def _softmax_of_past(scores: Array) -> Array:
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf))


def _attention(
    *,
    enter: Callable[[Array, str], Array] = enter,
    enter_kv: Callable[[Array, str], Array] = as_it_is,
    choose: Callable[[Array, int, int], Any] = _neighbours,
    heads: Callable[[Array, int], Array] = _heads,
    repeat: Callable[[Array, int, int], Array] = jnp.repeat,
    scale: Callable[[int, int], float] = lambda h, d: math.sqrt(h),
    softmax: Callable[[Array], Array] = _softmax_of_past,
    total: Callable[[Array, str], Any] = lax.psum,
    check: bool = True,
) -> Callable[..., Array]:
    """Attention with one step done in another way."""

    def function(
        x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
        *, num_heads: int, num_kv_heads: int, axis: str,
    ) -> Array:  # fmt: skip
        n = lax.axis_size(axis)
        if check and (num_heads % n or (num_kv_heads % n and n % num_kv_heads)):
            raise ValueError("heads and devices do not fit")
        h, x = w_q.shape[1] * n // num_heads, enter(x, axis)
        w_k, w_v = (
            _own_heads(w if num_kv_heads >= n else enter_kv(w, axis), num_kv_heads, h, axis, choose)
            for w in (w_k, w_v)
        )
        q, k, v = (heads(x @ w, h) for w in (w_q, w_k, w_v))
        k, v = (repeat(y, q.shape[1] // y.shape[1], 1) for y in (k, v))
        gathered = softmax(q @ k.mT / scale(h, x.shape[-1])) @ v
        return total(gathered.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ w_o, axis)

    return function


@wrong("values")
def partial_results(*args: Any, **how: Any) -> Any:
    """Each device returns its part of a sum; lax.psum adds them, after the last product."""
    return (_attention(total=as_it_is))(*args, **how)


@wrong("values")
def summed_twice(*args: Any, **how: Any) -> Any:
    """The result is summed twice, and n times too large: after one lax.psum it is equal on all
    devices."""
    return (_attention(total=twice))(*args, **how)


@wrong("values")
def kv_head_in_turn(*args: Any, **how: Any) -> Any:
    """Device i uses kv head i % num_kv_heads; neighbours share a kv head: use i * num_kv_heads //
    n."""
    return (_attention(choose=lambda i, kv, n: i % kv))(*args, **how)


@wrong("values")
def kv_head_zero(*args: Any, **how: Any) -> Any:
    """Every device uses kv head 0; device i needs head i * num_kv_heads // n."""
    return (_attention(choose=lambda i, kv, n: 0))(*args, **how)


@wrong("values")
def kv_head_divided(*args: Any, **how: Any) -> Any:
    """Device i uses kv head i // num_kv_heads; not num_kv_heads but n // num_kv_heads neighbours
    share one: use i * num_kv_heads // n."""
    return (_attention(choose=lambda i, kv, n: i // kv))(*args, **how)


@wrong("values")
def kv_head_of_index(*args: Any, **how: Any) -> Any:
    """Device i uses kv head i, and lax.dynamic_slice moves what is too large to the last one;
    device i needs head i * num_kv_heads // n."""
    return (_attention(choose=lambda i, kv, n: i))(*args, **how)


def _interleaved(y: Array, h: int) -> Array:
    return y.reshape(*y.shape[:2], h, -1).transpose(0, 3, 1, 2)


@wrong("values")
def heads_interleaved(*args: Any, **how: Any) -> Any:
    """The columns are split as [h, heads]; they are head after head, so reshape them to [heads,
    h]."""
    return (_attention(heads=_interleaved))(*args, **how)


def _tile(y: Array, times: int, axis: int) -> Array:
    return jnp.concatenate([y] * times, axis=axis)


@wrong("values")
def kv_heads_tiled(*args: Any, **how: Any) -> Any:
    """The kv heads are repeated as a whole, 0 1 0 1; each serves query heads that stand one after
    another, 0 0 1 1: jnp.repeat, not jnp.tile."""
    return (_attention(repeat=_tile))(*args, **how)


@wrong("values")
def mask_lost(*args: Any, **how: Any) -> Any:
    """Positions see those after them; set their scores to -inf before softmax."""
    return (_attention(softmax=jax.nn.softmax))(*args, **how)


def _masked_by_zero(scores: Array) -> Array:
    return jax.nn.softmax(jnp.tril(scores))


@wrong("values")
def masked_by_zero(*args: Any, **how: Any) -> Any:
    """The scores of later positions are set to 0, and softmax gives them weight all the same; set
    them to -inf."""
    return (_attention(softmax=_masked_by_zero))(*args, **how)


def _masked_after_softmax(scores: Array) -> Array:
    return jnp.tril(jax.nn.softmax(scores))


@wrong("values")
def masked_after_softmax(*args: Any, **how: Any) -> Any:
    """Weights are set to 0 after softmax, so that the others do not add up to 1; set scores to -inf
    before it."""
    return (_attention(softmax=_masked_after_softmax))(*args, **how)


def _softmax_over_queries(scores: Array) -> Array:
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-2)


@wrong("values")
def softmax_over_queries(*args: Any, **how: Any) -> Any:
    """Softmax is taken over the queries; the weights of one query, over the keys, must add up to
    1."""
    return (_attention(softmax=_softmax_over_queries))(*args, **how)


@wrong("values")
def scale_lost(*args: Any, **how: Any) -> Any:
    """The scores are not divided by sqrt(h)."""
    return (_attention(scale=lambda h, d: 1.0))(*args, **how)


@wrong("values")
def scale_by_d_model(*args: Any, **how: Any) -> Any:
    """The scores are divided by sqrt(d); divide by sqrt(h), h the size of a head."""
    return (_attention(scale=lambda h, d: math.sqrt(d)))(*args, **how)


@wrong("values")
def scale_without_root(*args: Any, **how: Any) -> Any:
    """The scores are divided by h; divide by its square root."""
    return (_attention(scale=lambda h, d: h))(*args, **how)


@wrong("gradient")
def gradient_summed_twice(*args: Any, **how: Any) -> Any:
    """The gradient of x is summed twice, and n times too large: JAX sums it where x becomes
    varying, so a function with lax.psum in its backward pass adds a second sum. lax.pcast(x, axis,
    to='varying') is Megatron's f."""
    return (_attention(enter=sum_again))(*args, **how)


def _of_device_zero(w: Array, axis: str) -> Array:
    """Whole weights whose gradient counts what device 0 makes of them."""
    return jnp.where(lax.axis_index(axis) == 0, w, lax.stop_gradient(w))


@wrong("gradient")
def kv_gradient_of_one_device(*args: Any, **how: Any) -> Any:
    """The gradients of whole w_k and w_v are those of one device; all devices that use a matrix
    must add theirs."""
    return (_attention(enter_kv=_of_device_zero))(*args, **how)


def _averaged(w: Array, axis: str) -> Array:
    fixed = lax.stop_gradient(w)
    return fixed + (w - fixed) / lax.axis_size(axis)


@wrong("gradient")
def kv_gradient_averaged(*args: Any, **how: Any) -> Any:
    """The gradients of whole w_k and w_v are averaged over the devices; each device has a part of a
    sum."""
    return (_attention(enter_kv=_averaged))(*args, **how)


@wrong("communication")
def f_left_implicit(*args: Any, **how: Any) -> Any:
    """JAX makes x varying at each of its uses, and each sends an all-reduce of its own in the
    backward pass; lax.pcast(x, axis, to='varying') once, before the first use."""
    return (_attention(enter=as_it_is))(*args, **how)


@wrong("communication")
def tensor_weights_gathered(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
) -> Array:  # fmt: skip
    """All weights are gathered, and every device computes everything; use your own columns and
    rows, and sum the results."""
    n = lax.axis_size(axis)
    h = w_q.shape[1] * n // num_heads
    if num_kv_heads >= n:
        w_k, w_v = (whole_columns(w, axis) for w in (w_k, w_v))
    q, k, v = (_heads(x @ w, h) for w in (whole_columns(w_q, axis), w_k, w_v))
    k, v = (jnp.repeat(y, num_heads // num_kv_heads, 1) for y in (k, v))
    gathered = _softmax_of_past(q @ k.mT / math.sqrt(h)) @ v
    return gathered.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ whole_rows(w_o, axis)


@wrong("communication")
def few_keys_summed(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
) -> Array:  # fmt: skip
    """Every device computes the keys and values of all heads, and the gradients of these are
    summed, b*t*k elements each; cut your head's columns out of w_k and w_v first: then the
    gradients of the weights are summed, d*k elements."""
    n = lax.axis_size(axis)
    h, own = w_q.shape[1] * n // num_heads, enter(x, axis)
    few = num_kv_heads < n
    q, k, v = own @ w_q, (x if few else own) @ w_k, (x if few else own) @ w_v
    if few:
        start = _neighbours(lax.axis_index(axis), num_kv_heads, n) * h
        k, v = (lax.dynamic_slice_in_dim(y, start, h, axis=2) for y in (k, v))
    q, k, v = (_heads(y, h) for y in (q, k, v))
    k, v = (jnp.repeat(y, q.shape[1] // y.shape[1], 1) for y in (k, v))
    gathered = _softmax_of_past(q @ k.mT / math.sqrt(h)) @ v
    return lax.psum(gathered.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ w_o, axis)


@wrong("errors")
def heads_not_checked(*args: Any, **how: Any) -> Any:
    """Sizes that do not fit are not refused; raise ValueError if n does not divide num_heads, or if
    of num_kv_heads and n neither divides the other."""
    return (_attention(check=False))(*args, **how)
