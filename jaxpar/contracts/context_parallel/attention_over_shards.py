"""Attention of queries that all devices have to keys that are split over the devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import on_every_device, work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.context_parallel.common import (
    PARTS,
    attended,
    contiguous,
    in_float32,
    of_devices,
    opposite_blocks,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import Step, as_it_is, enter, gathered
from jaxpar.flash import attend
from jaxpar.parallel import context


def _whole(case: Case, q: Array, k: Array, v: Array) -> list[Expected]:
    y = attended(q, k, v)
    others = [n for name, n in case.sizes.items() if name != case.kwargs["axis"]]
    return [Expected(on_every_device(case, y.reshape(*others, -1, *y.shape[1:])))]


def _all_reduces(sizes: Sizes) -> float:
    """An all-reduce of q in float32, and two of a number for each row, or one of these gathered."""
    n, q = sizes.n(), in_float32(sizes, "q")
    rows = q / sizes.case.args["q"].shape[-1]
    return 2 * (n - 1) / n * (q + rows) + max(2 * (n - 1) / n, n - 1) * rows


def _of_queries(sizes: Sizes) -> float:
    """An all-reduce of the gradient of q, and a number for each row from every other device."""
    n = sizes.n()
    rows = in_float32(sizes, "q") / sizes.case.args["q"].shape[-1]
    return 2 * (n - 1) / n * sizes.bytes("q") + (n - 1) * rows


def _case(
    mesh: str,
    axis: str,
    *,
    b: int = 2,
    a: int = 6,
    kv: int = 2,
    t: int = 3,
    s: int = 80,
    h: int = 8,
    dtype: str = "float32",
    draw: Any = "normal",
) -> Case:
    """Examples are split over the other axes; b is of one device."""
    others = [name for name in parse_mesh(mesh) if name != axis]
    examples = "_".join(["b", *others])
    for name in others:
        b *= parse_mesh(mesh)[name]
    keys = ArraySpec((b, kv, s, h), f"{examples} k s_{axis} h", dtype)
    q = ArraySpec((b, a, t, h), f"{examples} a t h", dtype, draw)
    return Case(mesh, {"q": q, "k": keys, "v": keys}, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "cp"))
    n, t, kv = pick(rng, (5, 6)), pick(rng, (7, 9, 11)), pick(rng, (3, 5))
    mesh, s = mesh_of(rng, **{axis: n, other: 2}), pick(rng, (23, 31))
    alone = mesh_of(rng, **{axis: 1, other: 3})
    return (
        _case(mesh, axis, b=3, a=4 * kv, kv=kv, t=t, s=n * s, h=16, dtype="bfloat16"),
        _case(alone, axis, b=1, a=7, kv=7, t=t + 1, s=s, h=5, draw="wide"),
    )


CONTRACT = Contract(
    kind="program",
    task="return attention of q to the keys of all devices, of which this device has a part",
    reference=context.attention_over_shards,
    oracle=_whole,
    cases=(
        _case("tp=4", "tp"),
        _case("dp=2,cp=3", "cp", b=1, a=4, kv=4, t=5, s=36, h=4, draw="wide"),
    ),
    draw=_drawn,
    poison=opposite_blocks(of_devices(contiguous)),
    gradient=("q", "k", "v"),
    communication=Communication(
        "all-reduces of the size of the result and of two numbers for each of its rows, in "
        "float32; backward one all-reduce of q",
        forward=((Limit(("all_reduce", "all_gather"), "axis", _all_reduces),),),
        backward=((Limit(("all_reduce", "reduce_scatter"), "axis", _of_queries),),),
    ),
    flops=work_is_split(),
    errors=(BadCall(_case("tp=4", "tp", a=6, kv=4), "the kv heads do not divide the heads"),),
    imports=PARTS,
    # Scores go up to hundreds; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "Each device attends to its own keys. What else must it know of its scores, so that the "
        "results of all devices can be weighed against each other?",
        "attend of jaxpar.flash returns a result and the log-sum-exp of each row. The weight of a "
        "device is exp of its log-sum-exp, and the result is a weighted mean over the devices.",
        "Subtract the largest log-sum-exp of all devices first: lax.pmax of lax.stop_gradient of "
        "it. Then lax.psum both the weighted result and the weight, and divide. Cast q with "
        "lax.pcast once, before its use.",
    ),
    minimal="Every element of the result is a sum over the devices, and all devices need it: an "
    "all-reduce. Two numbers for each row say how much each device's result weighs.",
    harder="Let each device know how many of its keys are valid, as in the cache of a request that "
    "is still short, and let some have none.",
)


def _own_part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    return attend(q, k, v)


def _wide(x: Array) -> Array:
    return x.astype(jnp.float32)


def _shards(
    q: Array,
    k: Array,
    v: Array,
    *,
    axis: str,
    enter: Step = enter,
    part: Callable[..., tuple[Array, Array]] = _own_part,
    top: Step = lambda lse, axis: lax.pmax(lax.stop_gradient(lse), axis),
    check: bool = True,
) -> Array:
    """The weighted mean over the devices, with one step done in another way."""
    if check and q.shape[1] % k.shape[1]:
        raise ValueError("kv heads do not divide heads")
    o, lse = part(enter(q, axis), k, v)
    weight = jnp.exp(lse - top(lse, axis))[..., None]
    total, weights = lax.psum((o * weight, weight), axis)
    return (total / weights).astype(q.dtype)


@wrong("values")
def mean_of_results(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The results of all devices are averaged, as if the keys of each weighed the same; weigh them
    by exp of their log-sum-exp."""
    o, _ = attend(enter(q, axis), k, v)
    return lax.pmean(o, axis).astype(q.dtype)


@wrong("values")
def sum_of_results(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The results of all devices are added, though the weights of each device's keys add up to 1 by
    themselves; take a weighted mean."""
    o, _ = attend(enter(q, axis), k, v)
    return lax.psum(o, axis).astype(q.dtype)


@wrong("values")
def own_keys_only(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Each device returns attention to its own keys; merge the results of all devices."""
    return attend(enter(q, axis), k, v)[0].astype(q.dtype)


@wrong("values")
def maximum_of_each_device(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Each device subtracts its own largest score before exp, so that the sums are on different
    scales; subtract the largest of all devices, by lax.pmax."""
    return _shards(q, k, v, axis=axis, top=lambda lse, axis: lax.stop_gradient(lse))


@wrong("values")
def no_maximum(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """exp of a large score is infinite in float32; subtract the largest log-sum-exp of all devices
    first."""
    return _shards(q, k, v, axis=axis, top=lambda lse, axis: jnp.zeros_like(lse))


@wrong("values")
def scores_not_scaled(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The scores are not divided by sqrt(h)."""
    h = q.shape[-1]
    return _shards(q, k, v, axis=axis, part=lambda q, k, v: attend(q, k * h**0.5, v))


@wrong("values")
def kv_heads_in_turn(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The kv heads are repeated as a whole, 0 1 0 1, but the query heads of one kv head are
    neighbours, 0 0 1 1: use jnp.repeat."""
    times = q.shape[1] // k.shape[1]
    k, v = (jnp.concatenate([x] * times, axis=1) for x in (k, v))
    return _shards(q, k, v, axis=axis)


@wrong("values")
def causal_on_each_device(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Keys are masked by their place on the device; nothing is masked here, since all keys are of
    earlier tokens."""
    t, s = q.shape[2], k.shape[2]
    seen = jnp.arange(s)[None] <= jnp.arange(t)[:, None]
    return _shards(q, k, v, axis=axis, part=lambda q, k, v: attend(q, k, v, seen[None]))


@wrong("values")
def returns_float32(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The result is float32 whatever q is; cast it to the dtype of q at the end."""
    return _shards(q, k, v, axis=axis).astype(jnp.float32)


@wrong("values")
def sums_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The sums over the devices are in the dtype of q, and large terms that cancel leave what was
    rounded off them; sum in float32, and cast the result."""
    o, lse = attend(enter(q, axis), k, v)
    weight = jnp.exp(lse - lax.pmax(lax.stop_gradient(lse), axis))[..., None]
    rounded = (o * weight).astype(q.dtype), weight.astype(q.dtype)
    total, weights = lax.psum(rounded, axis)
    return total / weights


@wrong("values")
def scores_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The scores are in the dtype of q, and exp makes relative errors of what was rounded off;
    multiply with preferred_element_type=jnp.float32, or use attend."""

    def part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
        scores = _wide(jnp.einsum("bath,bash->bats", q, k) / math.sqrt(q.shape[-1]))
        lse = jax.nn.logsumexp(scores, axis=-1)
        return jnp.einsum("bats,bash->bath", jnp.exp(scores - lse[..., None]), _wide(v)), lse

    return _shards(q, k, v, axis=axis, part=part)


@wrong("values")
def lse_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The log-sum-exp is in the dtype of q, and exp makes relative errors of what was rounded off;
    leave it in float32."""

    def part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        o, lse = attend(q, k, v)
        return o, _wide(lse.astype(q.dtype))

    return _shards(q, k, v, axis=axis, part=part)


@wrong("values")
def results_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Each device rounds its result to the dtype of q before it is weighed, and large results that
    cancel leave what was rounded off them; keep it in float32, and cast the sum."""

    def part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        o, lse = attend(q, k, v)
        return _wide(o.astype(q.dtype)), lse

    return _shards(q, k, v, axis=axis, part=part)


@wrong("gradient")
def result_detached(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The weights are detached from the gradient; only the largest log-sum-exp, which cancels, may
    be under lax.stop_gradient."""

    def part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        o, lse = attend(q, k, v)
        return o, lax.stop_gradient(lse)

    return _shards(q, k, v, axis=axis, part=part)


@wrong("communication")
def keys_gathered(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """All keys and values are gathered on every device; send results, which are as large as q."""
    k, v = gathered((k, v), axis, 2)
    return attend(enter(q, axis), k, v)[0].astype(q.dtype)


@wrong("communication")
def results_gathered(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The results of all devices are gathered and merged everywhere; sum weighted results with
    lax.psum."""
    o, lse = attend(enter(q, axis), k, v)
    o, lse = lax.all_gather((o, lse), axis)
    weight = jax.nn.softmax(lse, axis=0)[..., None]
    return (o * weight).sum(0).astype(q.dtype)


@wrong("communication")
def q_not_cast(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """q is used twice, and each use sums a gradient over the devices; cast it once, with
    lax.pcast(q, axis, to='varying'), before its first use."""
    half = k.shape[2] // 2

    def halves(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        (o, lse), (p, other) = (
            attend(q, k[:, :, c], v[:, :, c]) for c in (slice(half), slice(half, None))
        )
        both = jnp.logaddexp(lse, other)
        return o * jnp.exp(lse - both)[..., None] + p * jnp.exp(other - both)[..., None], both

    return _shards(q, k, v, axis=axis, enter=as_it_is, part=halves)


@wrong("errors")
def heads_not_refused(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Kv heads that do not divide the heads are not refused; raise ValueError."""
    a, kv = q.shape[1], k.shape[1]
    if a % kv:
        k, v = k[:, : a // kv], v[:, : a // kv]
        k, v = (jnp.repeat(x, -(-a // x.shape[1]), axis=1)[:, :a] for x in (k, v))
    return _shards(q, k, v, axis=axis, check=False)
