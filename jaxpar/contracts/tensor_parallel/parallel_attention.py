"""Causal attention whose heads are split over the devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import whole_on_all, work_is_split
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    Step,
    among_zeros,
    as_it_is,
    enter,
    gathered,
    with_gradient_divided,
    with_gradient_of_device_zero,
)
from jaxpar.contracts.tensor_parallel.common import (
    ONE_ALL_REDUCE,
    all_reduced_twice,
    enter_and_sum_again,
)
from jaxpar.parallel import tensor


def _attended(
    case: Case, x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array
) -> list[Expected]:
    heads, kv_heads = case.kwargs["num_heads"], case.kwargs["num_kv_heads"]
    (b, t, _), h = x.shape, w_q.shape[1] // heads
    q, k, v = ((x @ w).reshape(b, t, -1, h) for w in (w_q, w_k, w_v))
    k, v = (jnp.repeat(y, heads // kv_heads, axis=2) for y in (k, v))
    scores = jnp.einsum("btah,bsah->bats", q, k) / math.sqrt(h)
    past = jnp.arange(t)[:, None] >= jnp.arange(t)[None]
    weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    y = jnp.einsum("bats,bsah->btah", weights, v).reshape(b, t, heads * h)
    return whole_on_all(case, y @ w_o)


def _case(
    mesh: str,
    axis: str,
    heads: int,
    kv_heads: int,
    *,
    b: int = 2,
    t: int = 4,
    d: int = 6,
    h: int = 2,
    dtype: str = "float32",
) -> Case:
    """w_k and w_v are whole where kv heads are fewer than n."""
    few = kv_heads < parse_mesh(mesh)[axis]
    kv = ArraySpec((d, kv_heads * h), "d k" if few else f"d k_{axis}", dtype)
    args = {
        "x": ArraySpec((b, t, d), "b t d", dtype),
        "w_q": ArraySpec((d, heads * h), f"d q_{axis}", dtype),
        "w_k": kv,
        "w_v": kv,
        "w_o": ArraySpec((heads * h, d), f"q_{axis} d", dtype),
    }
    return Case(mesh, args, {"num_heads": heads, "num_kv_heads": kv_heads, "axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp", "tpx"))
    t, d, local_heads = pick(rng, (8, 9, 10)), pick(rng, (5, 6, 7)), pick(rng, (5, 7))
    few = _case(f"{axis}=10", axis, 10 * local_heads, 5, b=4, t=t, d=d, h=2, dtype="bfloat16")
    alone = mesh_of(rng, **{axis: 1, other: 2})
    # Some of so many scores of so wide rows are above 88, of which the exponential overflows, and
    # some of the first tokens' are below -100, which is no mask.
    return few, _case(alone, axis, 84, 28, b=1, t=t - 2, d=64, h=5)


CONTRACT = Contract(
    kind="program",
    task="return causal attention of x; this device has its part of the heads",
    reference=tensor.parallel_attention,
    oracle=_attended,
    cases=(
        _case("tp=2", "tp", 8, 4, b=2, t=4, d=12, h=3),
        _case("dp=2,tpx=6", "tpx", 12, 2, b=3, t=5, d=10, h=4),
        _case("tp=3", "tp", 3, 3, b=2, t=5, d=9, h=4),
        _case("dp=2,tpx=3", "tpx", 6, 1, b=2, t=7, d=8, h=3),
    ),
    draw=_drawn,
    gradient=("x", "w_q", "w_k", "w_v", "w_o"),
    communication=Communication(
        "one all-reduce of x's size forward, one backward; where w_k and w_v are whole, one of "
        "each backward, too",
        forward=ONE_ALL_REDUCE,
    ),
    flops=work_is_split(1.3),  # where kv heads are few, a device may compute keys of all of them
    errors=(
        BadCall(_case("tp=4", "tp", 6, 6), "n does not divide num_heads"),
        BadCall(_case("tp=4", "tp", 12, 6), "num_kv_heads is above n and n does not divide it"),
        BadCall(_case("tp=6", "tp", 12, 4), "num_kv_heads is below n and does not divide it"),
    ),
    # Scores go up to dozens; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "Each head is computed alone, so device i computes its own: (x @ w_q) is [b, t, q], and "
        "its dim q is head after head, h numbers each.",
        "With few kv heads, cut yours out of the whole w_k and w_v: columns head*h to (head+1)*h "
        "with head = lax.axis_index(axis) * num_kv_heads // n, by lax.dynamic_slice_in_dim.",
        "jnp.repeat repeats each kv head for its query heads. Then come the mask, softmax, the "
        "product with w_o, and one lax.psum. Cast x with lax.pcast once, before its three uses.",
    ),
    minimal="Heads never meet before w_o, and its product is a sum over them: one all-reduce. A "
    "matrix that all devices hold and use has a gradient on each of them, and these gradients must "
    "be summed.",
    harder="Let each device hold only the kv head that it uses: w_k is [d, h], and equal within a "
    "group of n/num_kv_heads devices. What must be sent for its gradient then?",
)


def _split_heads(y: Array, h: int) -> Array:
    """[b, t, heads*h] to [b, heads, t, h]."""
    return y.reshape(*y.shape[:2], -1, h).swapaxes(1, 2)


def _joined_heads(y: Array) -> Array:
    """[b, heads, t, h] to [b, t, heads*h]."""
    b, heads, t, h = y.shape
    return y.swapaxes(1, 2).reshape(b, t, heads * h)


def _softmax_of_past(scores: Array) -> Array:
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf))


def _kv_head_of_neighbours(i: Array, kv_heads: int, n: int) -> Array:
    return i * kv_heads // n


def _root_of_head_size(h: int, d: int) -> float:
    return math.sqrt(h)


def _attention(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    *,
    num_heads: int,
    num_kv_heads: int,
    axis: str,
    enter: Step = enter,
    enter_kv: Step = as_it_is,
    kv_head: Callable[[Array, int, int], Any] = _kv_head_of_neighbours,
    split_heads: Callable[[Array, int], Array] = _split_heads,
    repeat: Callable[[Array, int, int], Array] = jnp.repeat,
    divisor: Callable[[int, int], float] = _root_of_head_size,
    softmax: Callable[[Array], Array] = _softmax_of_past,
    total: Step = lax.psum,
    check: bool = True,
) -> Array:
    """Attention, with one step done in another way."""
    n = lax.axis_size(axis)
    if check and (num_heads % n or (num_kv_heads % n and n % num_kv_heads)):
        raise ValueError("heads and devices do not fit")
    x, h = enter(x, axis), w_q.shape[1] * n // num_heads
    if num_kv_heads < n:  # w_k and w_v are whole: this device uses the columns of one head
        start = kv_head(lax.axis_index(axis), num_kv_heads, n) * h
        w_k, w_v = (enter_kv(w, axis) for w in (w_k, w_v))
        w_k, w_v = (lax.dynamic_slice_in_dim(w, start, h, axis=1) for w in (w_k, w_v))
    q, k, v = (split_heads(x @ w, h) for w in (w_q, w_k, w_v))
    k, v = (repeat(y, q.shape[1] // y.shape[1], 1) for y in (k, v))
    attended = softmax(q @ k.mT / divisor(h, x.shape[-1])) @ v
    return total(_joined_heads(attended) @ w_o, axis)


@wrong("values")
def partial_results(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Each device returns only its part of a sum; add the parts with lax.psum, after the last
    product."""
    return _attention(x, *weights, **sizes, total=as_it_is)


@wrong("values")
def summed_twice(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The result is summed twice, and n times too large: after one lax.psum it is equal on all
    devices."""
    return _attention(x, *weights, **sizes, total=all_reduced_twice)


@wrong("values")
def kv_head_in_turn(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Device i uses kv head i % num_kv_heads, but neighbouring devices use the same kv head: take
    head i * num_kv_heads // n."""
    return _attention(x, *weights, **sizes, kv_head=lambda i, kv_heads, n: i % kv_heads)


@wrong("values")
def kv_head_zero(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Every device uses kv head 0; device i needs head i * num_kv_heads // n."""
    return _attention(x, *weights, **sizes, kv_head=lambda i, kv_heads, n: 0)


@wrong("values")
def kv_head_divided(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Device i uses kv head i // num_kv_heads, but the number of neighbours that use the same head
    is n // num_kv_heads, not num_kv_heads: take head i * num_kv_heads // n."""
    return _attention(x, *weights, **sizes, kv_head=lambda i, kv_heads, n: i // kv_heads)


@wrong("values")
def kv_head_of_index(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Device i uses kv head i, and lax.dynamic_slice clamps an index that is too large to the last
    head; device i needs head i * num_kv_heads // n."""
    return _attention(x, *weights, **sizes, kv_head=lambda i, kv_heads, n: i)


@wrong("values")
def heads_interleaved(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The columns are split as [h, heads]; they are head after head, so reshape them to [heads,
    h]."""

    def split_heads(y: Array, h: int) -> Array:
        return y.reshape(*y.shape[:2], h, -1).transpose(0, 3, 1, 2)

    return _attention(x, *weights, **sizes, split_heads=split_heads)


@wrong("values")
def kv_heads_tiled(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The kv heads are repeated as a whole, 0 1 0 1, but the query heads of one kv head are
    neighbours, 0 0 1 1: use jnp.repeat, not jnp.tile."""

    def tile(y: Array, times: int, axis: int) -> Array:
        return jnp.concatenate([y] * times, axis=axis)

    return _attention(x, *weights, **sizes, repeat=tile)


@wrong("values")
def mask_lost(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Positions see those after them; set their scores to -inf before softmax."""
    return _attention(x, *weights, **sizes, softmax=jax.nn.softmax)


@wrong("values")
def masked_by_zero(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The scores of later positions are set to 0, and softmax gives them weight all the same; set
    them to -inf."""
    return _attention(x, *weights, **sizes, softmax=lambda scores: jax.nn.softmax(jnp.tril(scores)))


@wrong("values")
def masked_after_softmax(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Weights are set to 0 after softmax, so that the others do not add up to 1; set scores to -inf
    before it."""
    return _attention(x, *weights, **sizes, softmax=lambda scores: jnp.tril(jax.nn.softmax(scores)))


@wrong("gradient")
def softmax_overflows(x: Array, *weights: Array, **sizes: Any) -> Array:
    """exp of a score above 88 is infinite in float32, and the result NaN; the gradient of the
    division overflows from half of that on. Use jax.nn.softmax, which subtracts the largest score
    first."""

    def softmax(scores: Array) -> Array:
        past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
        exponentials = jnp.exp(jnp.where(past, scores, -jnp.inf))
        return exponentials / exponentials.sum(-1, keepdims=True)

    return _attention(x, *weights, **sizes, softmax=softmax)


@wrong("values")
def softmax_over_queries(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Softmax is taken over the queries; the weights of one query, over the keys, must add up to
    1."""

    def softmax(scores: Array) -> Array:
        past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
        return jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-2)

    return _attention(x, *weights, **sizes, softmax=softmax)


@wrong("values")
def scale_lost(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The scores are not divided by sqrt(h)."""
    return _attention(x, *weights, **sizes, divisor=lambda h, d: 1.0)


@wrong("values")
def scale_by_d_model(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The scores are divided by sqrt(d); divide by sqrt(h), where h is the size of a head."""
    return _attention(x, *weights, **sizes, divisor=lambda h, d: math.sqrt(d))


@wrong("values")
def scale_without_root(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The scores are divided by h; divide by its square root."""
    return _attention(x, *weights, **sizes, divisor=lambda h, d: h)


@wrong("gradient")
def gradient_summed_twice(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The gradient of x is summed twice, and n times too large: JAX sums it where x becomes
    varying, so a function with lax.psum in its backward pass adds a second sum. lax.pcast(x, axis,
    to='varying') is Megatron's f."""
    return _attention(x, *weights, **sizes, enter=enter_and_sum_again)


@wrong("gradient")
def kv_gradient_of_one_device(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The gradients of whole w_k and w_v are those of one device; all devices that use a matrix
    must add theirs."""
    return _attention(x, *weights, **sizes, enter_kv=with_gradient_of_device_zero)


@wrong("gradient")
def kv_gradient_averaged(x: Array, *weights: Array, **sizes: Any) -> Array:
    """The gradients of whole w_k and w_v are averaged over the devices; each device has a part of a
    sum."""
    return _attention(x, *weights, **sizes, enter_kv=with_gradient_divided)


@wrong("communication")
def f_left_implicit(x: Array, *weights: Array, **sizes: Any) -> Array:
    """JAX makes x varying at each of its uses, and each sends an all-reduce of its own in the
    backward pass; call lax.pcast(x, axis, to='varying') once, before the first use."""
    return _attention(x, *weights, **sizes, enter=as_it_is)


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
        w_k, w_v = gathered((w_k, w_v), axis, 1)
    q, k, v = (_split_heads(x @ w, h) for w in (gathered(w_q, axis, 1), w_k, w_v))
    k, v = (jnp.repeat(y, num_heads // num_kv_heads, 1) for y in (k, v))
    return _joined_heads(_softmax_of_past(q @ k.mT / math.sqrt(h)) @ v) @ gathered(w_o, axis)


@wrong("communication")
def few_keys_summed(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
) -> Array:  # fmt: skip
    """Every device computes the keys and values of all heads, and the gradients of these are
    summed, b*t*k elements each; cut your head's columns out of w_k and w_v first: then the
    gradients of the weights are summed, d*k elements."""
    n = lax.axis_size(axis)
    h, few = w_q.shape[1] * n // num_heads, num_kv_heads < n
    own_x = enter(x, axis)
    q, k, v = own_x @ w_q, *((x if few else own_x) @ w for w in (w_k, w_v))
    if few:
        start = _kv_head_of_neighbours(lax.axis_index(axis), num_kv_heads, n) * h
        k, v = (lax.dynamic_slice_in_dim(y, start, h, axis=2) for y in (k, v))
    q, k, v = (_split_heads(y, h) for y in (q, k, v))
    k, v = (jnp.repeat(y, q.shape[1] // y.shape[1], 1) for y in (k, v))
    attended = _softmax_of_past(q @ k.mT / math.sqrt(h)) @ v
    return lax.psum(_joined_heads(attended) @ w_o, axis)


@wrong("flops")
def all_heads_among_zeros(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
) -> Array:  # fmt: skip
    """Every device computes all heads, with zeros in place of the columns of the others; split what
    x makes into your own heads only."""
    n = lax.axis_size(axis)
    h = w_q.shape[1] * n // num_heads
    w_q, w_o = among_zeros(w_q, axis, 1), among_zeros(w_o, axis)
    if num_kv_heads >= n:
        w_k, w_v = (among_zeros(w, axis, 1) for w in (w_k, w_v))
    x = enter(x, axis)
    q, k, v = (_split_heads(x @ w, h) for w in (w_q, w_k, w_v))
    k, v = (jnp.repeat(y, num_heads // num_kv_heads, 1) for y in (k, v))
    return lax.psum(_joined_heads(_softmax_of_past(q @ k.mT / math.sqrt(h)) @ v) @ w_o, axis)


@wrong("errors")
def heads_not_checked(x: Array, *weights: Array, **sizes: Any) -> Array:
    """Sizes that do not fit are not refused; raise ValueError if n does not divide num_heads, or if
    neither of num_kv_heads and n divides the other."""
    return _attention(x, *weights, **sizes, check=False)
