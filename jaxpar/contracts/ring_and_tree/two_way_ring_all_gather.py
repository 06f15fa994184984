"""An all-gather that goes round a ring both ways at once."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.ring_and_tree.common import in_device_order, received, ring_case
from jaxpar.contracts.steps import hop


def _all_blocks(case: Case, x: Array) -> list[Expected]:
    blocks = jnp.moveaxis(axis_first(case, x), 0, len(case.sizes) - 1)  # [*others, n, ...]
    return [Expected(on_every_device(case, blocks))]


def _half_round(sizes: Sizes) -> int:
    """Bytes of ceil((n - 1) / 2) times x."""
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
    draw=lambda rng: (ring_case("pp=2,cp=3", ArraySpec((6 * 8, 3), "b_pp_cp d"), axis="cp"),),
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


def _halves(axis: str) -> tuple[int, int]:
    """The number of hops to the next device, and to the previous one."""
    n = lax.axis_size(axis)
    return n // 2, n - 1 - n // 2


@wrong("values")
def stacks_as_it_arrives(x: Array, *, axis: str) -> Array:
    """The blocks are stacked in order of arrival; y[j] must come from device j."""
    up, down = _halves(axis)
    return jnp.stack([x, *received(x, axis, up), *received(x, axis, down, by=-1)])


@wrong("values")
def mirrored(x: Array, *, axis: str) -> Array:
    """Blocks from device i-k are put at i+k, and the other way round; what comes from the previous
    device has a lower index."""
    up, down = _halves(axis)
    return in_device_order(x, received(x, axis, down, by=-1), received(x, axis, up), axis=axis)


@wrong("values")
def misses_opposite(x: Array, *, axis: str) -> Array:
    """For even n the block of the opposite device never arrives; one way needs one hop more than
    the other."""
    hops = (lax.axis_size(axis) - 1) // 2
    return in_device_order(x, received(x, axis, hops), received(x, axis, hops, by=-1), axis=axis)


@wrong("values")
def both_ways_next(x: Array, *, axis: str) -> Array:
    """Both rings send to the next device, so half of the blocks never arrive; let one send to the
    previous."""
    up, down = _halves(axis)
    return in_device_order(x, received(x, axis, up), received(x, axis, down), axis=axis)


@wrong("values")
def blocks_of_eight(x: Array, *, axis: str) -> Array:
    """The result always has 8 blocks; it has n, the size of the axis."""
    blocks = [x, *received(x, axis, 4), *received(x, axis, 3, by=-1)[::-1]]
    return jnp.stack(blocks)[(lax.axis_index(axis) - jnp.arange(8)) % 8]


@wrong("values")
def skips_neighbours(x: Array, *, axis: str) -> Array:
    """Each hop goes two devices on, so not every block is met."""
    up, down = _halves(axis)
    return in_device_order(
        x, received(x, axis, up, by=2), received(x, axis, down, by=-2), axis=axis
    )


@wrong("gradient")
def two_way_cuts_gradient(x: Array, *, axis: str) -> Array:
    """The gradient does not come back from the other devices; each x gets the sum of what all of
    them do with it."""
    up, down = _halves(axis)
    sent = lax.stop_gradient(x)
    return in_device_order(
        x, received(sent, axis, up), received(sent, axis, down, by=-1), axis=axis
    )


@wrong("communication")
def one_way(x: Array, *, axis: str) -> Array:
    """All blocks go round one way in n-1 hops, and the links of the other way are idle."""
    return in_device_order(x, received(x, axis, lax.axis_size(axis) - 1), [], axis=axis)


@wrong("communication")
def straight_to_each(x: Array, *, axis: str) -> Array:
    """Blocks are sent straight to devices up to n/2 places away; on a ring they go from neighbour
    to neighbour."""
    up, down = _halves(axis)
    before = [hop(x, axis, k) for k in range(1, up + 1)]
    after = [hop(x, axis, -k) for k in range(1, down + 1)]
    return in_device_order(x, before, after, axis=axis)


@wrong("communication")
def sends_all_it_holds(x: Array, *, axis: str) -> Array:
    """Each hop sends all blocks that are held; the neighbour lacks only the one that came last."""
    up, down = _halves(axis)
    ways = []
    for hops, by in ((up, 1), (down, -1)):
        held = x[None]
        for _ in range(hops):
            held = jnp.concatenate([x[None], hop(held, axis, by)])
        ways.append(list(held[1:]))
    return in_device_order(x, *ways, axis=axis)


@wrong("communication")
def one_all_gather(x: Array, *, axis: str) -> Array:
    """lax.all_gather does it in one call; build it from lax.ppermute here."""
    return lax.all_gather(x, axis)


@wrong("communication")
def sums_slots(x: Array, *, axis: str) -> Array:
    """You all-reduce n slots, all zero but one; that sends twice the bytes needed, and not by
    permutes."""
    return lax.psum(in_device_order(x, [], [], axis=axis), axis)
