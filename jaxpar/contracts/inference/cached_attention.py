"""One token of each row attends to a cache of keys and values, whose heads are split."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import mesh_order, on_every_device, ring_bytes
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.inference import common
from jaxpar.contracts.inference.common import LARGE, seen_attention, with_heads
from jaxpar.contracts.steps import among_zeros, enter, gathered
from jaxpar.parallel import decode
from jaxpar.parallel.decode import rotary_by_row

Result = tuple[Array, Array, Array]
COUNTS = Function(f"{common.__name__}:counts")


def _rotated(x: Array, positions: Array) -> Array:
    """[b k 1 h], each row by the angles of its position."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-jnp.arange(half) / half)[None]
    cos, sin = (f(angles)[:, None, None] for f in (jnp.cos, jnp.sin))
    one, other = x[..., :half], x[..., half:]
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


def _whole(
    case: Case, x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    k_cache: Array, v_cache: Array, lengths: Array,
) -> list[Expected]:  # fmt: skip
    """As if all heads were on one device; of kv heads there are as many as in the caches."""
    heads, kv_heads = case.kwargs["num_heads"], k_cache.shape[1]
    q, k, v = (with_heads(x @ w, n) for w, n in ((w_q, heads), (w_k, kv_heads), (w_v, kv_heads)))
    at = jnp.arange(k_cache.shape[2])[None] == lengths[:, None]  # [b s]
    k_cache, v_cache = (
        jnp.where(at[:, None, :, None], new, cache)
        for new, cache in ((_rotated(k, lengths), k_cache), (v, v_cache))
    )
    seen = jnp.arange(k_cache.shape[2])[None] <= lengths[:, None]
    y = seen_attention(_rotated(q, lengths), k_cache, v_cache, seen[:, None])
    y = y.reshape(len(x), -1) @ w_o
    return [Expected(on_every_device(case, _by_rows(case, y)))] + [
        Expected(_by_heads(case, cache)) for cache in (k_cache, v_cache)
    ]


def _others(case: Case) -> list[int]:
    """The sizes of the mesh axes that split the rows."""
    return [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]


def _by_rows(case: Case, x: Array) -> Array:
    others = _others(case)
    return x.reshape(*others, len(x) // math.prod(others), *x.shape[1:])


def _by_heads(case: Case, cache: Array) -> Array:
    n = case.sizes[case.kwargs["axis"]]
    b, k, s, h = cache.shape
    rows = _by_rows(case, cache.reshape(b, n, k // n, s, h))
    return mesh_order(case, jnp.moveaxis(rows, len(_others(case)) + 1, 0))


def _case(
    mesh: str,
    axis: str,
    heads: int,
    kv_heads: int,
    *,
    b: int = 6,
    d: int = 16,
    s: int = 40,
    h: int = 8,
    dtype: str = "float32",
) -> Case:
    """Rows are split over all other axes; b is of one device. Where kv heads are few, a device's
    is an array of its own: which head of all it is does not matter to it."""
    n = parse_mesh(mesh)[axis]
    others = [name for name in parse_mesh(mesh) if name != axis]
    rows = "_".join(["b", *others])
    b *= math.prod(parse_mesh(mesh)[name] for name in others)
    here = max(kv_heads, n)
    cache = ArraySpec((b, here, s, h), f"{rows} k_{axis} s h", dtype)
    args = {
        "x": ArraySpec((b, d), f"{rows} d", dtype),
        "w_q": ArraySpec((d, heads * h), f"d q_{axis}", dtype),
        "w_k": ArraySpec((d, here * h), f"d k_{axis}", dtype),
        "w_v": ArraySpec((d, here * h), f"d k_{axis}", dtype),
        "w_o": ArraySpec((heads * h, d), f"q_{axis} d", dtype),
        "k_cache": cache,
        "v_cache": cache,
        "lengths": Made(COUNTS, (ArraySpec((b,), rows, "int32", "large"), 0, s - 1)),
    }
    return Case(mesh, args, {"num_heads": heads, "num_kv_heads": kv_heads, "axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    d, local, s = pick(rng, (23, 27)), pick(rng, (5, 7)), pick(rng, (53, 57))
    few = _case(f"{axis}=10", axis, 10 * local, 5, b=7, d=d, s=s, h=6, dtype="bfloat16")
    alone = mesh_of(rng, **{axis: 1, other: 2})
    return few, _case(alone, axis, 84, 28, b=3, d=d + 2, s=s + 6, h=10)


def _unseen(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts large numbers behind the tokens of each row, of which one has none and one lacks one."""
    k_cache, v_cache, lengths = inputs[-3:]
    s = k_cache.shape[2]
    lengths[0], lengths[-1] = 0, s - 1
    behind = np.arange(s) >= lengths[:, None] % s  # [b s]
    for cache in (k_cache, v_cache):
        np.moveaxis(cache, 1, 2)[behind] = LARGE


CONTRACT = Contract(
    kind="program",
    task="add a token to each row of the cache, and return its attention and both caches",
    reference=decode.cached_attention,
    oracle=_whole,
    cases=(
        _case("tp=2", "tp", 16, 4, s=48),
        _case("dp=2,tpx=6", "tpx", 24, 2, b=4, d=20, s=64, h=4),
    ),
    draw=_drawn,
    poison=_unseen,
    communication=Communication(
        "one all-reduce of x's size", forward=((Limit(("all_reduce",), "axis", ring_bytes(2)),),)
    ),
    memory=MemoryLimit(
        "the caches are not copied to more heads, or into float32: at most 3 times the library's "
        "bytes of intermediate results",
        multiple=3,
    ),
    flops=FlopsLimit(
        "each device computes its own heads, of the new tokens only: at most 1.1 times the "
        "library's flops",
        multiple=1.1,
        programs=("forward",),
    ),
    errors=(
        BadCall(_case("tp=4", "tp", 6, 6), "n does not divide num_heads"),
        BadCall(_case("tp=4", "tp", 12, 6), "num_kv_heads is above n and n does not divide it"),
        BadCall(_case("tp=6", "tp", 12, 4), "num_kv_heads is below n and does not divide it"),
    ),
    imports=("jaxpar.parallel.decode.rotary_by_row", "jaxpar.flash.attend"),
    # Scores go up to dozens; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "A device has whole heads, and the cache of just their keys and values. So what of lesson "
        "11's attention changes, if the keys of all earlier tokens are there already?",
        "q is [b, a/n, 1, h]. rotary_by_row(q, lengths[:, None]) rotates each row by its own "
        "position. cache.at[rows, :, lengths].set(new) writes a token into each row, with rows = "
        "jnp.arange(b).",
        "Row i sees places 0 to lengths[i], with its new token: mask = jnp.arange(s) <= "
        "lengths[:, None], then attend(q, k_cache, v_cache, mask[:, None]). The product with w_o "
        "is a part of a sum: lax.psum.",
    ),
    minimal="The keys and values of a head are where its queries are, so only the sum over the "
    "heads is sent: as much as in training for one token, however long the rows are.",
    harder="Let t tokens of each row come at once, as a chunk of its prompt, or as drafts of which "
    "each sees those before it.",
)


def _at_lengths(cache: Array, new: Array, lengths: Array) -> Array:
    """[b k s h] with new [b k 1 h] at the length of each row."""
    return cache.at[jnp.arange(len(cache)), :, lengths].set(new[:, :, 0])


def _up_to_the_new_one(s: int, lengths: Array) -> Array:
    return jnp.arange(s)[None] <= lengths[:, None]


def _in_groups(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
    """Attention [b a h] without a copy of the caches for each query head."""
    b, kv, _, h = k.shape
    wide = q.reshape(b, kv, -1, h)
    scores = jnp.einsum("bkgh,bksh->bkgs", wide, k, preferred_element_type=jnp.float32)
    scores = jnp.where(seen[:, None, None], scores * scale, -1e30)
    weights = jax.nn.softmax(scores).astype(v.dtype)
    y = jnp.einsum("bkgs,bksh->bkgh", weights, v, preferred_element_type=jnp.float32)
    return y.reshape(q.shape)


def _decoded(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array,
    k_cache: Array, v_cache: Array, lengths: Array,
    *, num_heads: int, num_kv_heads: int, axis: str,
    check: bool = True,
    query: Callable[[Array, Array, str], Array] = lambda x, w, axis: x @ w,
    position: Callable[[Array], Array] = lambda lengths: lengths,
    place: Callable[[Array], Array] = lambda lengths: lengths,
    rotate_q: Callable[[Array, Array], Array] = rotary_by_row,
    rotate_k: Callable[[Array, Array], Array] = rotary_by_row,
    seen: Callable[[int, Array], Array] = _up_to_the_new_one,
    scale: Callable[[int], float] = lambda h: h**-0.5,
    attention: Callable[..., Array] = _in_groups,
    written: Callable[[Array, Array, Array], Array] = _at_lengths,
    written_v: Callable[[Array, Array, Array], Array] | None = None,
    last: Callable[[Array, Array, str], Array] = lambda y, w_o, axis: lax.psum(y @ w_o, axis),
) -> Result:  # fmt: skip
    """A step of decoding, with one thing done in another way."""
    n = lax.axis_size(axis)
    if check and (num_heads % n or (num_kv_heads % n and n % num_kv_heads)):
        raise ValueError("heads and devices do not fit")
    own, h = enter(x, axis), k_cache.shape[3]
    columns = query(own, w_q, axis), own @ w_k, own @ w_v
    q, k, v = (with_heads(y, y.shape[1] // h) for y in columns)
    at = position(lengths)[:, None]
    q, k = rotate_q(q, at), rotate_k(k, at)
    lengths = enter(lengths, axis)
    k_cache = written(k_cache, k.astype(k_cache.dtype), place(lengths))
    v_cache = (written_v or written)(v_cache, v.astype(v_cache.dtype), place(lengths))
    mask = seen(k_cache.shape[2], lengths)
    y = attention(q.reshape(len(x), -1, h), k_cache, v_cache, mask, scale(h))
    return last(y.reshape(len(x), -1).astype(x.dtype), w_o, axis), k_cache, v_cache


@wrong("values")
def key_written_one_place_too_far(*arrays: Array, **sizes: Any) -> Result:
    """The new key and value are written one place too far; with `lengths[i]` tokens in the cache,
    the next one is at place `lengths[i]`, since places count from 0."""
    return _decoded(*arrays, **sizes, place=lambda lengths: lengths + 1)


@wrong("values")
def new_token_not_seen(*arrays: Array, **sizes: Any) -> Result:
    """The new token does not see itself; it sees places up to `lengths[i]`, where its own key has
    just been written."""

    def seen(s: int, lengths: Array) -> Array:
        return jnp.arange(s)[None] < lengths[:, None]

    return _decoded(*arrays, **sizes, seen=seen)


@wrong("values")
def unwritten_places_seen(*arrays: Array, **sizes: Any) -> Result:
    """Tokens see places behind the end of their row; mask what is after `lengths[i]`."""

    def seen(s: int, lengths: Array) -> Array:
        return jnp.arange(s)[None] < s + 0 * lengths[:, None]

    return _decoded(*arrays, **sizes, seen=seen)


@wrong("values")
def as_long_as_the_longest(*arrays: Array, **sizes: Any) -> Result:
    """All rows see as many places as the longest one; each row has a length of its own."""

    def seen(s: int, lengths: Array) -> Array:
        return jnp.arange(s)[None] <= jnp.full_like(lengths, lengths.max())[:, None]

    return _decoded(*arrays, **sizes, seen=seen)


@wrong("values")
def one_position_for_all_rows(*arrays: Array, **sizes: Any) -> Result:
    """All rows take the position of the first one; each row has a length of its own, which is the
    position of its new token."""

    def first(lengths: Array) -> Array:
        return jnp.full_like(lengths, lengths[0])

    return _decoded(*arrays, **sizes, position=first, place=first)


@wrong("values")
def written_where_the_first_row_ends(*arrays: Array, **sizes: Any) -> Result:
    """The new keys and values of all rows are written at the place of the first one, as one
    lax.dynamic_update_slice does; write each at the length of its row."""
    return _decoded(*arrays, **sizes, place=lambda lengths: jnp.full_like(lengths, lengths[0]))


@wrong("values")
def rotated_by_the_longest_row(*arrays: Array, **sizes: Any) -> Result:
    """Queries and keys are rotated by the position of the longest row, as if steps were counted;
    rotate each row by its own length."""

    def longest(lengths: Array) -> Array:
        return jnp.full_like(lengths, lengths.max())

    return _decoded(*arrays, **sizes, position=longest)


@wrong("values")
def rotated_by_its_place_in_the_batch(*arrays: Array, **sizes: Any) -> Result:
    """Rows are rotated by their number in the batch; the position of a row's new token is its
    length."""
    return _decoded(*arrays, **sizes, position=lambda lengths: jnp.arange(len(lengths)))


@wrong("values")
def rotated_from_zero(*arrays: Array, **sizes: Any) -> Result:
    """The new token is rotated by position 0, as the only token of its array; its position is the
    number of tokens before it."""
    return _decoded(*arrays, **sizes, position=jnp.zeros_like)


@wrong("values")
def keys_not_rotated(*arrays: Array, **sizes: Any) -> Result:
    """New keys are not rotated; those in the cache were, each by its own position."""
    return _decoded(*arrays, **sizes, rotate_k=lambda k, at: k)


@wrong("values")
def query_not_rotated(*arrays: Array, **sizes: Any) -> Result:
    """Queries are not rotated; rotate queries and new keys by their position."""
    return _decoded(*arrays, **sizes, rotate_q=lambda q, at: q)


@wrong("values")
def cache_rotated_again(*arrays: Array, **sizes: Any) -> Result:
    """All keys of the cache are rotated in each step; they were rotated when they were written."""

    def attention(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
        places = jnp.broadcast_to(jnp.arange(k.shape[2])[None], (len(k), k.shape[2]))
        return _in_groups(q, rotary_by_row(k, places), v, seen, scale)

    return _decoded(*arrays, **sizes, attention=attention)


@wrong("values")
def value_not_written(*arrays: Array, **sizes: Any) -> Result:
    """The new value is not in the cache; write it, as you write the key."""
    return _decoded(*arrays, **sizes, written_v=lambda cache, new, lengths: cache)


@wrong("values")
def token_added_to_what_was_there(*arrays: Array, **sizes: Any) -> Result:
    """The new key and value are added to what was in their place; anything may have been there, so
    replace it."""

    def written(cache: Array, new: Array, lengths: Array) -> Array:
        return cache.at[jnp.arange(len(cache)), :, lengths].add(new[:, :, 0])

    return _decoded(*arrays, **sizes, written=written)


@wrong("values")
def caches_as_they_were(*arrays: Array, **sizes: Any) -> Result:
    """The caches are returned without the new token, which the next step needs; return what you
    have written."""
    y, _, _ = _decoded(*arrays, **sizes)
    return y, arrays[5], arrays[6]


@wrong("values")
def partial_results_of_heads(*arrays: Array, **sizes: Any) -> Result:
    """Each device returns the part of its own heads; add the parts with lax.psum, after the product
    with w_o."""
    return _decoded(*arrays, **sizes, last=lambda y, w_o, axis: y @ w_o)


@wrong("values")
def summed_before_the_last_product(*arrays: Array, **sizes: Any) -> Result:
    """The results of different heads are added before the product with w_o; multiply first, by the
    rows of your own heads, and then add."""

    def attention(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
        return enter(lax.psum(_in_groups(q, k, v, seen, scale), sizes["axis"]), sizes["axis"])

    return _decoded(*arrays, **sizes, attention=attention)


@wrong("values")
def cached_scores_not_scaled(*arrays: Array, **sizes: Any) -> Result:
    """The scores are not divided by sqrt(h)."""
    return _decoded(*arrays, **sizes, scale=lambda h: 1.0)


def _with_copies(copies: Callable[[Array, int], Array]) -> Callable[..., Array]:
    """Attention to the caches, copied until each query head has one of its own."""

    def attention(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
        times = q.shape[1] // k.shape[1]
        return _in_groups(q, copies(k, times), copies(v, times), seen, scale)

    return attention


@wrong("values")
def cached_heads_tiled(*arrays: Array, **sizes: Any) -> Result:
    """The kv heads are repeated as a whole, 0 1 0 1, but the query heads of one kv head are
    neighbours, 0 0 1 1."""
    copies = _with_copies(lambda x, times: jnp.concatenate([x] * times, axis=1))
    return _decoded(*arrays, **sizes, attention=copies)


@wrong("values")
def one_kv_head_for_all(*arrays: Array, **sizes: Any) -> Result:
    """All query heads of a device use its first kv head; each kv head serves
    num_heads/num_kv_heads consecutive ones."""

    def attention(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
        return _in_groups(q, k[:, :1], v[:, :1], seen, scale)

    return _decoded(*arrays, **sizes, attention=attention)


@wrong("values")
def masked_by_subtraction(*arrays: Array, **sizes: Any) -> Result:
    """Scores behind the end of a row are lowered by 1e9, and what is there may be larger than that;
    replace them, with jnp.where."""

    def attention(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
        b, kv, _, h = k.shape
        wide = q.reshape(b, kv, -1, h)
        scores = jnp.einsum("bkgh,bksh->bkgs", wide, k, preferred_element_type=jnp.float32)
        scores = scores * scale - 1e9 * ~seen[:, None, None]
        y = jnp.einsum("bkgs,bksh->bkgh", jax.nn.softmax(scores).astype(v.dtype), v)
        return y.reshape(q.shape)

    return _decoded(*arrays, **sizes, attention=attention)


@wrong("communication")
def caches_gathered(*arrays: Array, **sizes: Any) -> Result:
    """The caches of all devices are gathered; a device needs those of its own heads only, and the
    sum over the heads comes last."""
    axis = sizes["axis"]

    def attention(q: Array, k: Array, v: Array, seen: Array, scale: float) -> Array:
        kv, i = k.shape[1], lax.axis_index(axis)
        k, v = (lax.dynamic_slice_in_dim(gathered(x, axis, 1), i * kv, kv, 1) for x in (k, v))
        return _in_groups(q, k, v, seen, scale)

    return _decoded(*arrays, **sizes, attention=attention)


@wrong("communication")
def w_o_gathered(*arrays: Array, **sizes: Any) -> Result:
    """The results of all heads and all of w_o are gathered for the last product; multiply by the
    rows of your own heads, and add the products of all devices."""

    def last(y: Array, w_o: Array, axis: str) -> Array:
        return gathered(y, axis, 1) @ gathered(w_o, axis)

    return _decoded(*arrays, **sizes, last=last)


@wrong("memory")
def cache_copied_for_each_head(*arrays: Array, **sizes: Any) -> Result:
    """The caches are copied until each query head has one; let the query heads of a kv head share
    it: q as [b, k, group, h]."""
    copies = _with_copies(lambda x, times: jnp.repeat(x, times, axis=1))
    return _decoded(*arrays, **sizes, attention=copies)


@wrong("flops")
def other_heads_among_zeros(*arrays: Array, **sizes: Any) -> Result:
    """Every device computes the queries of all heads, with zeros in the columns of the others;
    multiply by your own columns and rows only."""

    def query(x: Array, w: Array, axis: str) -> Array:
        start = lax.axis_index(axis) * w.shape[1]
        return lax.dynamic_slice_in_dim(x @ among_zeros(w, axis, 1), start, w.shape[1], 1)

    return _decoded(*arrays, **sizes, query=query)


@wrong("errors")
def cached_heads_not_checked(*arrays: Array, **sizes: Any) -> Result:
    """Sizes that do not fit are not refused; raise ValueError if n does not divide num_heads, or if
    neither of num_kv_heads and n divides the other."""
    return _decoded(*arrays, **sizes, check=False)
