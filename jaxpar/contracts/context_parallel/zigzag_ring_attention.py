"""Causal attention round a ring in which every device computes as much as every other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Contract, FlopsLimit, MemoryLimit, wrong
from jaxpar.contracts.case import Case
from jaxpar.contracts.context_parallel.common import (
    NEVER,
    PARTS,
    RING,
    by_position,
    causal_oracle,
    contiguous,
    merge_without_maximum,
    of_devices,
    opposite_blocks,
    past,
    ring_by_hand,
    split_case,
    zigzag,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import gathered, hop
from jaxpar.flash import Part, attend, merge
from jaxpar.parallel import context


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("cp", "dp"))
    n, kv, chunk = pick(rng, (5, 6)), pick(rng, (1, 5)), pick(rng, (10, 13))
    alone = mesh_of(rng, **{axis: 1, other: 2})
    return (
        split_case(
            f"{axis}={n},{other}=2", axis, a=3 * kv, kv=kv, s=2 * n * chunk, h=16, dtype="bfloat16"
        ),
        split_case(alone, axis, b=2, a=7, kv=7, s=2 * chunk, h=6, draw="wide"),
        split_case(f"{other}={n + 2}", other, b=3, a=2 * kv, kv=kv, s=(2 * n + 4) * chunk, h=4),
    )


CONTRACT = Contract(
    kind="program",
    task="return causal attention round a ring, with two half blocks in each round after the first",
    reference=context.zigzag_ring_attention,
    oracle=causal_oracle(zigzag),
    cases=(
        split_case("cp=4", "cp", a=6, s=256),
        split_case("dp=2,cp=3", "cp", a=4, kv=4, s=120, draw="wide"),
    ),
    draw=_drawn,
    poison=opposite_blocks(of_devices(zigzag, chunks=2)),
    gradient=("q", "k", "v"),
    communication=RING,
    memory=MemoryLimit(
        "the keys and values of one other device: at most twice the library's bytes of "
        "intermediate results; with the gradient, where keys and values may be kept, four times",
        multiple=2,
        gradient_multiple=4,
        programs=("forward", "gradient"),
    ),
    flops=FlopsLimit(
        "(2n+1)/4n of all scores, on every device: at most 1.05 times the library's flops; a "
        "gradient may compute the forward pass again",
        multiple=1.05,
        programs=("forward", "gradient"),
        may_recompute=True,
    ),
    errors=(
        BadCall(split_case("cp=4", "cp", s=36), "a device has an odd number of positions"),
        BadCall(split_case("cp=4", "cp", a=6, kv=4), "the kv heads do not divide the heads"),
    ),
    imports=PARTS,
    # Scores go up to hundreds; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "Draw the 2n by 2n half blocks of scores, and mark those of one device. In a round, the "
        "chunks that arrive are j and 2n-1-j: which of them do chunks i and 2n-1-i see, if j is "
        "before i, and if it is after?",
        "The later queries always see the earlier chunk that arrives. Beside that, the earlier "
        "queries see it if j < i; otherwise the later queries see the later chunk, too. Nothing of "
        "this is masked. Of the own block, three half blocks count, two of them triangles.",
        "lax.cond would compute both ways in the program. Choose the inputs of the second half "
        "block by jnp.where(j < i, ...), and merge its result into the earlier queries or into the "
        "later ones: where it does not belong, give it a log-sum-exp of -1e30.",
    ),
    minimal="Of all pairs of a query and a key, half count. With two chunks from both ends of the "
    "sequence every device has as many of them, in every round, so that no round waits for one.",
    harder="Pack documents into the sequence: which half blocks are then empty on which device, "
    "and does any fixed layout keep the work equal?",
)


def _refused(q: Array, k: Array) -> None:
    if q.shape[2] % 2 or q.shape[1] % k.shape[1]:
        raise ValueError("sizes do not fit")


def _halves(x: Array) -> tuple[Array, Array]:
    first, second = jnp.split(x, 2, axis=2)
    return first, second


def _unless(nothing: Array, part: Part) -> Part:
    return part[0], jnp.where(nothing, NEVER, part[1])


def _own_halves(q: Array, k: Array, v: Array) -> tuple[Part, Part]:
    """The own block in three half blocks."""
    (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
    triangle = past(q_low.shape[2])[None]
    low = attend(q_low, k_low, v_low, triangle)
    return low, merge(attend(q_high, k_low, v_low), attend(q_high, k_high, v_high, triangle))


def _own_without_lower_square(q: Array, k: Array, v: Array) -> tuple[Part, Part]:
    (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
    triangle = past(q_low.shape[2])[None]
    return attend(q_low, k_low, v_low, triangle), attend(q_high, k_high, v_high, triangle)


def _chosen(q: Array, k: Array, v: Array, before: Array, low: Part, high: Part) -> tuple:
    """Two half blocks: one that always counts, and one whose inputs are chosen."""
    (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
    high = merge(high, attend(q_high, k_low, v_low))
    inputs = ((q_low, q_high), (k_low, k_high), (v_low, v_high))
    other = attend(*(jnp.where(before, x, y) for x, y in inputs))
    return merge(low, _unless(~before, other)), merge(high, _unless(before, other))


def _in_halves(
    q: Array,
    k: Array,
    v: Array,
    axis: str,
    *,
    own: Callable[..., tuple] = _own_halves,
    visit: Callable[..., tuple] = _chosen,
    before: Callable[[Array, Array], Array] = lambda source, i: source < i,
    wrap: Callable[[Callable], Callable] = jax.checkpoint,
) -> Array:
    """A ring in a loop, with one step done in another way."""
    _refused(q, k)
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def one_round(state: Any, r: Array) -> tuple[Any, None]:
        (k, v), low, high = state
        k, v = hop(k, axis), hop(v, axis)
        low, high = visit(q, k, v, before((i - r) % n, i), low, high)
        return ((k, v), low, high), None

    ((_, _), low, high), _ = lax.scan(wrap(one_round), ((k, v), *own(q, k, v)), jnp.arange(1, n))
    return jnp.concatenate([low[0], high[0]], axis=2).astype(q.dtype)


@wrong("values")
def layout_taken_for_contiguous(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Positions are taken for contiguous; device i has chunks i and 2n-1-i of 2n."""
    _refused(q, k)
    return ring_by_hand(q, k, v, axis, by_position(contiguous)(axis))


def _second_chunk(order: Callable[[int, int], int]) -> Callable[[int, int], np.ndarray]:
    def places(n: int, t: int) -> np.ndarray:
        chunk, c = np.arange(t // 2), t // 2
        return np.concatenate([[*(i * c + chunk), *(order(n, i) * c + chunk)] for i in range(n)])

    return places


@wrong("values")
def second_chunk_of_next_n(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The later chunk of device i is taken for chunk n+i; it is chunk 2n-1-i, counted from the
    end."""
    _refused(q, k)
    places = _second_chunk(lambda n, i: n + i)
    return ring_by_hand(q, k, v, axis, by_position(places)(axis))


@wrong("values")
def chunks_in_descending_order(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The first half of a device's positions is taken for its later chunk; chunk i comes first,
    then 2n-1-i."""
    _refused(q, k)

    def places(n: int, t: int) -> np.ndarray:
        return np.concatenate([np.roll(x, t // 2) for x in zigzag(n, t).reshape(n, t)])

    return ring_by_hand(q, k, v, axis, by_position(places)(axis))


@wrong("values")
def before_and_after_swapped(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The second half block is the wrong one: earlier queries see the earlier chunk of a device
    before this one, and later queries the later chunk of a device after it."""
    return _in_halves(q, k, v, axis, before=lambda source, i: source > i)


@wrong("values")
def merged_into_both(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The second half block is merged into the earlier and the later queries; it is of one of them,
    and must weigh nothing in the other."""

    def visit(q: Array, k: Array, v: Array, before: Array, low: Part, high: Part) -> tuple:
        (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
        inputs = ((q_low, q_high), (k_low, k_high), (v_low, v_high))
        other = attend(*(jnp.where(before, x, y) for x, y in inputs))
        return merge(low, other), merge(merge(high, attend(q_high, k_low, v_low)), other)

    return _in_halves(q, k, v, axis, visit=visit)


@wrong("values")
def own_square_forgotten(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Of the own block, later queries see only their own chunk; they see all of the earlier chunk,
    too."""
    return _in_halves(q, k, v, axis, own=_own_without_lower_square)


@wrong("values")
def only_what_always_counts(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """In a round only the later queries and the earlier chunk are computed; a second half block
    counts in every round, another one on each side of this device."""

    def visit(q: Array, k: Array, v: Array, before: Array, low: Part, high: Part) -> tuple:
        q_high, k_low, v_low = _halves(q)[1], _halves(k)[0], _halves(v)[0]
        return low, merge(high, attend(q_high, k_low, v_low))

    return _in_halves(q, k, v, axis, visit=visit)


@wrong("values")
def zigzag_in_float32(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The result is float32 whatever q is; cast it to the dtype of q at the end."""
    return _in_halves(q, k, v, axis).astype(jnp.float32)


@wrong("values")
def zigzag_sums_in_dtype_of_q(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """What was found so far is kept in the dtype of q, and large results that cancel leave what was
    rounded off them; keep it in float32, and cast the result."""

    def rounded(*parts: Part) -> tuple[Part, ...]:
        return tuple((o.astype(q.dtype), lse) for o, lse in parts)

    def own(q: Array, k: Array, v: Array) -> tuple[Part, ...]:
        return rounded(*_own_halves(q, k, v))

    def visit(*given: Any) -> tuple[Part, ...]:
        return rounded(*_chosen(*given))

    return _in_halves(q, k, v, axis, own=own, visit=visit)


@wrong("values")
def zigzag_merged_without_maximum(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """exp of a large log-sum-exp is infinite in float32; subtract the larger one of both first, as
    merge does."""
    join = merge_without_maximum

    def visit(q: Array, k: Array, v: Array, before: Array, low: Part, high: Part) -> tuple:
        (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
        inputs = ((q_low, q_high), (k_low, k_high), (v_low, v_high))
        other = attend(*(jnp.where(before, x, y) for x, y in inputs))
        high = join(join(high, attend(q_high, k_low, v_low)), _unless(before, other))
        return join(low, _unless(~before, other)), high

    return _in_halves(q, k, v, axis, visit=visit)


@wrong("gradient")
def zigzag_cuts_gradient(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """No gradient returns for keys and values that were sent; leave lax.stop_gradient out."""

    def visit(q: Array, k: Array, v: Array, *others: Any) -> tuple:
        return _chosen(q, lax.stop_gradient(k), lax.stop_gradient(v), *others)

    return _in_halves(q, k, v, axis, visit=visit)


@wrong("communication")
def zigzag_keys_gathered(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """All keys and values are gathered on every device; let them travel to a neighbour, one block
    at a time."""
    _refused(q, k)
    n, t = lax.axis_size(axis), q.shape[2]
    places = jnp.asarray(zigzag(n, t))
    own = places.reshape(n, t)[lax.axis_index(axis)]
    k, v = gathered((k, v), axis, 2)
    seen = places[None] <= own[:, None]
    return attend(q, k, v, seen[None])[0].astype(q.dtype)


@wrong("communication")
def zigzag_in_wide_messages(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Keys and values travel in float32, whatever dtype they come in; send them as they are."""
    wide, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    return _in_halves(wide, k, v, axis).astype(q.dtype)


@wrong("communication")
def zigzag_kv_heads_repeated(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """The kv heads are repeated before they travel, a/k times the bytes; send k and v as they
    are."""
    _refused(q, k)
    k, v = (jnp.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    return _in_halves(q, k, v, axis)


@wrong("memory")
def zigzag_rounds_unrolled(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """In a Python loop the scores of all rounds are held at once; write the rounds as a loop of
    JAX, lax.fori_loop or lax.scan."""
    _refused(q, k)
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    low, high = _own_halves(q, k, v)
    for r in range(1, n):
        k, v = hop(k, axis), hop(v, axis)
        low, high = _chosen(q, k, v, (i - r) % n < i, low, high)
    return jnp.concatenate([low[0], high[0]], axis=2).astype(q.dtype)


@wrong("memory")
def zigzag_everything_kept(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """For the gradient, the scores of every round are kept; checkpoint a round, or send keys and
    values round once more with jax.custom_vjp."""
    return _in_halves(q, k, v, axis, wrap=lambda one_round: one_round)


@wrong("flops")
def positions_compared_in_every_block(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """All scores are computed and half of them masked, as in a ring of contiguous parts; of each
    block that arrives two half blocks count."""
    _refused(q, k)
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), q.shape[2]
    mask = by_position(zigzag)(axis)

    @jax.checkpoint
    def one_round(state: Any, r: Array) -> tuple[Any, None]:
        (k, v), done = (hop(state[0][0], axis), hop(state[0][1], axis)), state[1]
        return ((k, v), merge(done, attend(q, k, v, mask(r, i, (i - r) % n, t)[None]))), None

    own = attend(q, k, v, mask(0, i, i, t)[None])
    (_, (o, _)), _ = lax.scan(one_round, ((k, v), own), jnp.arange(1, n))
    return o.astype(q.dtype)


@wrong("flops")
def both_half_blocks_computed(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Both possible half blocks are computed and one is thrown away; choose the inputs of one with
    jnp.where instead."""

    def visit(q: Array, k: Array, v: Array, before: Array, low: Part, high: Part) -> tuple:
        (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))
        high = merge(high, attend(q_high, k_low, v_low))
        early, late = attend(q_low, k_low, v_low), attend(q_high, k_high, v_high)
        return merge(low, _unless(~before, early)), merge(high, _unless(before, late))

    return _in_halves(q, k, v, axis, visit=visit)


@wrong("flops")
def whole_blocks_by_condition(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """lax.cond puts both ways into the program, and each of them is a full half of the block;
    choose the inputs of the half block that differs with jnp.where."""

    def visit(q: Array, k: Array, v: Array, before: Array, low: Part, high: Part) -> tuple:
        (q_low, q_high), (k_low, k_high), (v_low, v_high) = map(_halves, (q, k, v))

        def earlier() -> tuple[Part, Part]:
            k, v = k_low, v_low
            return merge(low, attend(q_low, k, v)), merge(high, attend(q_high, k, v))

        def later() -> tuple[Part, Part]:
            both = merge(attend(q_high, k_low, v_low), attend(q_high, k_high, v_high))
            return low, merge(high, both)

        return lax.cond(before, earlier, later)

    return _in_halves(q, k, v, axis, visit=visit)


@wrong("errors")
def odd_positions_not_refused(q: Array, k: Array, v: Array, *, axis: str) -> Array:
    """Sizes that do not fit are not refused; raise ValueError if a device has an odd number of
    positions, or if the kv heads do not divide the heads."""
    if q.shape[2] % 2 or q.shape[1] % k.shape[1]:
        return jnp.zeros_like(q)
    return _in_halves(q, k, v, axis)
