"""Wrong answers to the ring exercises of lesson 03 that people write."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Mistake


def _hop(x: jax.Array, axis: str, by: int = 1) -> jax.Array:
    """What arrives when every device sends its x `by` places on."""
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def _travel(
    x: jax.Array,
    axis: str,
    *,
    hops: int,
    chunk: Callable[[int], int],
    by: int = 1,
    start: jax.Array | None = None,
) -> jax.Array:
    """A partial sum goes round: after hop k, device i adds chunk i + chunk(k)."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[(i + chunk(0)) % n] if start is None else start
    for k in range(1, hops + 1):
        partial = _hop(partial, axis, by) + x[(i + chunk(k)) % n]
    return partial


def _keeps_chunk_after(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=len(x) - 1, chunk=lambda k: -k)


def _index_against_ring(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=len(x) - 1, chunk=lambda k: -1 - k, by=-1)


def _adds_own_chunk(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=len(x) - 1, chunk=lambda k: 0)


def _ring_of_eight(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=7, chunk=lambda k: -1 - k)


def _hops_of_two(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=len(x) - 1, chunk=lambda k: -2 - 2 * k, by=2)


def _one_hop_too_many(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=len(x), chunk=lambda k: -1 - k)


def _one_hop_too_few(x: jax.Array, *, axis: str) -> jax.Array:
    return _travel(x, axis, hops=len(x) - 2, chunk=lambda k: 1 - k)


def _forwards_without_adding(x: jax.Array, *, axis: str) -> jax.Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    chunk = x[(i - 1) % n]
    for _ in range(n - 1):
        chunk = _hop(chunk, axis)
    return chunk + x[i]


def _ring_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[(i - 1) % n]
    for k in range(2, n + 1):
        partial = lax.stop_gradient(_hop(partial, axis)) + x[(i - k) % n]
    return partial


def _every_chunk_everywhere(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(x, axis)


def _sets_out_empty(x: jax.Array, *, axis: str) -> jax.Array:
    start = jnp.zeros_like(x[0])
    return _travel(x, axis, hops=len(x), chunk=lambda k: -k, start=start)


def _whole_buffer_round(x: jax.Array, *, axis: str) -> jax.Array:
    i = lax.axis_index(axis)
    total = x[i]
    for _ in range(len(x) - 1):
        x = _hop(x, axis)
        total = total + x[i]
    return total


def _far_hops(x: jax.Array, *, axis: str) -> jax.Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    total = x[i]
    for k in range(1, n):
        total = total + _hop(x[(i + k) % n], axis, k)
    return total


def _one_reduce_scatter(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum_scatter(x, axis)


def _all_reduces_then_takes(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(x, axis)[lax.axis_index(axis)]


def _gathers_then_sums(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(x, axis)[:, lax.axis_index(axis)].sum(axis=0)


def _received(x: jax.Array, axis: str, hops: int, by: int = 1) -> list[jax.Array]:
    """What arrives in each of so many hops."""
    arrived = [x]
    for _ in range(hops):
        arrived.append(_hop(arrived[-1], axis, by))
    return arrived[1:]


def _place(
    x: jax.Array, before: list[jax.Array], after: list[jax.Array], *, axis: str
) -> jax.Array:
    """Puts before[k] at i - 1 - k, after[k] at i + 1 + k, and x at i."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    slots = [x] + [jnp.zeros_like(x)] * (n - 1)  # slots[k] goes to i + k
    for k, block in enumerate(before, start=1):
        slots[-k % n] = block
    for k, block in enumerate(after, start=1):
        slots[k % n] = block
    return jnp.stack(slots)[(jnp.arange(n) - i) % n]


def _halves(axis: str) -> tuple[int, int]:
    n = lax.axis_size(axis)
    return n // 2, n - 1 - n // 2


def _stacks_as_it_arrives(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    return jnp.stack([x, *_received(x, axis, up), *_received(x, axis, down, by=-1)])


def _mirrored(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    return _place(x, _received(x, axis, down, by=-1), _received(x, axis, up), axis=axis)


def _misses_opposite(x: jax.Array, *, axis: str) -> jax.Array:
    hops = (lax.axis_size(axis) - 1) // 2
    return _place(x, _received(x, axis, hops), _received(x, axis, hops, by=-1), axis=axis)


def _both_ways_next(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    return _place(x, _received(x, axis, up), _received(x, axis, down), axis=axis)


def _blocks_of_eight(x: jax.Array, *, axis: str) -> jax.Array:
    blocks = [x, *_received(x, axis, 4), *_received(x, axis, 3, by=-1)[::-1]]
    return jnp.stack(blocks)[(lax.axis_index(axis) - jnp.arange(8)) % 8]


def _skips_neighbours(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    return _place(x, _received(x, axis, up, by=2), _received(x, axis, down, by=-2), axis=axis)


def _two_way_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    sent = lax.stop_gradient(x)
    return _place(x, _received(sent, axis, up), _received(sent, axis, down, by=-1), axis=axis)


def _one_way(x: jax.Array, *, axis: str) -> jax.Array:
    return _place(x, _received(x, axis, lax.axis_size(axis) - 1), [], axis=axis)


def _straight_to_each(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    before = [_hop(x, axis, k) for k in range(1, up + 1)]
    after = [_hop(x, axis, -k) for k in range(1, down + 1)]
    return _place(x, before, after, axis=axis)


def _sends_all_it_holds(x: jax.Array, *, axis: str) -> jax.Array:
    up, down = _halves(axis)
    ways = []
    for hops, by in ((up, 1), (down, -1)):
        held = x[None]
        for _ in range(hops):
            held = jnp.concatenate([x[None], _hop(held, axis, by)])
        ways.append(list(held[1:]))
    return _place(x, *ways, axis=axis)


def _one_all_gather(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(x, axis)


def _sums_slots(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(_place(x, [], [], axis=axis), axis)


RING_REDUCE_SCATTER = (
    Mistake("keeps_chunk_after", _keeps_chunk_after, "values"),
    Mistake("index_against_ring", _index_against_ring, "values"),
    Mistake("adds_own_chunk", _adds_own_chunk, "values"),
    Mistake("ring_of_eight", _ring_of_eight, "values"),
    Mistake("hops_of_two", _hops_of_two, "values"),
    Mistake("one_hop_too_many", _one_hop_too_many, "values"),
    Mistake("one_hop_too_few", _one_hop_too_few, "values"),
    Mistake("forwards_without_adding", _forwards_without_adding, "values"),
    Mistake("ring_cuts_gradient", _ring_cuts_gradient, "gradient"),
    Mistake("every_chunk_everywhere", _every_chunk_everywhere, "sharding"),
    Mistake("sets_out_empty", _sets_out_empty, "communication"),
    Mistake("whole_buffer_round", _whole_buffer_round, "communication"),
    Mistake("far_hops", _far_hops, "communication"),
    Mistake("one_reduce_scatter", _one_reduce_scatter, "communication"),
    Mistake("all_reduces_then_takes", _all_reduces_then_takes, "communication"),
    Mistake("gathers_then_sums", _gathers_then_sums, "communication"),
)
TWO_WAY_RING_ALL_GATHER = (
    Mistake("stacks_as_it_arrives", _stacks_as_it_arrives, "values"),
    Mistake("mirrored", _mirrored, "values"),
    Mistake("misses_opposite", _misses_opposite, "values"),
    Mistake("both_ways_next", _both_ways_next, "values"),
    Mistake("blocks_of_eight", _blocks_of_eight, "values"),
    Mistake("skips_neighbours", _skips_neighbours, "values"),
    Mistake("two_way_cuts_gradient", _two_way_cuts_gradient, "gradient"),
    Mistake("one_way", _one_way, "communication"),
    Mistake("straight_to_each", _straight_to_each, "communication"),
    Mistake("sends_all_it_holds", _sends_all_it_holds, "communication"),
    Mistake("one_all_gather", _one_all_gather, "communication"),
    Mistake("sums_slots", _sums_slots, "communication"),
)
