"""An all-gather that goes round a ring both ways at once."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import (
    Communication,
    Contract,
    Expected,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.ring_and_tree.common import in_device_order, received, ring_case
from jaxpar.contracts.steps import hop


def _all_blocks(case: Case, x: Array) -> list[Expected]:
    blocks = jnp.moveaxis(axis_first(case, x), 0, len(case.sizes) - 1)  # [*others, n, ...]
    return [Expected(on_every_device(case, blocks))]


def _half_round(sizes: Sizes) -> int:
    """Bytes of ceil((n - 1) / 2) times x; between two devices, both ways lead to the next one."""
    n = sizes.n()
    return (2 if n == 2 else n // 2) * sizes.bytes("x")


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, width = pick(rng, (9, 11, 12)), pick(rng, (7, 9, 11))
    return (
        ring_case(
            f"{axis}={n}",  # small: the tolerance of a bfloat16 grows with the size of the result
            ArraySpec((n * 2, 1, 3, 1), f"b_{axis} t h d", "bfloat16"),
            axis=axis,
        ),
        ring_case(  # both neighbours are the same device, and no half of x is as large as the other
            f"{other}=3,{axis}=2",
            ArraySpec((6 * 3, width), f"b_{other}_{axis} d", "int32", "large"),
            axis=axis,
        ),
        ring_case(
            f"{axis}=1,{other}=2", ArraySpec((2 * 7, width), f"b_{axis}_{other} d"), axis=axis
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return every device's x, [n, ...] in device order, by permutes both ways round a ring",
    reference=collectives.two_way_ring_all_gather,
    oracle=_all_blocks,
    cases=(
        ring_case("tp=8", ArraySpec((8 * 40,), "b_tp"), axis="tp"),
        ring_case("dp=5,tp=2", ArraySpec((10 * 4, 5, 4), "b_dp_tp t d", "bfloat16"), axis="dp"),
    ),
    draw=_drawn,
    gradient=("x",),
    communication=Communication(
        "permutes to a neighbour only; ceil((n-1)/2) times x each way",
        forward=((Limit(("permute",), "axis", _half_round, neighbours=True, each_way=True),),),
        backward="forward",
    ),
    memory=MemoryLimit("at most 4 times the library's bytes of intermediate results", multiple=4.0),
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


@wrong("values")
def slots_of_float32(x: Array, *, axis: str) -> Array:
    """The blocks are put into jnp.zeros, which are float32 whatever x is, and so is the result;
    give the zeros x.dtype."""
    n = lax.axis_size(axis)
    up, down = _halves(axis)
    blocks = in_device_order(x, received(x, axis, up), received(x, axis, down, by=-1), axis=axis)
    return jnp.zeros((n, *x.shape)).at[jnp.arange(n)].set(blocks.astype(jnp.float32))


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


@wrong("memory")
def keeps_result_of_each_hop(x: Array, *, axis: str) -> Array:
    """The whole result is kept as it is after each hop, which is n times n blocks; keep it once, or
    only the blocks."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    up, down = _halves(axis)
    blocks = [x, *received(x, axis, up), *received(x, axis, down, by=-1)]
    at = [0, *(-k for k in range(1, up + 1)), *range(1, down + 1)]  # how far each has come

    def step(y: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
        y = y.at[(i + block[0]) % n].set(block[1])
        return y, y

    empty = jnp.stack([jnp.zeros_like(x)] * n)
    _, states = lax.scan(step, empty, (jnp.array(at), jnp.stack(blocks)))
    return states[-1]
