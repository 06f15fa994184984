"""Causal attention with learned keys and values before the first position."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar import nn
from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.mesh import vary_alike
from jaxpar.parallel import adapters


def _whole(case: Case, q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Any:
    """All heads and examples at once, with every kv head repeated for its queries."""
    b, a, t, h = q.shape
    p = prefix_k.shape[1]
    prefixes = (jnp.broadcast_to(x[None], (b, *x.shape)) for x in (prefix_k, prefix_v))
    keys, values = (
        jnp.repeat(jnp.concatenate(both, axis=2), a // k.shape[1], axis=1)
        for both in zip(prefixes, (k, v), strict=True)
    )
    scores = jnp.einsum("bath,bash->bats", q, keys) / math.sqrt(h)
    seen = jnp.arange(p + t)[None] <= p + jnp.arange(t)[:, None]
    y = jnp.einsum("bats,bash->bath", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), values)
    return [Expected(_blocks(case, y))]


def _blocks(case: Case, y: Array) -> Array:
    """What each device holds: heads are split over the axis that splits the prefix."""
    heads = case.args["prefix_k"].layout.split()[0].partition("_")[2]
    sizes = [n if name == heads else 1 for name, n in case.sizes.items()]
    rows = [1 if name == heads else n for name, n in case.sizes.items()]
    b, a, t, h = y.shape
    by_rows = y.reshape(*rows, b // math.prod(rows), *sizes, a // math.prod(sizes), t, h)
    split = len(rows)
    by_heads = jnp.moveaxis(by_rows, split, 2 * split)
    return by_heads.reshape(*case.sizes.values(), b // math.prod(rows), -1, t, h)


def _case(
    mesh: str,
    axis: str,
    heads: int,
    kv_heads: int,
    *,
    b: int,
    t: int,
    p: int,
    h: int,
    dtype: str = "float32",
    draw: Literal["normal", "wide"] = "normal",
) -> Case:
    """Heads are those of all devices of the axis; b is of one device, and the others split it."""
    others = [name for name in parse_mesh(mesh) if name != axis]
    rows = "_".join(["b", *others])
    b *= math.prod(parse_mesh(mesh)[name] for name in others)
    kv = ArraySpec((b, kv_heads, t, h), f"{rows} k_{axis} t h", dtype)
    prefix = ArraySpec((kv_heads, p, h), f"k_{axis} p h", dtype)
    args = {
        "q": ArraySpec((b, heads, t, h), f"{rows} a_{axis} t h", dtype, draw),
        "k": kv,
        "v": kv,
        "prefix_k": prefix,
        "prefix_v": prefix,
    }
    return Case(mesh, args)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """In low precision, with more heads; on one device, with scores of hundreds."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, m = pick(rng, ((5, 2), (3, 4), (6, 2)))
    kv, t, p = pick(rng, (2, 4)), pick(rng, (19, 23)), pick(rng, (25, 29))
    mesh = mesh_of(rng, **{axis: n, other: m})
    alone = mesh_of(rng, **{axis: 1, other: 2})
    return (
        _case(mesh, axis, 2 * n * kv, n * kv, b=3, t=t, p=p, h=10, dtype="bfloat16"),
        _case(alone, axis, 15, 5, b=1, t=t + 9, p=p + 12, h=14, draw="wide"),
    )


CONTRACT = Contract(
    kind="program",
    task="return causal attention in which every query also sees the whole prefix",
    reference=adapters.prefix_attention,
    oracle=_whole,
    cases=(
        _case("tp=4", "tp", 8, 4, b=2, t=16, p=6, h=8),
        _case("dp=2,tp=2", "tp", 6, 6, b=4, t=7, p=12, h=4),
    ),
    draw=_drawn,
    gradient=("q", "k", "v", "prefix_k", "prefix_v"),
    communication=Communication(
        "nothing is sent forward; backward one all-reduce of the prefix's gradients over the "
        "devices that have other examples",
        forward=((),),
    ),
    flops=work_is_split(),
    imports=("jaxpar.nn.attention", "jaxpar.flash.attend", "jaxpar.flash.merge"),
    # Scores go up to hundreds. Softmax turns what is rounded off them into relative errors, and the
    # log-sum-exp of a part, by which parts are merged, is rounded once more.
    tolerance=16,
    hints=(
        "A prefix is keys and values that are there before the first position. Which queries see "
        "them? Are they rotated?",
        "Put the prefix before k and v, for each example: [b, k, p + t, h]. Query i sees p + i + 1 "
        "of them. Queries are those of the t positions only.",
        "jnp.tril(jnp.ones((t, p + t), bool), p) is the mask. Type the prefix as varying over all "
        "axes (vary_alike of jaxpar.mesh) before you repeat it for each example: otherwise a "
        "gradient of all copies is summed over the devices.",
    ),
    minimal="Heads are independent, and so are examples; only the prefix's gradient is a sum over "
    "all of them.",
    harder="Compute attention to the prefix and to the rest apart, and merge both by their "
    "log-sum-exp (lesson 14): then flash kernels can be used as they are.",
)

Mask = Callable[[int, int], Array]


def _right_mask(t: int, p: int) -> Array:
    return jnp.tril(jnp.ones((t, p + t), bool), p)


def _before(prefix: Array, x: Array) -> Array:
    repeated = jnp.broadcast_to(prefix[None], (len(x), *prefix.shape))
    return jnp.concatenate([repeated, x], axis=2)


def _softmax(scores: Array) -> Array:
    return jax.nn.softmax(scores)


def _attention(
    q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array,
    *,
    mask: Mask = _right_mask,
    joined: Callable[[Array, Array], Array] = _before,
    alike: Callable[..., tuple[Array, ...]] = vary_alike,
    softmax: Callable[[Array], Array] = _softmax,
    heads: Callable[[Array, int], Array] = lambda x, times: jnp.repeat(x, times, axis=1),
    scale: Callable[[int], float] = lambda h: h**-0.5,
) -> Array:  # fmt: skip
    """A right answer, of which mistakes change a step."""
    q, k, v, prefix_k, prefix_v = alike(q, k, v, prefix_k, prefix_v)
    keys, values = joined(prefix_k, k), joined(prefix_v, v)
    times = q.shape[1] // k.shape[1]
    scores = jnp.einsum("bath,bash->bats", q, heads(keys, times)).astype(jnp.float32)
    seen = mask(q.shape[2], prefix_k.shape[1])[None, None]
    weights = softmax(jnp.where(seen, scores * scale(q.shape[3]), -1e30)).astype(v.dtype)
    return jnp.einsum("bats,bash->bath", weights, heads(values, times))


@wrong("values")
def prefix_left_out(q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Array:
    """This is attention without the prefix; every query sees all of it, too."""
    return nn.attention(q, k, v)


@wrong("values")
def causal_over_the_prefix(*arrays: Array) -> Array:
    """The causal mask begins with the prefix, so that the first queries see only a part of it, and
    no query its own position; every query sees the whole prefix."""
    return _attention(*arrays, mask=lambda t, p: jnp.tril(jnp.ones((t, p + t), bool)))


@wrong("values")
def own_position_hidden(*arrays: Array) -> Array:
    """A query does not see its own position; query i sees the prefix and positions 0 to i."""
    return _attention(*arrays, mask=lambda t, p: jnp.tril(jnp.ones((t, p + t), bool), p - 1))


@wrong("values")
def next_position_seen(*arrays: Array) -> Array:
    """A query sees the position after its own; query i sees the prefix and positions 0 to i."""
    return _attention(*arrays, mask=lambda t, p: jnp.tril(jnp.ones((t, p + t), bool), p + 1))


@wrong("values")
def nothing_hidden(*arrays: Array) -> Array:
    """Queries see later positions; only the prefix is seen by all."""
    return _attention(*arrays, mask=lambda t, p: jnp.ones((t, p + t), bool))


@wrong("values")
def prefix_for_the_first_query_alone(*arrays: Array) -> Array:
    """Only the first query sees the prefix; all queries do."""

    def mask(t: int, p: int) -> Array:
        first = jnp.arange(t)[:, None] == 0
        return _right_mask(t, p) & (first | (jnp.arange(p + t)[None] >= p))

    return _attention(*arrays, mask=mask)


@wrong("values")
def prefix_behind(*arrays: Array) -> Array:
    """The prefix stands behind the keys, where the mask takes positions for it; put it before
    them."""

    def behind(prefix: Array, x: Array) -> Array:
        repeated = jnp.broadcast_to(prefix[None], (len(x), *prefix.shape))
        return jnp.concatenate([x, repeated], axis=2)

    return _attention(*arrays, joined=behind)


@wrong("values")
def two_softmaxes_added(q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Array:
    """Attention to the prefix and to the positions have a softmax each, and are added; there is one
    softmax over both."""
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    times = q.shape[1] // k.shape[1]
    of_prefix = jnp.einsum("bath,ash->bats", q, jnp.repeat(prefix_k, times, 0)) / q.shape[3] ** 0.5
    extra = jnp.einsum("bats,ash->bath", jax.nn.softmax(of_prefix), jnp.repeat(prefix_v, times, 0))
    return nn.attention(q, k, v) + extra.astype(q.dtype)


@wrong("values")
def prefix_rotated(q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Array:
    """The prefix's keys are rotated by positions; they have none, and are used as they are."""
    rotated = nn.rotary(prefix_k[None], jnp.arange(prefix_k.shape[1]))[0]
    return _attention(q, k, v, rotated, prefix_v)


@wrong("values")
def prefixes_swapped(q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Array:
    """The prefix's keys are used as values, and its values as keys."""
    return _attention(q, k, v, prefix_v, prefix_k)


@wrong("values")
def prefix_of_zeros_for_values(
    q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array
) -> Array:
    """The prefix only takes weight away from the positions: its values are left out."""
    return _attention(q, k, v, prefix_k, 0 * prefix_v)


@wrong("values")
def scores_not_scaled(*arrays: Array) -> Array:
    """The scores are not divided by sqrt(h)."""
    return _attention(*arrays, scale=lambda h: 1.0)


@wrong("values")
def prefixed_heads_tiled(*arrays: Array) -> Array:
    """The kv heads are repeated as a whole, 0 1 0 1, but the query heads of one kv head are
    neighbours, 0 0 1 1."""
    return _attention(*arrays, heads=lambda x, times: jnp.concatenate([x] * times, axis=1))


@wrong("values")
def exponentials_overflow(*arrays: Array) -> Array:
    """exp of a score above 88 is infinite in float32; subtract the largest score of each query, as
    jax.nn.softmax does."""

    def softmax(scores: Array) -> Array:
        exponentials = jnp.exp(scores)
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    return _attention(*arrays, softmax=softmax)


@wrong("gradient")
def prefix_is_frozen(q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Array:
    """The prefix has no gradient; it is what is trained."""
    prefixes = (jax.lax.stop_gradient(x) for x in (prefix_k, prefix_v))
    return _attention(q, k, v, *prefixes)


@wrong("communication")
def repeated_before_the_cast(*arrays: Array) -> Array:
    """The prefix is repeated for each example before it is typed as varying, so that a gradient of
    all copies is summed over the devices; type it first."""
    return _attention(*arrays, alike=lambda *arrays: arrays)


@wrong("flops")
def queries_for_the_prefix(q: Array, k: Array, v: Array, prefix_k: Array, prefix_v: Array) -> Array:
    """The prefix has queries, too, whose results are dropped; only the t positions ask."""
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    p = prefix_k.shape[1]
    more = jnp.concatenate([jnp.zeros_like(q, shape=(*q.shape[:2], p, q.shape[3])), q], axis=2)
    return nn.attention(more, _before(prefix_k, k), _before(prefix_v, v))[:, :, p:]
