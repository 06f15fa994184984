"""Causal attention while keys and values travel round a ring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Contract, MemoryLimit, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import Case
from jaxpar.contracts.context_parallel.common import (
    PARTS,
    RING,
    by_position,
    causal_oracle,
    contiguous,
    merge_without_maximum,
    merged,
    of_devices,
    opposite_blocks,
    past,
    ring_by_hand,
    split_case,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import gathered, hop
from jaxpar.flash import Kept, Part, Pattern, attend, causal, gradients_by_tiles, merge, square
from jaxpar.parallel import context

_mask = by_position(contiguous)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("cp", "dp"))
    n, kv, t = pick(rng, (5, 6)), pick(rng, (1, 3)), pick(rng, (11, 14))
    alone = mesh_of(rng, **{axis: 1, other: 2})
    return (
        split_case(
            f"{axis}={n},{other}=2", axis, a=3 * kv, kv=kv, s=n * 2 * t, h=16, dtype="bfloat16"
        ),
        split_case(alone, axis, b=2, a=5, kv=5, s=t, h=6, draw="wide"),
    )


CONTRACT = Contract(
    kind="program",
    task="return causal attention of this device's queries, while keys and values go round a ring",
    reference=context.ring_attention,
    oracle=causal_oracle(contiguous),
    cases=(
        split_case("cp=8", "cp", kv=4, s=256, h=32),
        split_case("dp=2,cp=3", "cp", a=6, s=96, draw="wide"),
    ),
    draw=_drawn,
    poison=opposite_blocks(of_devices(contiguous)),
    gradient=("q", "k", "v"),
    communication=RING,
    memory=MemoryLimit(
        "the keys and values of one other device: at most twice the library's bytes of "
        "intermediate results; with the gradient, where keys and values may be kept, four times",
        multiple=2,
        gradient_multiple=4,
        programs=("forward", "gradient"),
    ),
    flops=work_is_split(),
    errors=(BadCall(split_case("cp=4", "cp", a=6, kv=4), "the kv heads do not divide the heads"),),
    imports=PARTS,
    # Scores go up to hundreds; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "In round r device i has the keys of device i - r. It sees all of them, none, or, of its "
        "own, those up to each query. attend and merge of jaxpar.flash do the rest.",
        "A query that sees no key of a block must not change: give that block's log-sum-exp a "
        "large negative number, such as -1e30; -inf minus -inf is NaN. Write the rounds as a loop, "
        "lax.fori_loop or lax.scan: unrolled, all blocks are held at once.",
        "JAX's gradient of the loop keeps every block that came by. With jax.checkpoint of a round "
        "it keeps keys and values; with jax.custom_vjp they go round once more, and their "
        "gradients with them: after one hop more these are home.",
    ),
    minimal="Each device needs the keys and values of all devices before it, and the last one "
    "those of all others: n-1 blocks must arrive, one at a time.",
    harder="Send keys both ways round the ring, half of the blocks each, and start each hop before "
    "the block that is here is used.",
)


def _refused(q: Array, k: Array) -> None:
    if q.shape[1] % k.shape[1]:
        raise ValueError("kv heads do not divide heads")


def _by_hand(q: Array, k: Array, v: Array, axis: str, **how: Any) -> Array:
    _refused(q, k)
    return ring_by_hand(q, k, v, axis, how.pop("mask", _mask(axis)), **how)


def _checkpointed(visit: Callable) -> Callable:
    return jax.checkpoint(visit, prevent_cse=False)


def _as_it_is(part: Part) -> Part:
    return part


def _in_a_loop(
    q: Array,
    k: Array,
    v: Array,
    axis: str,
    *,
    wrap: Callable[[Callable], Callable] = _checkpointed,
    keep: Callable[[Part], Part] = _as_it_is,
    join: Callable[[Part, Part], Part] = merge,
    by_scores: Callable[..., Part] = attend,
    hidden: float | None = None,
) -> Array:
    """The rounds in a scan that JAX differentiates, with one step done in another way."""
    _refused(q, k)
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), q.shape[2]

    def visit(state: Any, r: Array) -> tuple[Any, None]:
        (k, v), done = (hop(state[0][0], axis), hop(state[0][1], axis)), state[1]
        o, lse = by_scores(q, k, v, jnp.broadcast_to(r <= i, (1, t, t)))
        part = o, lse if hidden is None else jnp.where(r <= i, lse, hidden)
        return ((k, v), keep(join(done, part))), None

    own = keep(by_scores(q, k, v, past(t)[None]))
    (_, (o, _)), _ = lax.scan(wrap(visit), ((k, v), own), jnp.arange(1, n))
    return o.astype(q.dtype)


@wrong("values")
def ring_mirrored(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The ring goes one way and the mask the other: what is sent to the next device comes from the
    previous one, so round r has the keys of device i - r, and i + r if keys go to the previous
    device."""
    return _by_hand(q, k, v, axis, source=lambda i, r: i + r)


@wrong("values")
def blocks_averaged(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The results of the blocks are averaged; weigh each by exp of its log-sum-exp, as merge
    does."""
    return _by_hand(q, k, v, axis, join=lambda parts: sum(o for o, _ in parts) / len(parts))


@wrong("values")
def blocks_added(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The results of the blocks are added, though the weights in each add up to 1; merge them."""
    return _by_hand(q, k, v, axis, join=lambda parts: sum(o for o, _ in parts))


@wrong("values")
def triangle_in_every_round(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Every block is masked as the own one; of the keys of an earlier device all are seen, and of
    those of a later device none."""
    return _by_hand(q, k, v, axis, mask=lambda r, i, source, t: past(t))


@wrong("values")
def ring_not_causal(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Queries see keys after them; leave out the blocks of later devices, and half of the own
    one."""
    return _by_hand(q, k, v, axis, mask=lambda r, i, source, t: None)


@wrong("values")
def values_stay(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The keys travel and the values do not; send both."""
    return _by_hand(q, k, v, axis, arrive=lambda kv, axis, by: (hop(kv[0], axis), kv[1]))


@wrong("values")
def ring_one_round_short(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """One block is missing: there are n rounds, with n-1 hops between them."""
    return _by_hand(q, k, v, axis, rounds=max(1, lax.axis_size(axis) - 1))


@wrong("values")
def masked_with_infinity(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """A query that sees no key of a block gets NaN: its scores are all -inf, and -inf minus -inf is
    NaN. Use a large negative number, or leave the block out."""
    _refused(q, k)
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), q.shape[2]
    parts = []
    for r in range(n):
        k, v = (hop(k, axis), hop(v, axis)) if r else (k, v)
        seen = _mask(axis)(r, i, (i - r) % n, t)
        o, lse = attend(q, k, v, seen[None])
        parts.append((o, jnp.where(seen.any(-1)[None, None], lse, -jnp.inf)))
    top = jnp.stack([lse for _, lse in parts[1:]] or [parts[0][1]]).max(0)
    weights = [jnp.exp(lse - top)[..., None] for _, lse in parts]
    total = jnp.stack([w * o for w, (o, _) in zip(weights, parts, strict=True)]).sum(0)
    return (total / jnp.stack(weights).sum(0)).astype(q.dtype)


@wrong("values")
def own_block_only(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Each device attends to its own keys only; those of all earlier devices must reach it."""
    _refused(q, k)
    return attend(q, k, v, past(q.shape[2])[None])[0].astype(q.dtype)


@wrong("values")
def ring_in_float32(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The result is float32 whatever q is; cast it to the dtype of q at the end."""
    return _in_a_loop(q, k, v, axis).astype(jnp.float32)


@wrong("values")
def ring_sums_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """What was found so far is kept in the dtype of q, and large results that cancel leave what was
    rounded off them; keep it in float32, and cast the result."""
    return _in_a_loop(q, k, v, axis, keep=lambda part: (part[0].astype(q.dtype), part[1]))


@wrong("values")
def lse_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The log-sum-exp is kept in the dtype of q, and exp makes relative errors of what was rounded
    off; keep it in float32."""
    return _in_a_loop(
        q, k, v, axis, keep=lambda part: (part[0], part[1].astype(q.dtype).astype(jnp.float32))
    )


@wrong("values")
def merged_without_maximum(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """exp of a large log-sum-exp is infinite in float32; subtract the larger one of both first, as
    merge does."""
    return _in_a_loop(q, k, v, axis, join=merge_without_maximum)


@wrong("values")
def hidden_at_minus_100(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The block of a later device gets a log-sum-exp such as -100, and other blocks may have less;
    give it -1e30, or leave it out."""
    return _in_a_loop(q, k, v, axis, hidden=-100.0)


@wrong("gradient")
def ring_cuts_gradient(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """No gradient returns for keys and values that were sent; leave lax.stop_gradient out: the
    derivative of lax.ppermute sends the gradient back."""
    arrive = lambda kv, axis, by: tuple(lax.stop_gradient(hop(x, axis)) for x in kv)  # noqa: E731
    return _by_hand(q, k, v, axis, arrive=arrive)


@wrong("gradient")
def gradients_not_sent_home(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The gradients of keys and values stay where their ring ended, one device short of home; send
    them one hop more."""
    _refused(q, k)
    n, t = lax.axis_size(axis), q.shape[2]

    def forward(q: Array, k: Array, v: Array) -> tuple[Array, tuple]:
        i, parts, kv = lax.axis_index(axis), [attend(q, k, v, past(t)[None])], (k, v)
        for r in range(1, n):
            kv = hop(kv[0], axis), hop(kv[1], axis)
            seen = jnp.broadcast_to(r <= i, (1, t, t))
            parts.append(attend(q, *kv, seen))
        done, *others = parts
        for part in others:
            done = merge(done, part)
        o = done[0].astype(q.dtype)
        return o, (q, k, v, o, done[1])

    def backward(residuals: tuple, do: Array) -> tuple[Array, ...]:
        q, k, v, o, lse = residuals
        i, kept = lax.axis_index(axis), Kept.of(do, o, lse)
        dq, dk, dv = gradients_by_tiles(q, k, v, kept, causal(t=t, size=t))
        for r in range(1, n):
            k, v, dk, dv = (hop(x, axis) for x in (k, v, dk, dv))
            hidden = kept._replace(lse=jnp.where(r <= i, lse, 1e30))
            more = gradients_by_tiles(q, k, v, hidden, _every(t))
            dq, dk, dv = dq + more[0], dk + more[1], dv + more[2]
        return tuple(dx.astype(x.dtype) for dx, x in zip((dq, dk, dv), (q, k, v), strict=True))

    attention = jax.custom_vjp(lambda q, k, v: forward(q, k, v)[0])
    attention.defvjp(forward, backward)
    return attention(q, k, v)


def _every(t: int) -> Pattern:
    return square(t, t)


@wrong("communication")
def kv_heads_repeated_first(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The kv heads are repeated before they travel, a/k times the bytes; send k and v as they are,
    and repeat what arrives, or multiply by groups of query heads."""
    _refused(q, k)
    k, v = (jnp.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    return _by_hand(q, k, v, axis)


@wrong("communication")
def ring_one_hop_too_many(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Keys and values make n hops, back to their own device; n-1 reach all the others. Do the own
    block before the loop, and send first in each round."""
    _refused(q, k)
    arrive = lambda kv, axis, by: (hop(kv[0], axis), hop(kv[1], axis))  # noqa: E731
    parts, i, n, t = [], lax.axis_index(axis), lax.axis_size(axis), q.shape[2]
    kv = k, v
    for r in range(1, n + 1):
        kv = arrive(kv, axis, 1)
        parts.append(attend(q, *kv, _mask(axis)(r, i, (i - r) % n, t)[None]))
    return merged(parts[::-1]).astype(q.dtype)


@wrong("communication")
def keys_gathered(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """All keys and values are gathered on every device; let them travel to a neighbour, one block
    at a time."""
    _refused(q, k)
    t, n = q.shape[2], lax.axis_size(axis)
    k, v = gathered((k, v), axis, 2)
    seen = jnp.arange(n * t)[None] <= lax.axis_index(axis) * t + jnp.arange(t)[:, None]
    return attend(q, k, v, seen[None])[0].astype(q.dtype)


@wrong("communication")
def far_hops(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Keys and values are sent further than to the next device, so one link carries several blocks;
    pass on what arrived."""
    _refused(q, k)
    own, rounds = (k, v), iter(range(1, lax.axis_size(axis)))

    def arrive(kv: Any, axis: str, by: int) -> Any:
        r = next(rounds)
        return hop(own[0], axis, r), hop(own[1], axis, r)

    return _by_hand(q, k, v, axis, arrive=arrive)


@wrong("communication")
def travels_in_float32(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Keys and values travel in float32, whatever dtype they come in; send them as they are."""
    wide, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    return _in_a_loop(wide, k, v, axis).astype(q.dtype)


@wrong("memory")
def rounds_unrolled(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """In a Python loop the scores of all rounds are held at once; write the rounds as a loop of
    JAX, lax.fori_loop or lax.scan."""
    return _by_hand(q, k, v, axis)


@wrong("memory")
def blocks_collected_first(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The blocks of all devices are collected before they are used; use each when it arrives, and
    hold no other."""
    _refused(q, k)
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), q.shape[2]

    def send(kv: Any, _: None) -> tuple[Any, Any]:
        kv = hop(kv[0], axis), hop(kv[1], axis)
        return kv, kv

    @jax.checkpoint
    def visit(done: Any, block: Any) -> tuple[Any, None]:
        r, (k, v) = block
        seen = jnp.broadcast_to(r <= i, (1, t, t))
        return merge(done, attend(q, k, v, seen)), None

    _, blocks = lax.scan(send, (k, v), length=n - 1)
    own = attend(q, k, v, past(t)[None])
    (o, _), _ = lax.scan(visit, own, (jnp.arange(1, n), blocks))
    return o.astype(q.dtype)


@wrong("memory")
def everything_kept(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """For the gradient, the scores of every round are kept; checkpoint a round, or send keys and
    values round once more with jax.custom_vjp."""
    return _in_a_loop(q, k, v, axis, wrap=lambda visit: visit)


@wrong("errors")
def ring_heads_not_refused(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Kv heads that do not divide the heads are not refused; raise ValueError."""
    if q.shape[1] % k.shape[1]:
        return jnp.zeros_like(q)
    return _in_a_loop(q, k, v, axis)
