"""Causal attention where each device computes some heads for all positions."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Limit, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import Case, Sizes
from jaxpar.contracts.context_parallel.common import (
    PARTS,
    causal_oracle,
    contiguous,
    kv_bytes,
    past,
    split_case,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import as_it_is, gathered, own_shard
from jaxpar.flash import attend
from jaxpar.parallel import context


def _exchanged(sizes: Sizes) -> float:
    """The wire bytes of q, the result, k and v, where each kv head goes to whoever needs it."""
    n, kv_heads = sizes.n(), sizes.case.args["k"].shape[1]
    return (n - 1) / n * (2 * sizes.bytes("q") + max(1, n / kv_heads) * kv_bytes(sizes))


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("cp", "dp"))
    n, t = pick(rng, (5, 7)), pick(rng, (9, 11))
    alone = mesh_of(rng, **{axis: 1, other: 2})
    return (
        split_case(f"{axis}={n}", axis, b=2, a=4 * n, kv=2 * n, s=n * t, h=16, dtype="bfloat16"),
        split_case(alone, axis, b=2, a=9, kv=3, s=t, h=6, draw="wide"),
        split_case(f"{other}=8", other, b=1, a=16, kv=pick(rng, (1, 2)), s=8 * t, h=3),
    )


CONTRACT = Contract(
    kind="program",
    task="exchange positions for heads, and return causal attention of this device's positions",
    reference=context.ulysses_attention,
    oracle=causal_oracle(contiguous),
    cases=(
        split_case("cp=4", "cp", a=8, kv=4, s=48),
        split_case("dp=2,cp=6", "cp", a=12, kv=2, s=60, h=4),
        split_case("cp=3", "cp", a=3, kv=3, s=24, h=6),
    ),
    draw=_drawn,
    gradient=("q", "k", "v"),
    communication=Communication(
        "q, k, v and the result once each, in their own dtype; kv heads fewer than n go to n/kv "
        "devices each; backward the same",
        forward=((Limit(("all_to_all", "permute"), "axis", _exchanged),),),
        backward="forward",
    ),
    flops=work_is_split(1.9),  # the library skips tiles that no query sees
    errors=(
        BadCall(split_case("cp=4", "cp", a=6, kv=6), "n does not divide the heads"),
        BadCall(
            split_case("cp=6", "cp", a=12, kv=4, s=48), "neither of n and kv divides the other"
        ),
        BadCall(split_case("cp=2", "cp", a=6, kv=4), "the kv heads do not divide the heads"),
    ),
    imports=PARTS,
    # Scores go up to hundreds; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "Heads never meet in attention. What must a device have to compute some heads alone, and "
        "which collective exchanges the dim that is split?",
        "lax.all_to_all(q, axis, split_axis=1, concat_axis=2, tiled=True) takes [b a t/n h] to [b "
        "a/n t h]. Exchange q, k and v, attend with a causal mask over all positions, and exchange "
        "the result the other way.",
        "With fewer kv heads than devices, several devices need the same one: jnp.repeat the kv "
        "heads to n along dim 1 before the exchange, and no further.",
    ),
    minimal="A device has all heads of 1/n of the positions and needs 1/n of the heads of all "
    "positions: (n-1)/n of what it has must leave, of q, k, v and the result.",
    harder="Let the kv heads be neither a multiple nor a divisor of n: which device needs which "
    "heads, and what does a permute for each pair of devices cost?",
)


def _exchange(x: Array, axis: str) -> Array:
    """[b heads t h] to [b heads/n n*t h]."""
    return lax.all_to_all(x, axis, split_axis=1, concat_axis=2, tiled=True)


def _back(x: Array, axis: str) -> Array:
    return lax.all_to_all(x, axis, split_axis=2, concat_axis=1, tiled=True)


def _causal(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v, past(q.shape[2])[None])[0].astype(q.dtype)


def _repeated(x: Array, n: int, heads: int) -> Array:
    return jnp.repeat(x, max(1, n // x.shape[1]), axis=1)


def _fit(q: Array, k: Array, axis: str) -> bool:
    n, a, kv = lax.axis_size(axis), q.shape[1], k.shape[1]
    return not (a % n or a % kv or (kv % n and n % kv))


def _refused(q: Array, k: Array, axis: str) -> None:
    if not _fit(q, k, axis):
        raise ValueError("heads and devices do not fit")


def _ulysses(
    q: Array,
    k: Array,
    v: Array,
    axis: str,
    *,
    exchange: Callable[[Array, str], Array] = _exchange,
    back: Callable[[Array, str], Array] = _back,
    repeat: Callable[[Array, int, int], Array] = _repeated,
    attention: Callable[..., Array] = _causal,
    check: bool = True,
) -> Array:
    """Both exchanges, with one step done in another way."""
    n, a = lax.axis_size(axis), q.shape[1]
    if check:
        _refused(q, k, axis)
    k, v = repeat(k, n, a), repeat(v, n, a)
    return back(attention(*(exchange(x, axis) for x in (q, k, v))), axis)


@wrong("values")
def not_exchanged_back(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The result has some heads of all positions; exchange heads for positions again."""
    return _ulysses(q, k, v, axis, back=as_it_is)


@wrong("values")
def heads_and_positions_swapped(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The parts of other devices come between the positions, not after one another: gather along
    the dim of positions, with tiled=True, in the order of the devices."""

    def exchange(x: Array, axis: str) -> Array:
        b, heads, t, h = x.shape
        parts = lax.all_to_all(x, axis, split_axis=1, concat_axis=2, tiled=True)
        n = lax.axis_size(axis)
        return parts.reshape(b, heads // n, n, t, h).swapaxes(2, 3).reshape(b, heads // n, -1, h)

    return _ulysses(q, k, v, axis, exchange=exchange)


@wrong("values")
def heads_interleaved(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Device i gets heads i, n+i and so on, whose kv heads are other ones; it gets the i-th of n
    groups of consecutive heads."""

    def exchange(x: Array, axis: str) -> Array:
        b, heads, t, h = x.shape
        n = lax.axis_size(axis)
        in_turn = x.reshape(b, heads // n, n, t, h).swapaxes(1, 2).reshape(x.shape)
        return _exchange(in_turn, axis)

    return _ulysses(q, k, v, axis, exchange=exchange)


@wrong("values")
def mask_of_own_positions(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The mask is the triangle of one device's positions, repeated; after the exchange a device has
    all positions, and needs the triangle of all."""

    def attention(q: Array, k: Array, v: Array) -> Array:
        n = lax.axis_size(axis)
        seen = jnp.tile(past(q.shape[2] // n), (n, n))
        return attend(q, k, v, seen[None])[0].astype(q.dtype)

    return _ulysses(q, k, v, axis, attention=attention)


@wrong("values")
def ulysses_not_causal(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Queries see keys after them; mask these."""
    return _ulysses(q, k, v, axis, attention=lambda q, k, v: attend(q, k, v)[0].astype(q.dtype))


@wrong("values")
def kv_heads_tiled(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The kv heads are repeated as a whole, 0 1 0 1, so that device i gets kv head i % kv; its
    query heads belong to head i*kv//n: use jnp.repeat."""

    def tile(x: Array, n: int, heads: int) -> Array:
        return jnp.concatenate([x] * max(1, n // x.shape[1]), axis=1)

    return _ulysses(q, k, v, axis, repeat=tile)


@wrong("values")
def own_positions_only(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Each device attends to its own positions only; exchange positions for heads first."""
    return _ulysses(q, k, v, axis, exchange=as_it_is, back=as_it_is, repeat=lambda x, n, a: x)


@wrong("values")
def result_summed(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The result is summed over the devices; each has its own heads, which are no parts of a
    sum."""
    return lax.psum(_ulysses(q, k, v, axis), axis)


@wrong("values")
def ulysses_returns_float32(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The result is float32 whatever q is; cast it to the dtype of q."""
    return _ulysses(q, k, v, axis).astype(jnp.float32)


@wrong("gradient")
def gradient_of_keys_cut(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """No gradient returns for the keys that were sent; leave lax.stop_gradient out."""
    return _ulysses(q, lax.stop_gradient(k), v, axis)


@wrong("communication")
def everything_gathered(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """q, k and v are gathered on every device, which computes all heads; exchange positions for
    heads with lax.all_to_all."""
    _refused(q, k, axis)
    return own_shard(_causal(*gathered((q, k, v), axis, 2)), axis, 2)


@wrong("communication")
def gathered_heads_cut(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """All positions of all heads are gathered, and the device's own heads are cut out of them; an
    all-to-all sends each device only what it needs."""

    def exchange(x: Array, axis: str) -> Array:
        return own_shard(gathered(x, axis, 2), axis, 1)

    return _ulysses(q, k, v, axis, exchange=exchange)


@wrong("communication")
def kv_heads_repeated_to_all(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The kv heads are repeated to as many as query heads before they are sent; send no more than n
    of them, and let each device repeat what it gets."""
    return _ulysses(q, k, v, axis, repeat=lambda x, n, a: jnp.repeat(x, a // x.shape[1], axis=1))


@wrong("communication")
def sends_float32(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """q, k and v are sent as float32, whatever they are; send them in their own dtype."""
    wide, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    return _ulysses(wide, k, v, axis).astype(q.dtype)


@wrong("errors")
def heads_not_refused(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Heads that do not fit are not refused; raise ValueError if n does not divide the heads, if
    the kv heads do not, or if of n and the kv heads neither divides the other."""
    if not _fit(q, k, axis):
        return jnp.zeros_like(q)
    return _ulysses(q, k, v, axis, check=False)
