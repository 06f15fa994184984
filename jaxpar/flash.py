"""Attention on one device without a matrix of all scores: by parts of the keys, and by tiles.

Softmax can be taken part by part: of the keys in a part one keeps the result, and the log of the
sum of the exponentials of their scores. `attend` computes both for some keys, and `merge` joins two
such results, in any order. Every function here and in `jaxpar.parallel.context` does this.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Bool, Float, Int

from jaxpar.mesh import vary_alike
from jaxpar.nn import check_kv_heads

Part = tuple[Float[Array, "b a t h"], Float[Array, "b a t"]]
"""Attention to some of the keys, in float32 at least, and the log-sum-exp of their scores."""

# Names by which a policy of `jax.checkpoint` keeps what the backward pass needs of a forward one:
# with both of them attention is not computed again, and with a ring nothing is sent again.
KEPT = ("flash_attended", "flash_lse")
# On CPUs, twice this takes 1.3 times as long, and 8 times this takes 5 times as long.
USUAL_TILE = 128
# A score that weighs nothing. It is finite, so that a query without keys gives no NaN.
_NEVER = -1e30


def attend(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k s h"],
    v: Float[Array, "b k s h"],
    mask: Bool[Array, "#b t s"] | None = None,
) -> Part:
    """Attention to these keys alone, and the log-sum-exp of each query's scores.

    Each of the k kv heads serves a/k consecutive query heads. `mask` says which queries see which
    keys; without it all queries see all keys. Where a query sees none, its log-sum-exp is about
    -1e30, so that `merge` gives this part no weight.

    Math: lse = log(sum_s exp(q @ k_s / sqrt(h))), o = sum_s exp(q @ k_s / sqrt(h) - lse) * v_s
    Comm:
        forward: nothing
        backward: nothing
    Memory: q+q/h
    Source: Milakov and Gimelshein 2018 (Online normalizer calculation for softmax), section 3
    """
    q, k, v = _checked("attend", q, k, v)
    b, kv_heads, _, h = k.shape
    scores = _scores(_scaled(q).reshape(b, kv_heads, -1, h), k, mask)
    lse = jax.nn.logsumexp(scores, axis=-1)
    o = _product(jnp.exp(scores - lse[..., None]).astype(v.dtype), v)
    return o.reshape(q.shape), lse.reshape(q.shape[:-1])


def merge(one: Part, two: Part) -> Part:
    """Attention to the keys of both parts.

    Math: lse = log(exp(lse_1) + exp(lse_2)), o = exp(lse_1 - lse) * o_1 + exp(lse_2 - lse) * o_2
    Comm:
        forward: nothing
        backward: nothing
    Memory: one
    Source: Milakov and Gimelshein 2018 (Online normalizer calculation for softmax), section 3.1
    """
    (o_one, lse_one), (o_two, lse_two) = one, two
    lse = jnp.logaddexp(lse_one, lse_two)
    weight_one, weight_two = (jnp.exp(x - lse)[..., None] for x in (lse_one, lse_two))
    return o_one * weight_one + o_two * weight_two, lse


def chunked_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    *,
    chunk: int,
) -> Float[Array, "b a t h"]:
    """Causal attention, chunk by chunk, whose gradient computes all scores again.

    This is the memory-efficient attention of xformers. Autodiff makes its backward pass. Nearly
    half of the scores that it computes are masked.

    Math: the parts of all chunks of keys, merged, for each chunk of queries
    Comm:
        forward: nothing
        backward: nothing
    Memory: q
    Source: Rabe and Staats 2021 (Self-attention Does Not Need O(n^2) Memory), section 3

    Raises:
        ValueError: `chunk` does not divide t, or the kv heads do not divide the heads.
    """
    q, k, v = _checked("chunked_attention", q, k, v)
    n = _count("chunked_attention", "chunk", q.shape[2], chunk)
    queries, keys, values = (_cut(x, chunk) for x in (q, k, v))
    place = jnp.arange(chunk)

    @partial(jax.checkpoint, prevent_cse=False)
    def of_queries(i: Array, q: Array) -> Array:
        @partial(jax.checkpoint, prevent_cse=False)
        def with_keys(done: Part, given: tuple[Array, Array, Array]) -> tuple[Part, None]:
            j, k, v = given
            past = (j * chunk + place)[None] <= (i * chunk + place)[:, None]
            return merge(done, attend(q, k, v, past[None])), None

        nothing = jnp.zeros_like(q, _wide(q)), jnp.full_like(q[..., 0], _NEVER, _wide(q))
        (o, _), _ = lax.scan(with_keys, nothing, (jnp.arange(n), keys, values))
        return o.astype(q.dtype)

    return _joined(lax.map(lambda given: of_queries(*given), (jnp.arange(n), queries)))


def flash_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    *,
    tile: int,
) -> Float[Array, "b a t h"]:
    """Causal attention by tiles of `tile` queries and as many keys, with its own backward pass.

    Each of the k kv heads serves a/k consecutive query heads. Only tiles in which some query sees
    some key are computed. With n = t/tile tiles in a row, these are (n+1)/2n of all tiles. Beside
    q, k, v and the result, one number for each query (its log-sum-exp) is kept for the backward
    pass, which computes the scores of each tile once more. The result has the dtype of q, and each
    gradient that of its argument. Softmax and all sums are in float32, or in float64 if the
    arguments are.

    Math: y = softmax(q @ k.T / sqrt(h), over the keys up to the query's position) @ v
    Comm:
        forward: nothing
        backward: nothing
    Memory: q
    Source: Dao 2023 (FlashAttention-2), section 3.1, algorithms 1 and 2

    Raises:
        ValueError: `tile` does not divide t, or the kv heads do not divide the heads.
    """
    q, k, v = _checked("flash_attention", q, k, v)
    _count("flash_attention", "tile", q.shape[2], tile)
    return attend_with_pattern(partial(causal, t=q.shape[2], size=tile), q, k, v, None)


def window_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    *,
    window: int,
    tile: int,
) -> Float[Array, "b a t h"]:
    """Attention to `window` positions, the last of which is the query's own.

    As `flash_attention`; tiles outside of the window are not computed either.

    Math: y = softmax(q @ k.T / sqrt(h), over the `window` keys up to the query's position) @ v
    Comm:
        forward: nothing
        backward: nothing
    Memory: q
    Source: Beltagy, Peters and Cohan 2020 (Longformer), section 3.1; Jiang et al. 2023 (Mistral 7B)

    Raises:
        ValueError: `window` is below 1, `tile` does not divide t, or the kv heads do not divide the
            heads.
    """
    q, k, v = _checked("window_attention", q, k, v)
    _count("window_attention", "tile", q.shape[2], tile)
    if window < 1:
        raise ValueError(f"window_attention: window is {window}; use 1 or more positions")
    pattern_of = partial(causal, t=q.shape[2], size=tile, window=window)
    return attend_with_pattern(pattern_of, q, k, v, None)


def packed_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    documents: Int[Array, "b t"],
    *,
    tile: int,
) -> Float[Array, "b a t h"]:
    """Causal attention within each document of a sequence that several are packed into.

    `documents` has a number for each position, which is that of its document. As
    `flash_attention`; where documents begin is known when the program runs, and no tile is skipped
    for it.

    Math: y = softmax(q @ k.T / sqrt(h), over the document's keys up to the query's position) @ v
    Comm:
        forward: nothing
        backward: nothing
    Memory: q
    Source: Llama Team 2024 (The Llama 3 Herd of Models), section 3.2

    Raises:
        ValueError: `tile` does not divide t, or the kv heads do not divide the heads.
    """
    q, k, v = _checked("packed_attention", q, k, v)
    _count("packed_attention", "tile", q.shape[2], tile)
    pattern_of = partial(causal, t=q.shape[2], size=tile)
    return attend_with_pattern(pattern_of, q, k, v, (documents, documents))


@dataclass(frozen=True)
class Pattern:
    """Which scores count: the tiles of scores that are computed, and which keys queries see.

    How many tiles there are is known when a program is traced, so the loop over them has a trip
    count that is known, too. Which ones they are may depend on the device.

    Attributes:
        size: the queries, and the keys, of a tile.
        rows: for each tile, in the order of the loop, the number of its block of queries.
        columns: the same of its keys.
        positions: those of all queries and of all keys; a query does not see keys after it. None:
            every query sees every key.
        documents: the numbers of the documents of all queries, [b t], and of all keys, [b s]; a
            query does not see those of another. None: there is one.
        window: a query sees no more positions than this, its own among them. None: all.
    """

    size: int
    rows: Array | np.ndarray
    columns: Array | np.ndarray
    positions: tuple[Array, Array] | None = None
    documents: tuple[Array, Array] | None = None
    window: int | None = None

    def seen(self, i: Array, j: Array) -> Bool[Array, "#b t s"] | None:
        """Which keys of block j the queries of block i see; None: all."""
        if self.positions is None:
            return None
        block = partial(lax.dynamic_slice_in_dim, slice_size=self.size, axis=-1)
        queries, keys = (
            block(x, at * self.size) for x, at in zip(self.positions, (i, j), strict=True)
        )
        ahead = (queries[:, None] - keys[None])[None]
        seen = ahead >= 0 if self.window is None else (ahead >= 0) & (ahead < self.window)
        if self.documents is None:
            return seen
        queries, keys = (
            block(x, at * self.size) for x, at in zip(self.documents, (i, j), strict=True)
        )
        return seen & (queries[:, :, None] == keys[:, None])


PatternOf = Callable[[tuple[Array, Array] | None], Pattern]
"""Makes a pattern, given the documents of all queries and of all keys."""


def square(t: int, size: int) -> Pattern:
    """Every one of t queries sees every one of t keys."""
    rows, columns = np.indices((t // size, t // size)).reshape(2, -1)
    return Pattern(size, rows, columns)


def causal(
    documents: tuple[Array, Array] | None = None, *, t: int, size: int, window: int | None = None
) -> Pattern:
    """The query at each of t positions sees the keys up to its own, in its window and document.

    A tile in which no query sees a key for its position, or for its window, is not computed.
    """
    rows, columns = np.indices((t // size, t // size)).reshape(2, -1)
    nearest = (rows - columns - 1) * size + 1  # positions between the first query and the last key
    kept = (columns <= rows) & (nearest < (window or t))
    order = jnp.arange(t)
    return Pattern(size, rows[kept], columns[kept], (order, order), documents, window)


def usual_tile(t: int) -> int:
    """A size of tiles for t positions: the largest divisor up to 128, or t if all are small."""
    largest = max(size for size in range(1, min(t, USUAL_TILE) + 1) if t % size == 0)
    return largest if largest >= USUAL_TILE // 8 else t


def attend_by_tiles(q: Array, k: Array, v: Array, pattern: Pattern) -> Part:
    """As `attend`, but only the scores of one tile are held at once.

    Every query must have a tile. All arrays must be typed as varying over the same axes.

    Math: the parts of all tiles in a row, merged
    Source: Dao 2023 (FlashAttention-2), section 3.1.1, algorithm 1
    """
    size = pattern.size
    queries = _stacked(_scaled(q), size, k.shape[1])
    keys, values = _cut(k, size), _cut(v, size)

    def visit(state: Any, at: Any) -> tuple[Any, None]:
        i, j = at
        o, top, total = (x[i] for x in state)
        scores = _scores(queries[i], keys[j], pattern.seen(i, j))
        new_top = jnp.maximum(top, scores.max(-1))
        weights, shrink = jnp.exp(scores - new_top[..., None]), jnp.exp(top - new_top)
        o = o * shrink[..., None] + _product(weights.astype(v.dtype), values[j])
        new = o, new_top, total * shrink + weights.sum(-1)
        return tuple(x.at[i].set(one) for x, one in zip(state, new, strict=True)), None

    o = jnp.zeros_like(queries, _wide(q))
    total = jnp.zeros_like(o[..., 0])
    state = o, jnp.full_like(total, _NEVER), total
    (o, top, total), _ = lax.scan(visit, state, (pattern.rows, pattern.columns))
    heads = q.shape[1]
    return _unstacked(o / total[..., None], heads), _unstacked(top + jnp.log(total), heads)


def gradients_by_tiles(
    q: Array, k: Array, v: Array, kept: "Kept", pattern: Pattern
) -> tuple[Array, Array, Array]:
    """The gradients with respect to q, k and v through these tiles, in float32 at least.

    What is kept is of whole rows: of attention to these keys and to all others.

    Math: p = exp(q @ k.T / sqrt(h) - lse), ds = p * (do @ v.T - delta) / sqrt(h),
        dq = ds @ k, dk = ds.T @ q, dv = p.T @ do
    Source: Dao 2023 (FlashAttention-2), section 3.1.2, algorithm 2
    """
    size, scale = pattern.size, 1 / math.sqrt(q.shape[-1])
    stacked = partial(_stacked, size=size, kv_heads=k.shape[1])
    queries, do, lse, delta = map(stacked, (_scaled(q), *kept))
    keys, values = _cut(k, size), _cut(v, size)

    def visit(state: Any, at: Any) -> tuple[Any, None]:
        (i, j), (dq, dk, dv) = at, state
        scores = _scores(queries[i], keys[j], pattern.seen(i, j))
        p = jnp.exp(scores - lse[i][..., None])
        ds = p * (_product(do[i], values[j].mT) - delta[i][..., None])
        dv = dv.at[j].add(_product(p.astype(v.dtype).mT, do[i]))
        dk = dk.at[j].add(_product(ds.astype(q.dtype).mT, queries[i]))
        dq = dq.at[i].add(_product(ds.astype(q.dtype), keys[j]) * scale)
        return (dq, dk, dv), None

    zeros = tuple(jnp.zeros_like(x, _wide(q)) for x in (queries, keys, values))
    (dq, dk, dv), _ = lax.scan(visit, zeros, (pattern.rows, pattern.columns))
    return _unstacked(dq, q.shape[1]), _joined(dk), _joined(dv)


class Kept(NamedTuple):
    """What the gradient of a tile needs of whole rows.

    Attributes:
        do: the gradient with respect to the result.
        lse: the log-sum-exp of the scores of each query.
        delta: for each query the sum of do times the result.
    """

    do: Array
    lse: Array
    delta: Array

    @classmethod
    def of(cls, do: Array, o: Array, lse: Array) -> "Kept":
        """From the gradient with respect to the result, the result, and the log-sum-exp."""
        return cls(do, lse, (do.astype(lse.dtype) * o.astype(lse.dtype)).sum(-1))


def named(q: Array, part: Part) -> Part:
    """A finished part, rounded to the dtype of q, under the names in `KEPT`."""
    o, lse = part
    attended, name_of_lse = KEPT
    return checkpoint_name(o.astype(q.dtype), attended), checkpoint_name(lse, name_of_lse)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_with_pattern(
    pattern_of: PatternOf, q: Array, k: Array, v: Array, documents: tuple[Array, Array] | None
) -> Array:
    """Attention by tiles to the keys of a pattern, with its own backward pass.

    Both passes make the pattern, which is not kept. All arrays must be typed as varying over the
    same axes.

    Math: y = softmax(q @ k.T / sqrt(h), over the keys that the query sees) @ v
    Source: Dao 2023 (FlashAttention-2), section 3.1, algorithms 1 and 2
    """
    return _forward(pattern_of, q, k, v, documents)[0]


def _forward(
    pattern_of: PatternOf, q: Array, k: Array, v: Array, documents: tuple[Array, Array] | None
) -> tuple[Array, tuple]:
    o, lse = named(q, attend_by_tiles(q, k, v, pattern_of(documents)))
    return o, (q, k, v, documents, o, lse)


def _backward(pattern_of: PatternOf, residuals: tuple, do: Array) -> tuple:
    q, k, v, documents, o, lse = residuals
    gradients = gradients_by_tiles(q, k, v, Kept.of(do, o, lse), pattern_of(documents))
    dq, dk, dv = (dx.astype(x.dtype) for dx, x in zip(gradients, (q, k, v), strict=True))
    return dq, dk, dv, None


attend_with_pattern.defvjp(_forward, _backward)


def _scores(q: Array, k: Array, mask: Array | None) -> Array:
    """The scores of scaled, stacked queries [b k g*t h] and keys [b k s h]: [b k g*t s]."""
    scores = _product(q, k.mT)
    if mask is None:
        return scores
    b, kv_heads, _, s = scores.shape
    by_head = scores.reshape(b, kv_heads, -1, mask.shape[1], s)
    return jnp.where(mask[:, None, None], by_head, _NEVER).reshape(scores.shape)


def _scaled(q: Array) -> Array:
    return q * jnp.asarray(1 / math.sqrt(q.shape[-1]), q.dtype)


def _product(x: Array, y: Array) -> Array:
    """The product of matrices, in float32 at least."""
    return jnp.matmul(x, y, preferred_element_type=_wide(x))


def _wide(x: Array) -> jnp.dtype:
    return jnp.promote_types(x.dtype, jnp.float32)


def _cut(x: Array, size: int) -> Array:
    """[b heads t ...] to [n b heads size ...]."""
    b, heads, t, *rest = x.shape
    return jnp.moveaxis(x.reshape(b, heads, t // size, size, *rest), 2, 0)


def _joined(x: Array) -> Array:
    """[n b heads size ...] to [b heads t ...]."""
    x = jnp.moveaxis(x, 0, 2)
    return x.reshape(*x.shape[:2], -1, *x.shape[4:])


def _stacked(x: Array, size: int, kv_heads: int) -> Array:
    """[b a t ...] to [n b k g*size ...]: what a kv head serves, one head after another."""
    n, b, _, _, *rest = (cut := _cut(x, size)).shape
    return cut.reshape(n, b, kv_heads, -1, *rest)


def _unstacked(x: Array, heads: int) -> Array:
    """[n b k g*size ...] to [b a t ...]."""
    n, b, _, _, *rest = x.shape
    return _joined(x.reshape(n, b, heads, -1, *rest))


def _checked(where: str, q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """The arguments, typed as varying over the same axes."""
    check_kv_heads(where, q.shape[1], k.shape[1])
    return vary_alike(q, k, v)


def _count(where: str, name: str, t: int, size: int) -> int:
    """The number of parts of so many positions."""
    if size < 1 or t % size:
        near = ", ".join(str(k) for k in range(1, t + 1) if t % k == 0)
        raise ValueError(
            f"{where}: {name} is {size} and dim t is {t}; {name} must divide t; use {name} in "
            f"{{{near}}}, or pad t to {-(-t // max(1, size)) * max(1, size)}"
        )
    return t // size
