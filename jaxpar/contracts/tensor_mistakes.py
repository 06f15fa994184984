"""Wrong answers to a gated MLP and to attention, split over devices, that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake


def _enter(x: Array, axis: str) -> Array:
    return lax.pcast(x, axis, to="varying")


def _as_it_is(x: Array, axis: str) -> Array:
    return x


def _twice(x: Array, axis: str) -> Array:
    return lax.psum(_enter(lax.psum(x, axis), axis), axis)


def _scattered(x: Array, axis: str) -> Array:
    return lax.psum_scatter(x, axis, scatter_dimension=2, tiled=True)


def _scattered_and_gathered(x: Array, axis: str) -> Array:
    return lax.all_gather(_scattered(x, axis), axis, axis=2, tiled=True)


def _gathered_and_added(x: Array, axis: str) -> Array:
    return lax.all_gather(x, axis).sum(axis=0)


def _whole_columns(w: Array, axis: str) -> Array:
    return lax.all_gather(w, axis, axis=1, tiled=True)


def _whole_rows(w: Array, axis: str) -> Array:
    return lax.all_gather(w, axis, tiled=True)


def _sum_again(x: Array, axis: str) -> Array:
    """Megatron's f as a function of its own: the backward pass sums what JAX has summed already."""

    @jax.custom_vjp
    def f(x: Array) -> Array:
        return x

    f.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(_enter(g, axis), axis),))
    return f(x)


def _gated(gate: Array, up: Array) -> Array:
    return jax.nn.silu(gate) * up


def _swiglu(
    *,
    enter: Callable[[Array, str], Array] = _enter,
    hidden: Callable[[Array, Array], Array] = _gated,
    columns: Callable[[Array, str], Array] = _as_it_is,
    total: Callable[[Array, str], Any] = lax.psum,
) -> Callable[..., Array]:
    """A gated MLP with one step done in another way."""

    def function(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
        x = enter(x, axis)
        gate, up = (columns(x @ w, axis) for w in (w_gate, w_up))
        return total(hidden(gate, up) @ w_down, axis)

    return function


def _weights_gathered(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    gate, up = (x @ _whole_columns(w, axis) for w in (w_gate, w_up))
    return _gated(gate, up) @ _whole_rows(w_down, axis)


def _hidden_gathered(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    x = _enter(x, axis)
    hidden = lax.all_gather(_gated(x @ w_gate, x @ w_up), axis, axis=2, tiled=True)
    return hidden @ _whole_rows(w_down, axis)


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


def _interleaved(y: Array, h: int) -> Array:
    return y.reshape(*y.shape[:2], h, -1).transpose(0, 3, 1, 2)


def _tile(y: Array, times: int, axis: int) -> Array:
    return jnp.concatenate([y] * times, axis=axis)


def _softmax_of_past(scores: Array) -> Array:
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf))


def _softmax_over_queries(scores: Array) -> Array:
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-2)


def _masked_by_zero(scores: Array) -> Array:
    return jax.nn.softmax(jnp.tril(scores))


def _masked_after_softmax(scores: Array) -> Array:
    return jnp.tril(jax.nn.softmax(scores))


def _attention(
    *,
    enter: Callable[[Array, str], Array] = _enter,
    enter_kv: Callable[[Array, str], Array] = _as_it_is,
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


def _of_device_zero(w: Array, axis: str) -> Array:
    """Whole weights whose gradient counts what device 0 makes of them."""
    return jnp.where(lax.axis_index(axis) == 0, w, lax.stop_gradient(w))


def _averaged(w: Array, axis: str) -> Array:
    fixed = lax.stop_gradient(w)
    return fixed + (w - fixed) / lax.axis_size(axis)


def _all_weights_gathered(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
) -> Array:  # fmt: skip
    n = lax.axis_size(axis)
    h = w_q.shape[1] * n // num_heads
    if num_kv_heads >= n:
        w_k, w_v = (_whole_columns(w, axis) for w in (w_k, w_v))
    q, k, v = (_heads(x @ w, h) for w in (_whole_columns(w_q, axis), w_k, w_v))
    k, v = (jnp.repeat(y, num_heads // num_kv_heads, 1) for y in (k, v))
    gathered = _softmax_of_past(q @ k.mT / math.sqrt(h)) @ v
    return gathered.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ _whole_rows(w_o, axis)


def _few_keys_summed(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
) -> Array:  # fmt: skip
    n = lax.axis_size(axis)
    h, own = w_q.shape[1] * n // num_heads, _enter(x, axis)
    few = num_kv_heads < n
    q, k, v = own @ w_q, (x if few else own) @ w_k, (x if few else own) @ w_v
    if few:
        start = _neighbours(lax.axis_index(axis), num_kv_heads, n) * h
        k, v = (lax.dynamic_slice_in_dim(y, start, h, axis=2) for y in (k, v))
    q, k, v = (_heads(y, h) for y in (q, k, v))
    k, v = (jnp.repeat(y, q.shape[1] // y.shape[1], 1) for y in (k, v))
    gathered = _softmax_of_past(q @ k.mT / math.sqrt(h)) @ v
    return lax.psum(gathered.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ w_o, axis)


PARALLEL_SWIGLU = (
    Mistake("partial_results", _swiglu(total=_as_it_is), "values"),
    Mistake("result_scattered", _swiglu(total=_scattered), "values"),
    Mistake("summed_twice", _swiglu(total=_twice), "values"),
    Mistake("averaged_over_axis", _swiglu(total=lax.pmean), "values"),
    Mistake("columns_summed", _swiglu(columns=lax.psum), "values"),
    Mistake("gate_and_up_swapped", _swiglu(hidden=lambda g, u: _gated(u, g)), "values"),
    Mistake("silu_of_product", _swiglu(hidden=lambda g, u: jax.nn.silu(g * u)), "values"),
    Mistake("gate_by_gelu", _swiglu(hidden=lambda g, u: jax.nn.gelu(g) * u), "values"),
    Mistake("gate_by_sigmoid", _swiglu(hidden=lambda g, u: jax.nn.sigmoid(g) * u), "values"),
    Mistake("gradient_summed_twice", _swiglu(enter=_sum_again), "gradient"),
    Mistake("f_left_implicit", _swiglu(enter=_as_it_is), "communication"),
    Mistake("tensor_weights_gathered", _weights_gathered, "communication"),
    Mistake("hidden_gathered", _hidden_gathered, "communication"),
    Mistake("sum_typed_varying", _swiglu(total=_scattered_and_gathered), "communication"),
    Mistake("partials_gathered", _swiglu(total=_gathered_and_added), "communication"),
)
PARALLEL_ATTENTION = (
    Mistake("partial_results", _attention(total=_as_it_is), "values"),
    Mistake("summed_twice", _attention(total=_twice), "values"),
    Mistake("kv_head_in_turn", _attention(choose=lambda i, kv, n: i % kv), "values"),
    Mistake("kv_head_zero", _attention(choose=lambda i, kv, n: 0), "values"),
    Mistake("kv_head_divided", _attention(choose=lambda i, kv, n: i // kv), "values"),
    Mistake("kv_head_of_index", _attention(choose=lambda i, kv, n: i), "values"),
    Mistake("heads_interleaved", _attention(heads=_interleaved), "values"),
    Mistake("kv_heads_tiled", _attention(repeat=_tile), "values"),
    Mistake("mask_lost", _attention(softmax=jax.nn.softmax), "values"),
    Mistake("masked_by_zero", _attention(softmax=_masked_by_zero), "values"),
    Mistake("masked_after_softmax", _attention(softmax=_masked_after_softmax), "values"),
    Mistake("softmax_over_queries", _attention(softmax=_softmax_over_queries), "values"),
    Mistake("scale_lost", _attention(scale=lambda h, d: 1.0), "values"),
    Mistake("scale_by_d_model", _attention(scale=lambda h, d: math.sqrt(d)), "values"),
    Mistake("scale_without_root", _attention(scale=lambda h, d: h), "values"),
    Mistake("gradient_summed_twice", _attention(enter=_sum_again), "gradient"),
    Mistake("kv_gradient_of_one_device", _attention(enter_kv=_of_device_zero), "gradient"),
    Mistake("kv_gradient_averaged", _attention(enter_kv=_averaged), "gradient"),
    Mistake("f_left_implicit", _attention(enter=_as_it_is), "communication"),
    Mistake("tensor_weights_gathered", _all_weights_gathered, "communication"),
    Mistake("few_keys_summed", _few_keys_summed, "communication"),
    Mistake("heads_not_checked", _attention(check=False), "errors"),
)
