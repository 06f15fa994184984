"""Context parallelism: the positions of a sequence are split over the devices, in attention too.

Each device has the queries, the keys and the values of its own positions, and all its queries need
all keys before them. The techniques differ in what travels. In the sizes of `Comm:`, k is also the
size of v.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpar.checks import check_one_of
from jaxpar.flash import (
    Kept,
    Part,
    Pattern,
    attend,
    attend_by_tiles,
    attend_with_pattern,
    causal,
    flash_attention,
    gradients_by_tiles,
    merge,
    named,
    square,
    usual_tile,
)
from jaxpar.mesh import divide, vary, vary_alike
from jaxpar.nn import check_kv_heads

LAYOUTS = ("contiguous", "zigzag", "striped")
# The log-sum-exp of no scores. It is finite, so that a difference of two of them is no NaN.
_NOTHING = -1e30


def positions(layout: str, t: int, *, axis: str) -> Int[Array, " t"]:
    """The positions of this device's t tokens.

    "contiguous" gives device i the i-th of n parts; under a causal mask the last device has nearly
    twice the mean work. "zigzag" cuts the sequence into 2n chunks, and gives device i chunks i and
    2n-1-i, which together see as much as those of every other device. "striped" gives it every n-th
    position from the i-th on. In all three, the t positions are in ascending order.

    Comm:
        forward: nothing
        backward: nothing
    Memory: t
    Source: zhuzilin/ring-flash-attention, issue 2, and Llama Team 2024, section 3.3.2 (zigzag);
        Brandon et al. 2023 (Striped Attention), section 3

    Raises:
        ValueError: the layout is unknown, or "zigzag" and t is odd.
    """
    return _positions_of(lax.axis_index(axis), layout, t, lax.axis_size(axis))


def check_exchange(where: str, heads: int, kv_heads: int, axis: str, n: int) -> None:
    """Raises a ValueError that begins with `where` if n devices cannot exchange these heads.

    Source: Jacobs et al. 2023 (DeepSpeed Ulysses), section 3
    """
    divide(where, "a", heads, axis, n)
    if kv_heads % n and n % kv_heads:
        raise ValueError(
            f"{where}: {kv_heads} kv heads on mesh axis {axis} (size {n}); one of them must divide "
            f"the other; use {math.gcd(kv_heads, n)} or {kv_heads} devices, or a ring"
        )


def attention_over_shards(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k s_cp h"],
    v: Float[Array, "b k s_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t h"]:
    """Attention of queries that all devices have, to keys that are split over the devices.

    Nothing is masked. Each of the k kv heads serves a/k consecutive query heads. q is equal on all
    devices, and k and v are this device's parts of the keys and values. Each device attends to its
    own keys (`jaxpar.flash.attend`), and the parts of all devices are merged by all-reduces, in
    float32 or in float64 if the arguments are. The result is equal on all devices, and has the
    dtype of q.

    Math: y = softmax(q @ [k_1, ..., k_n].T / sqrt(h)) @ [v_1, ..., v_n]
    Comm:
        forward: all_reduce(axis) q+2*q/h
        backward: all_reduce(axis) q
    Memory: q
    Source: Shyam et al. 2024 (Tree Attention), section 5

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    # Without the cast, the backward pass would sum a gradient over the devices for each use of q.
    o, lse = attend(vary(q, (axis,)), k, v)
    top = lax.pmax(lax.stop_gradient(lse), axis)
    weight = jnp.exp(lse - top)[..., None]
    total, weights = lax.psum((o * weight, weight), axis)
    return (total / weights).astype(q.dtype)


def gather_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    documents: Int[Array, "b s"] | None = None,
    *,
    axis: str,
    layout: str = "zigzag",
) -> Float[Array, "b a t h"]:
    """Causal attention after an all-gather of all keys and values.

    `layout` says which positions this device has (`positions`). With few kv heads, keys and values
    are small compared with what is computed with them. `documents` has, for each of all n*t
    positions in their order, the number of its document; a query sees its own document only. Under
    "zigzag" every device computes (2n+1)/4n of all scores, and under other layouts all of them.

    Math: y = softmax(q @ [k_1, ..., k_n].T / sqrt(h), over the keys that the query sees)
        @ [v_1, ..., v_n]
    Comm:
        forward: all_gather(axis) 2*k
        backward: reduce_scatter(axis) 2*k*n
    Memory: q
    Source: Llama Team 2024 (The Llama 3 Herd of Models), section 3.3.2

    Raises:
        ValueError: the layout is unknown, "zigzag" and t is odd, or the kv heads do not divide the
            heads.
    """
    q, k, v = _checked("gather_attention", q, k, v)
    t = q.shape[2]
    own, every = positions(layout, t, axis=axis), _gathered_positions(layout, t, axis)
    both = None if documents is None else (documents[:, own], documents[:, every])
    gather = partial(lax.all_gather, axis_name=axis, axis=2, tiled=True)
    pattern_of = partial(_gathered, layout=layout, t=t, axis=axis)
    return attend_with_pattern(pattern_of, q, gather(k), gather(v), both)


def ring_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention while keys and values travel round a ring.

    Device i has the i-th of n contiguous parts of the positions. Each of the k kv heads serves a/k
    consecutive query heads. In each round every device sends keys and values on to the next device,
    and merges attention to those that have arrived into its result (`jaxpar.flash.attend` and
    `merge`). Beside its own it holds the keys and values of one other device, and those that arrive
    meanwhile, and never more. In the backward pass they travel once more, and their gradients
    travel with them, in float32 at least. Softmax and all sums are in float32, or in float64 if the
    arguments are. The result has the dtype of q, and each gradient that of its argument.

    Math: y = merge over j of attend(q, k_j, v_j), where a query sees the keys up to its own
        position
    Comm:
        forward: permute(axis) 2*(n-1)*k
        backward: permute(axis) 4*(n-1)*k
    Memory: q
    Source: Liu, Zaharia and Abbeel 2023 (Ring Attention), section 3

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    return _ring(_CONTIGUOUS, axis, *_checked("ring_attention", q, k, v))


def zigzag_ring_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention round a ring in which all devices have equal work.

    The sequence is cut into 2n chunks, and device i has chunks i and 2n-1-i, one after the other.
    Each of the k kv heads serves a/k consecutive query heads. The scores of a device's two chunks
    of queries with the two chunks of keys of another device are four quarters, of which two are
    needed: the later queries see the earlier keys, and either the earlier queries see these, too,
    or the later queries see the later keys. Only these two are computed. Of the scores with its own
    keys, a device computes three quarters. That makes (2n+1)/4n of all scores on every device. In
    all else this is as `ring_attention`.

    Math: y = merge over j of attend(q, k_j, v_j), where a query sees the keys up to its own
        position
    Comm:
        forward: permute(axis) 2*(n-1)*k
        backward: permute(axis) 4*(n-1)*k
    Memory: q
    Source: zhuzilin/ring-flash-attention, issue 2; Llama Team 2024, section 3.3.2

    Raises:
        ValueError: the kv heads do not divide the heads, or t_cp is odd.
    """
    _half("zigzag_ring_attention", q.shape[2])
    return _ring(_ZIGZAG, axis, *_checked("zigzag_ring_attention", q, k, v))


def striped_ring_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention round a ring, where device i has every n-th position from the i-th on.

    Then every block of scores is a triangle. If the keys come from a device after this one, the
    diagonal is masked, too. In all else this is as `ring_attention`.

    Math: y = merge over j of attend(q, k_j, v_j), where a query sees the keys up to its own
        position
    Comm:
        forward: permute(axis) 2*(n-1)*k
        backward: permute(axis) 4*(n-1)*k
    Memory: q
    Source: Brandon et al. 2023 (Striped Attention), section 3

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    return _ring(_STRIPED, axis, *_checked("striped_ring_attention", q, k, v))


def ulysses_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention where each device computes some heads for all positions.

    Device i has the i-th of n contiguous parts of the positions. Each of the k kv heads serves a/k
    consecutive query heads. All-to-alls of q, k and v exchange positions for heads: device i gets
    the i-th of n equal parts of the heads, for all positions. After attention, an all-to-all of the
    result does the opposite. If there are fewer kv heads than devices, each of them is sent to the
    n/k devices that compute query heads of it, so that `copies`, the larger of 1 and n/k, of each
    are sent.

    Math: y = causal attention of [q_1, ..., q_n], [k_1, ..., k_n] and [v_1, ..., v_n], by heads
    Comm:
        forward: all_to_all(axis) 2*q+2*copies*k
        backward: all_to_all(axis) 2*q+2*copies*k
    Memory: q
    Source: Jacobs et al. 2023 (DeepSpeed Ulysses), section 3

    Raises:
        ValueError: n does not divide the heads, the kv heads do not divide them, or of n and the kv
            heads neither divides the other.
    """
    q, k, v = _checked("ulysses_attention", q, k, v)
    to_heads, to_positions = _exchanges("ulysses_attention", q.shape[1], k.shape[1], axis)
    q, k, v = to_heads(q, k, v)
    return to_positions(flash_attention(q, k, v, tile=usual_tile(q.shape[2])))


def hybrid_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    *,
    ring_axis: str,
    heads_axis: str,
) -> Float[Array, "b a t h"]:
    """Causal attention over two axes: the heads are exchanged over one, and a ring is on the other.

    The number of heads limits only the one axis, which belongs on the fastest links. With u devices
    on `heads_axis`, device j there has part j of u of the device's positions in a zigzag over
    `ring_axis`: of positions("zigzag", u*t, axis=ring_axis). `copies` is the larger of 1 and u/k.

    Math: y = softmax(q @ k.T / sqrt(h), over the keys up to the query's position) @ v
    Comm:
        forward: all_to_all(heads_axis) 2*q+2*copies*k + permute(ring_axis) 2*(n-1)*copies*k
        backward: all_to_all(heads_axis) 2*q+2*copies*k + permute(ring_axis) 4*(n-1)*copies*k
    Memory: q
    Source: Fang and Zhao 2024 (USP), section 3

    Raises:
        ValueError: as `zigzag_ring_attention` and `ulysses_attention` do.
    """
    q, k, v = _checked("hybrid_attention", q, k, v)
    to_heads, to_positions = _exchanges("hybrid_attention", q.shape[1], k.shape[1], heads_axis)
    return to_positions(zigzag_ring_attention(*to_heads(q, k, v), axis=ring_axis))


class _Blocks(NamedTuple):
    """What a ring computes with the keys and values of one device.

    Attributes:
        own: the pattern of the device's own block, of t positions.
        arrived: (q, k, v, source, axis) -> the part of those that arrived from device `source`.
        gradients: (q, k, v, kept, source, axis) -> the gradients through that block.
    """

    own: Callable[[int], Pattern]
    arrived: Callable[..., Part]
    gradients: Callable[..., tuple[Array, ...]]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ring(blocks: _Blocks, axis: str, q: Array, k: Array, v: Array) -> Array:
    return _ring_forward(blocks, axis, q, k, v)[0]


def _ring_forward(
    blocks: _Blocks, axis: str, q: Array, k: Array, v: Array
) -> tuple[Array, tuple[Array, ...]]:
    """In each round the keys and values that arrived are sent on, while they are used."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def visit(r: Array, state: tuple[Any, Part]) -> tuple[Any, Part]:
        kv, done = state
        return _hop(kv, axis), merge(done, blocks.arrived(q, *kv, (i - r) % n, axis))

    part = attend_by_tiles(q, k, v, blocks.own(q.shape[2]))
    if n > 1:
        kv, part = lax.fori_loop(1, n - 1, visit, (_hop((k, v), axis), part))
        part = merge(part, blocks.arrived(q, *kv, (i + 1) % n, axis))
    o, lse = named(q, part)
    return o, (q, k, v, o, lse)


def _ring_backward(
    blocks: _Blocks, axis: str, residuals: tuple[Array, ...], do: Array
) -> tuple[Array, ...]:
    """Keys and values make n-1 hops again, and so do their gradients, which end at home.

    The gradients for a block are zero until the next device has seen it, so they set out one hop
    later; a device adds its own block at the end, when they are back. No hop waits for what its
    round computes.
    """
    q, k, v, o, lse = residuals
    n, i, kept = lax.axis_size(axis), lax.axis_index(axis), Kept.of(do, o, lse)

    def through(r: Array | int, kv: Any) -> tuple[Array, ...]:
        return blocks.gradients(q, *kv, kept, (i - r) % n, axis)

    def visit(r: Array, state: tuple) -> tuple:
        kv, (dq, *dkv) = state
        return _hop(kv, axis), _added((dq, *_hop(dkv, axis)), through(r, kv))

    gradients = gradients_by_tiles(q, k, v, kept, blocks.own(q.shape[2]))
    if n > 1:
        kv = _hop((k, v), axis)
        found = through(1, kv)
        if n > 2:
            kv, (dq, *dkv) = lax.fori_loop(2, n - 1, visit, (_hop(kv, axis), found))
            found = _added((dq, *_hop(dkv, axis)), through(n - 1, kv))
        dq, *dkv = found
        gradients = _added(gradients, (dq, *_hop(dkv, axis)))
    return tuple(dx.astype(x.dtype) for dx, x in zip(gradients, (q, k, v), strict=True))


_ring.defvjp(_ring_forward, _ring_backward)


def _all_or_nothing(q: Array, k: Array, v: Array, source: Array, axis: str) -> Part:
    """Keys of the devices before this one count, those of the others do not."""
    part = attend_by_tiles(q, k, v, _every_tile(q))
    return _where(source < lax.axis_index(axis), part)


def _all_or_nothing_gradients(
    q: Array, k: Array, v: Array, kept: Kept, source: Array, axis: str
) -> tuple[Array, Array, Array]:
    # With this log-sum-exp, the weight of every key is 0.
    before = source < lax.axis_index(axis)
    kept = kept._replace(lse=jnp.where(before, kept.lse, -_NOTHING))
    return gradients_by_tiles(q, k, v, kept, _every_tile(q))


def _striped(q: Array, source: Array, axis: str) -> Pattern:
    """A query sees keys up to its own place, or before it if they are of a later device."""
    t = q.shape[2]
    pattern = causal(t=t, size=usual_tile(t))
    order = jnp.arange(t)
    later = (source > lax.axis_index(axis)).astype(order.dtype)
    return replace(pattern, positions=(order, order + later))


def _halves(x: Array) -> list[Array]:
    return jnp.split(x, 2, axis=2)


def _two_half_blocks(q: Array, k: Array, v: Array, source: Array, axis: str) -> Part:
    (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
    before = source < lax.axis_index(axis)
    choose, every = partial(jnp.where, before), _every_tile(q_low)
    always = attend_by_tiles(q_high, k_low, v_low, every)
    inputs = choose(q_low, q_high), choose(k_low, k_high), choose(v_low, v_high)
    other = attend_by_tiles(*inputs, every)
    low, high = _where(before, other), merge(always, _where(~before, other))
    return _concatenated(low, high)


def _two_half_blocks_gradients(
    q: Array, k: Array, v: Array, kept: Kept, source: Array, axis: str
) -> tuple[Array, ...]:
    (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
    kept_low, kept_high = (Kept(*x) for x in zip(*map(_halves, kept), strict=True))
    before = source < lax.axis_index(axis)
    choose, every = partial(jnp.where, before), _every_tile(q_low)
    always = gradients_by_tiles(q_high, k_low, v_low, kept_high, every)
    low, high = (q_low, k_low, v_low, kept_low), (q_high, k_high, v_high, kept_high)
    q, k, v, kept = jax.tree.map(choose, low, high)
    other = gradients_by_tiles(q, k, v, kept, every)
    dq_low, *dkv_low = (jnp.where(before, x, 0) for x in other)
    dq_high, *dkv_high = (jnp.where(before, 0, x) for x in other)
    dq, *dkv = always
    # The half block that always counts is of the later queries and the earlier keys.
    halves = (dq_low, dq + dq_high), *zip(map(jnp.add, dkv, dkv_low), dkv_high, strict=True)
    return tuple(jnp.concatenate(pair, axis=2) for pair in halves)


_CONTIGUOUS = _Blocks(
    lambda t: causal(t=t, size=usual_tile(t)), _all_or_nothing, _all_or_nothing_gradients
)
_STRIPED = _Blocks(
    lambda t: causal(t=t, size=usual_tile(t)),
    lambda q, k, v, source, axis: attend_by_tiles(q, k, v, _striped(q, source, axis)),
    lambda q, k, v, kept, source, axis: gradients_by_tiles(
        q, k, v, kept, _striped(q, source, axis)
    ),
)
# Both chunks are ascending, so the own block is causal by places; its tiles do not cross a chunk.
_ZIGZAG = _Blocks(
    lambda t: causal(t=t, size=usual_tile(t // 2)), _two_half_blocks, _two_half_blocks_gradients
)


def _positions_of(i: int | Array, layout: str, t: int, n: int) -> Array:
    """The positions of device i of n."""
    check_one_of("positions", "layout", layout, LAYOUTS)
    place = jnp.arange(t)
    if layout == "contiguous":
        return i * t + place
    if layout == "striped":
        return i + n * place
    chunk = _half("positions", t)
    return place + jnp.where(place < chunk, i * chunk, (2 * n - 2 - i) * chunk)


def _gathered_positions(layout: str, t: int, axis: str) -> Array:
    """The positions of all devices, each of which has t, in the order of the devices."""
    n = lax.axis_size(axis)
    return jnp.concatenate([_positions_of(j, layout, t, n) for j in range(n)])


def _gathered(documents: tuple[Array, Array] | None, *, layout: str, t: int, axis: str) -> Pattern:
    """What the t queries of this device see of the keys of all, in the order of the devices.

    Under a zigzag, these are as many tiles on every device. Otherwise all tiles are computed.
    """
    n = lax.axis_size(axis)
    own, every = positions(layout, t, axis=axis), _gathered_positions(layout, t, axis)
    if layout == "zigzag":
        size = usual_tile(t // 2)
        rows, columns = _folded(t // 2 // size, axis)
    else:
        size = usual_tile(t)
        rows, columns = np.indices((t // size, n * t // size)).reshape(2, -1)
    return Pattern(size, rows, columns, (own, every), documents)


def _folded(m: int, axis: str) -> tuple[Array, Array]:
    """The rows and the columns of tiles that this device computes under a zigzag, over all keys.

    A chunk has m tiles. Row r of the earlier chunk sees i*m + r + 1 columns, the same row of the
    later chunk (2n-1-i)*m + r + 1: together as many on every device.
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    counts = [(2 * n - 1) * m + 2 * (r + 1) for r in range(m)]
    row = jnp.asarray([r for r, count in enumerate(counts) for _ in range(count)])
    step = jnp.asarray([s for count in counts for s in range(count)])
    earlier = i * m + row + 1
    low = step < earlier
    column = jnp.where(low, step, step - earlier)
    # Of 2n chunks in order, device j has gathered chunk j at 2j and chunk 2n-1-j at 2j+1.
    chunk = column // m
    gathered = jnp.where(chunk < n, 2 * chunk, 2 * (2 * n - 1 - chunk) + 1)
    return jnp.where(low, row, m + row), gathered * m + column % m


def _every_tile(q: Array) -> Pattern:
    t = q.shape[2]
    return square(t, usual_tile(t))


def _where(counts: Array, part: Part) -> Part:
    """The part, without weight where it does not count."""
    o, lse = part
    return o, jnp.where(counts, lse, _NOTHING)


def _concatenated(low: Part, high: Part) -> tuple[Array, Array]:
    (o_low, lse_low), (o_high, lse_high) = low, high
    return jnp.concatenate([o_low, o_high], 2), jnp.concatenate([lse_low, lse_high], 2)


def _exchanges(where: str, heads: int, kv_heads: int, axis: str) -> tuple[Callable, Callable]:
    """The functions that exchange positions for heads, of q, k and v, and back, of the result."""
    n = lax.axis_size(axis)
    check_exchange(where, heads, kv_heads, axis, n)
    copies = max(1, n // kv_heads)
    exchange = partial(lax.all_to_all, axis_name=axis, split_axis=1, concat_axis=2, tiled=True)

    def to_heads(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
        k, v = (jnp.repeat(x, copies, axis=1) for x in (k, v))
        return exchange(q), exchange(k), exchange(v)

    return to_heads, partial(exchange, split_axis=2, concat_axis=1)


def _added(one: tuple[Array, ...], two: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(map(jnp.add, one, two))


def _hop(tree: Any, axis: str) -> Any:
    """What arrives when every device sends its arrays to the next one."""
    n = lax.axis_size(axis)
    return jax.tree.map(lambda x: lax.ppermute(x, axis, [(j, (j + 1) % n) for j in range(n)]), tree)


def _half(where: str, t: int) -> int:
    """The positions of a chunk, of which each device has two."""
    if t % 2:
        raise ValueError(
            f"{where}: {t} positions on a device; a zigzag gives each device two chunks of equal "
            f"length, so 2 must divide them; pad the sequence so that a device has {t + 1}, or use "
            "a contiguous layout"
        )
    return t // 2


def _checked(where: str, q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """The arguments, typed as varying over the same axes."""
    check_kv_heads(where, q.shape[1], k.shape[1])
    return vary_alike(q, k, v)
