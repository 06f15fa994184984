"""Inference on shards: attention through a cache of keys and values, and the choice of a token.

A cache holds the keys and values of all tokens so far, so that a step computes only the new ones.
Its rows have different lengths. `cached_attention` is one layer's attention in a decode step,
written whole, and `speculative_accept` is the rule as it was published; both are for teaching. The
engine (`jaxpar.serve`) runs the other functions.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, Shaped

from jaxpar import nn
from jaxpar.flash import attend, merge
from jaxpar.mesh import divide, few_divisors, vary, vary_alike

# The log-sum-exp of no scores. It is finite, so that a difference of two of them is no NaN.
_NOTHING = -1e30


def rotary_by_row(
    x: Float[Array, "b a t h"],
    positions: Int[Array, "b t"],
    theta: float = 10_000.0,
    scaling: nn.RopeScaling | None = None,
) -> Float[Array, "b a t h"]:
    """Rotates queries or keys by angles for their positions, which differ from row to row.

    Math: y = x, where each pair (i, i + h/2) is rotated by position / theta**(2i/h)
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: Su et al. 2021 (RoFormer), section 3.4
    """
    return jax.vmap(lambda row, at: nn.rotary(row[None], at, theta, scaling)[0])(x, positions)


def cached_attention(
    x: Float[Array, "b d"],
    w_q: Float[Array, "d q_tp"],
    w_k: Float[Array, "d k_tp"],
    w_v: Float[Array, "d k_tp"],
    w_o: Float[Array, "q_tp d"],
    k_cache: Float[Array, "b k s h"],
    v_cache: Float[Array, "b k s h"],
    lengths: Int[Array, " b"],
    *,
    num_heads: int,
    num_kv_heads: int,
    axis: str,
) -> tuple[Float[Array, "b d"], Float[Array, "b k s h"], Float[Array, "b k s h"]]:
    """One token of each row attends to itself and to the tokens in the cache, which it joins.

    Row i has `lengths[i]` tokens in the cache, fewer than s, so its new token has this position:
    its query and key are rotated by it (`rotary_by_row`), and its key and value are written there.
    What is behind a row's tokens has any finite value. There is no bias, and the scale is
    1/sqrt(h).

    x is equal on all devices of the axis, and so is the first result. The heads are split over the
    devices, and the caches by kv heads: in the columns of `w_q`, `w_k` and `w_v`, and in the rows
    of `w_o`, this device has those of its own heads, one head after another. Each kv head serves
    num_heads/num_kv_heads consecutive query heads. If there are fewer kv heads than devices,
    device i has head i*num_kv_heads//n in `w_k`, `w_v` and the caches. The results are y and both
    caches with the new tokens.

    Math: y = sum_j concat(softmax(q k^T / sqrt(h)) v for each head of device j) @ w_o, where k and
        v are the row's in the cache, its new token among them
    Comm:
        forward: all_reduce(axis) x
        backward: no derivative
    Memory: x+k_cache+v_cache
    Source: Shazeer 2019 (Fast Transformer Decoding), section 2.4; Pope et al. 2022 (Efficiently
        Scaling Transformer Inference), section 3.3

    Raises:
        ValueError: n does not divide `num_heads`, or neither of `num_kv_heads` and n divides the
            other.
    """
    n = lax.axis_size(axis)
    heads = divide("cached_attention", "a", num_heads, axis, n)
    if num_kv_heads % n and n % num_kv_heads:
        raise ValueError(
            f"cached_attention: {num_kv_heads} kv heads on mesh axis {axis} (size {n}); one must "
            "divide the other, so that a device has whole kv heads, or one; use "
            f"{axis} in {{{few_divisors(num_kv_heads)}}}, or a multiple of {num_kv_heads}"
        )
    own = vary(x, (axis,))
    q, k, v = (
        nn.matmul(own, w).reshape(len(x), count, 1, -1)
        for w, count in ((w_q, heads), (w_k, k_cache.shape[1]), (w_v, v_cache.shape[1]))
    )
    positions = lengths[:, None]
    q, k = rotary_by_row(q, positions), rotary_by_row(k, positions)
    rows = jnp.arange(len(x))[:, None]
    k_cache, v_cache = (
        write_tokens(cache, new, rows, positions) for cache, new in ((k_cache, k), (v_cache, v))
    )
    attended = slot_attention(q, k_cache, v_cache, lengths + 1)
    y = lax.psum(nn.matmul(attended.reshape(len(x), -1), w_o), axis)
    return y, k_cache, v_cache


def write_tokens(
    cache: Shaped[Array, "p k s h"],
    new: Shaped[Array, "b k t h"],
    places: Int[Array, "b _"],
    offsets: Int[Array, "b t"],
) -> Shaped[Array, "p k s h"]:
    """Writes new keys or values into a cache, each at its place (a row, a page) and offset in it.

    A token whose place or offset is not in the cache, and is not negative, is left out. XLA writes
    into the cache itself where nothing else needs what it was, as where it is donated.

    Math: y = cache, but y[places[i, j], :, offsets[i, j]] = new[i, :, j]
    Comm:
        forward: nothing
        backward: nothing
    Memory: cache
    Source: Pope et al. 2022 (Efficiently Scaling Transformer Inference), section 2
    """
    # With the heads among the indices, this is in place for a single row, too.
    heads = jnp.arange(cache.shape[1])[None, :, None]
    at = places[:, None], heads, offsets[:, None]
    cache, new = vary_alike(cache, new.astype(cache.dtype))
    return cache.at[at].set(new, mode="drop")


def slot_attention(
    q: Float[Array, "b a t h"],
    k_cache: Float[Array, "b k s h"],
    v_cache: Float[Array, "b k s h"],
    lengths: Int[Array, " b"],
) -> Float[Array, "b a t h"]:
    """Attention to a cache in which each row has a place of its own for s tokens.

    Row i has `lengths[i]` tokens in the cache, and its queries are those of the last t of them;
    each sees the tokens up to its own. What is behind them has any finite value. Each of the k kv
    heads serves a/k consecutive query heads. Scores of all s places are computed.

    Math: y = softmax(q @ k.T / sqrt(h), over the tokens up to the query's) @ v
    Comm:
        forward: nothing
        backward: nothing
    Memory: q
    Source: Shazeer 2019 (Fast Transformer Decoding), section 2.4

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    positions = lengths[:, None] - q.shape[2] + jnp.arange(q.shape[2])[None]
    seen = jnp.arange(k_cache.shape[2])[None, None] <= positions[:, :, None]
    return attend(q, k_cache, v_cache, seen)[0].astype(q.dtype)


def paged_attention(
    q: Float[Array, "b a t h"],
    k_pages: Float[Array, "p k s h"],
    v_pages: Float[Array, "p k s h"],
    table: Int[Array, "b m"],
    lengths: Int[Array, " b"],
) -> Float[Array, "b a t h"]:
    """Attention to a cache in pages of s tokens, which lie in any order.

    Row i has `lengths[i]` tokens in the cache, and its queries are those of the last t of them;
    each sees the tokens up to its own. `table[i]` lists the row's pages in the order of its tokens.
    What the table lists beyond these, and what is in a page beyond them, may be anything, NaN too.
    Each of the k kv heads serves a/k consecutive query heads. Scores and sums are in float32, or in
    float64 if q is, and the result has the dtype of q.

    A loop takes one page of each row at a time, and merges what it gives (`jaxpar.flash.merge`); it
    ends with the last page of the longest row. So no more than a page of each row is gathered.

    Math: y = softmax(q @ k.T / sqrt(h), over the tokens up to the query's) @ v, where token j is
        in page table[i, j // s], at j % s
    Comm:
        forward: nothing
        backward: no derivative
    Memory: q
    Source: Kwon et al. 2023 (PagedAttention), section 4.1

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    q, k_pages, v_pages, table, lengths = vary_alike(q, k_pages, v_pages, table, lengths)

    def read(j: Array) -> tuple[Array, Array]:
        return k_pages[table[:, j]], v_pages[table[:, j]]

    return attend_page_by_page(q, read, lengths, page_size=k_pages.shape[2], axis=None)


def attend_page_by_page(
    q: Float[Array, "b a t h"],
    read: Callable[[Array], tuple[Array, Array]],
    lengths: Int[Array, " b"],
    *,
    page_size: int,
    axis: str | None,
) -> Float[Array, "b a t h"]:
    """As `paged_attention`, of pages that `read(j)` returns: the j-th keys and values of each row.

    So a page can be kept in fewer bits than it is computed with. An axis splits the tokens of each
    page, of which `page_size` are on a device: device i of n has those at i, i+n, ... Then the
    parts of all devices are merged. Without an axis nothing is sent.

    Math: the parts of all pages, merged
    Comm:
        forward: all_reduce(axis) q+2*q/h
        backward: no derivative
    Memory: q
    Source: Kwon et al. 2023 (PagedAttention), section 4.1; Shyam et al. 2024 (Tree Attention),
        section 5
    """
    n, own = (1, 0) if axis is None else (lax.axis_size(axis), lax.axis_index(axis))
    positions = lengths[:, None] - q.shape[2] + jnp.arange(q.shape[2])[None]
    q = q if axis is None else vary(q, (axis,))

    def with_page(j: Array, done: tuple[Array, Array]) -> tuple[Array, Array]:
        k, v = read(j)
        at = (j * page_size + jnp.arange(page_size)[None]) * n + own
        v = jnp.where((at < lengths[:, None])[:, None, :, None], v, 0)
        seen = at[:, None] <= positions[:, :, None]
        return merge(done, attend(q, k, v, seen))

    wide = jnp.promote_types(q.dtype, jnp.float32)
    nothing = jnp.zeros_like(q, wide), jnp.full_like(q[..., 0], _NOTHING, wide)
    last = (lengths.max() + n * page_size - 1) // (n * page_size)
    o, lse = lax.fori_loop(0, last, with_page, nothing)
    return (o if axis is None else merge_over_shards(o, lse, axis=axis)).astype(q.dtype)


def merge_over_shards(
    o: Float[Array, "b a t h"], lse: Float[Array, "b a t"], *, axis: str
) -> Float[Array, "b a t h"]:
    """Attention to the keys of all devices, each of which has attended to its own.

    `o` and `lse` are what `jaxpar.flash.attend` returns. The result is equal on all devices.

    Math: y = sum_j exp(lse_j - top) * o_j / sum_j exp(lse_j - top), top = max_j lse_j
    Comm:
        forward: all_reduce(axis) o+2*lse
        backward: no derivative
    Memory: o
    Source: Shyam et al. 2024 (Tree Attention), section 5
    """
    weight = jnp.exp(lse - lax.pmax(lse, axis))[..., None]
    total, weights = lax.psum((o * weight, weight), axis)
    return total / weights


def sample_parallel(
    logits: Float[Array, "b v_tp"],
    noise: Float[Array, "b v_tp"],
    temperature: Float[Array, " b"],
    *,
    axis: str,
) -> Int[Array, " b"]:
    """Chooses a token of each row, whose logits are split over the devices by the vocabulary.

    With Gumbel noise this is a sample of softmax(logits / temperature), and no logit is sent. A
    temperature of 0 takes the most likely token. Where several have the largest sum, the first is
    taken. A token whose logit is minus infinity is never taken. All is computed in float32, and the
    result is equal on all devices.

    Math: y = argmax_i(logits_i + temperature * noise_i), over the vocabularies of all devices
    Comm:
        forward: all_reduce(axis) 2*y
        backward: no derivative
    Memory: y
    Source: Maddison, Tarlow and Minka 2014 (A* Sampling), section 2; Shoeybi et al. 2019
        (Megatron-LM), section 3
    """
    logits, noise, temperature = vary_alike(logits, noise, vary(temperature, (axis,)))
    scores = logits.astype(jnp.float32) + temperature[:, None] * noise
    largest, first = scores.max(-1), jnp.argmax(scores, -1)
    token = lax.axis_index(axis) * scores.shape[1] + first
    found = lax.pmax(largest, axis)
    nowhere = jnp.iinfo(token.dtype).max
    return lax.pmin(jnp.where(largest == found, token, nowhere), axis)


def speculative_accept(
    draft: Int[Array, "b t"],
    draft_probs: Float[Array, "b t v"],
    target_probs: Float[Array, "b s v"],
    uniforms: Float[Array, "b t"],
) -> tuple[Int[Array, " b"], Float[Array, "b v"]]:
    """How many of t drafted tokens are accepted, and the distribution of the token after them.

    `draft_probs` are the distributions that the drafted tokens were drawn from, and `target_probs`
    are those of the model at the same places, and after the last of them, so s is t+1. `uniforms`
    are in [0, 1). A token is accepted if its number times the draft's probability is below the
    target's, and all before it were. Tokens chosen in this way are distributed as those of the
    target alone. All is computed in float32, and so is the distribution.

    Math: accepted = the first i with uniforms_i * q_i(x_i) >= p_i(x_i), or t; the distribution is
        max(0, p_i - q_i), over its sum, or p_t if all are accepted
    Comm:
        forward: nothing
        backward: no derivative
    Memory: b+b*v
    Source: Leviathan, Kalman and Matias 2023 (Fast Inference from Transformers via Speculative
        Decoding), section 2.3, algorithm 1

    Raises:
        ValueError: there is no distribution of the target after the last drafted token.
    """
    (b, t), rows = draft.shape, jnp.arange(len(draft))
    if target_probs.shape[1] != t + 1:
        raise ValueError(
            f"speculative_accept: {t} drafted tokens with {target_probs.shape[1]} distributions of "
            f"the target; it needs {t + 1}, one for each and one for the token after them"
        )
    q, p = (x.astype(jnp.float32) for x in (draft_probs, target_probs))
    q_draft, p_draft = (
        jnp.take_along_axis(x, draft[..., None], axis=2)[..., 0] for x in (q, p[:, :t])
    )
    accepted = jnp.cumprod((uniforms * q_draft < p_draft).astype(jnp.int32), axis=1).sum(1)
    here = p[rows, accepted]
    # After the last drafted token nothing was drafted, and so the rest is all of it.
    guessed = jnp.concatenate([q, jnp.zeros_like(q, shape=(b, 1, q.shape[2]))], 1)[rows, accepted]
    rest = jnp.maximum(here - guessed, 0)
    return accepted, rest / rest.sum(-1, keepdims=True)
