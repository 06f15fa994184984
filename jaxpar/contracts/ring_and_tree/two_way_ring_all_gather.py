"""Exercise two_way_ring_all_gather: both ways round the ring at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.ring_and_tree.common import hop, ring_case


def _all_blocks(case: Case, x: jax.Array) -> list[Expected]:
    blocks = jnp.moveaxis(axis_first(case, x), 0, len(case.sizes) - 1)  # [*others, n, ...]
    return [Expected(on_every_device(case, blocks))]


def _half_round(sizes: Sizes) -> int:
    """ceil((n - 1) / 2) times x."""
    return sizes.n() // 2 * sizes.bytes("x")


CONTRACT = Contract(
    kind="program",
    task="return every device's x, [n, ...] in device order, by permutes both ways round a ring",
    reference=collectives.two_way_ring_all_gather,
    oracle=_all_blocks,
    cases=(
        ring_case("tp=8", ArraySpec((8 * 40,), "b_tp"), axis="tp"),
        ring_case("dp=5,tp=2", ArraySpec((10 * 4, 5, 4), "b_dp_tp t d", "bfloat16"), axis="dp"),
    ),
    hidden=(ring_case("pp=2,cp=3", ArraySpec((6 * 8, 3), "b_pp_cp d"), axis="cp"),),
    gradient=("x",),
    communication=Communication(
        "permutes to a neighbour only; ceil((n-1)/2) times x each way",
        forward=((Limit(("permute",), "axis", _half_round, neighbours=True, each_way=True),),),
        backward="forward",
    ),
    hints=(
        "Run two rings at once: one passes blocks to the next device, one to the previous.",
        "After k hops to the next device you hold the x of device i - k; after k hops to the "
        "previous device, that of i + k. Together they must reach n-1 devices, each once.",
        "n // 2 hops one way and n - 1 - n // 2 the other; put each block where it belongs with "
        "y.at[(i - k) % n].set(block), and (i + k) % n.",
    ),
    minimal="Each device must receive n-1 blocks over two links, so one of them carries at least "
    "(n-1)/2 times x.",
    harder="For even n, let the last block come half from each side, so that both ways are equal.",
)


def _received(x: jax.Array, axis: str, hops: int, by: int = 1) -> list[jax.Array]:
    """What arrives in each of so many hops."""
    arrived = [x]
    for _ in range(hops):
        arrived.append(hop(arrived[-1], axis, by))
    return arrived[1:]


def _halves(axis: str) -> tuple[int, int]:
    n = lax.axis_size(axis)
    return n // 2, n - 1 - n // 2


@wrong("values")
def stacks_as_it_arrives(x: jax.Array, *, axis: str) -> jax.Array:
    """The blocks are stacked in order of arrival; y[j] must come from device j."""
    up, down = _halves(axis)
    return jnp.stack([x, *_received(x, axis, up), *_received(x, axis, down, by=-1)])


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


@wrong("values")
def mirrored(x: jax.Array, *, axis: str) -> jax.Array:
    """Blocks from device i-k are put at i+k, and the other way round; what comes from the previous
    device has a lower index."""
    up, down = _halves(axis)
    return _place(x, _received(x, axis, down, by=-1), _received(x, axis, up), axis=axis)


@wrong("values")
def misses_opposite(x: jax.Array, *, axis: str) -> jax.Array:
    """For even n the block of the opposite device never arrives; one way needs one hop more than
    the other."""
    hops = (lax.axis_size(axis) - 1) // 2
    return _place(x, _received(x, axis, hops), _received(x, axis, hops, by=-1), axis=axis)


@wrong("values")
def both_ways_next(x: jax.Array, *, axis: str) -> jax.Array:
    """Both rings send to the next device, so half of the blocks never arrive; let one send to the
    previous."""
    up, down = _halves(axis)
    return _place(x, _received(x, axis, up), _received(x, axis, down), axis=axis)


@wrong("values")
def blocks_of_eight(x: jax.Array, *, axis: str) -> jax.Array:
    """The result always has 8 blocks; it has n, the size of the axis."""
    blocks = [x, *_received(x, axis, 4), *_received(x, axis, 3, by=-1)[::-1]]
    return jnp.stack(blocks)[(lax.axis_index(axis) - jnp.arange(8)) % 8]


@wrong("values")
def skips_neighbours(x: jax.Array, *, axis: str) -> jax.Array:
    """Each hop goes two devices on, so not every block is met."""
    up, down = _halves(axis)
    return _place(x, _received(x, axis, up, by=2), _received(x, axis, down, by=-2), axis=axis)


@wrong("gradient")
def two_way_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    """The gradient does not come back from the other devices; each x gets the sum of what all of
    them do with it."""
    up, down = _halves(axis)
    sent = lax.stop_gradient(x)
    return _place(x, _received(sent, axis, up), _received(sent, axis, down, by=-1), axis=axis)


@wrong("communication")
def one_way(x: jax.Array, *, axis: str) -> jax.Array:
    """All blocks go round one way in n-1 hops, and the links of the other way are idle."""
    return _place(x, _received(x, axis, lax.axis_size(axis) - 1), [], axis=axis)


@wrong("communication")
def straight_to_each(x: jax.Array, *, axis: str) -> jax.Array:
    """Blocks are sent straight to devices up to n/2 places away; on a ring they go from neighbour
    to neighbour."""
    up, down = _halves(axis)
    before = [hop(x, axis, k) for k in range(1, up + 1)]
    after = [hop(x, axis, -k) for k in range(1, down + 1)]
    return _place(x, before, after, axis=axis)


@wrong("communication")
def sends_all_it_holds(x: jax.Array, *, axis: str) -> jax.Array:
    """Each hop sends all blocks that are held; the neighbour lacks only the one that came last."""
    up, down = _halves(axis)
    ways = []
    for hops, by in ((up, 1), (down, -1)):
        held = x[None]
        for _ in range(hops):
            held = jnp.concatenate([x[None], hop(held, axis, by)])
        ways.append(list(held[1:]))
    return _place(x, *ways, axis=axis)


@wrong("communication")
def one_all_gather(x: jax.Array, *, axis: str) -> jax.Array:
    """lax.all_gather does it in one call; build it from lax.ppermute here."""
    return lax.all_gather(x, axis)


@wrong("communication")
def sums_slots(x: jax.Array, *, axis: str) -> jax.Array:
    """An all-reduce sums n slots that are zero but one: twice the bytes needed, and not by
    permutes."""
    return lax.psum(_place(x, [], [], axis=axis), axis)
