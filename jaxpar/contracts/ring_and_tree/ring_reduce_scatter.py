"""A reduce-scatter by partial sums that travel round a ring."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Num

from jaxpar import collectives
from jaxpar.contracts.base import (
    Communication,
    Contract,
    Expected,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import axis_first, mesh_order, on_every_device, ring_bytes
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.ring_and_tree.common import ring_case
from jaxpar.contracts.steps import hop
from jaxpar.contracts.variants import Variant


def _sums_of_chunks(case: Case, x: Array) -> list[Expected]:
    total = axis_first(case, x).sum(axis=0)  # [*others, n, ...]
    chunks = jnp.moveaxis(total, len(case.sizes) - 1, 0)
    return [Expected(mesh_order(case, chunks), whole=on_every_device(case, total))]


def ring_reduce_scatter(x: Num[Array, "n ..."], *, axis: str) -> Num[Array, ...]:
    """The sum of every device's chunk i+1, on device i, and of chunk 0 on the last device.

    Partial sums travel round a ring, and grow on their way.

    Math: y = sum_j x_j[(i + 1) % n] on device i
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[i]
    for k in range(1, n):
        partial = hop(partial, axis) + x[(i - k) % n]
    return partial


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, few, width = pick(rng, (9, 11, 12)), pick(rng, (3, 4)), pick(rng, (4, 5, 6))
    return (
        ring_case(
            f"{axis}={n}", ArraySpec((n * n, 3, 1, width), f"n_{axis} t h d", "bfloat16"), axis=axis
        ),
        ring_case(  # each chunk is a scalar
            f"{axis}={few},{other}=3",
            ArraySpec((few * 3 * few,), f"n_{axis}_{other}", "int32", "large"),
            axis=axis,
        ),
        ring_case(
            f"{other}=2,{axis}=1", ArraySpec((2, width, 3), f"n_{other}_{axis} t d"), axis=axis
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return on device i of `axis` the sum of x[i] over all devices, by a ring of permutes",
    reference=collectives.ring_reduce_scatter,
    oracle=_sums_of_chunks,
    cases=(
        ring_case("tp=8", ArraySpec((8 * 8, 10), "n_tp d"), axis="tp"),
        ring_case("dp=5,tp=2", ArraySpec((10 * 5, 7, 2), "n_dp_tp t d"), axis="dp"),
    ),
    draw=_drawn,
    gradient=("x",),
    sharding=True,
    communication=Communication(
        "permutes to a neighbour only, (n-1)/n of x in all",
        forward=((Limit(("permute",), "axis", ring_bytes(1), neighbours=True),),),
        backward="forward",
    ),
    memory=MemoryLimit(
        "at most 25 times the library's bytes of intermediate results: some copies of x, but not "
        "one for each hop",
        multiple=25.0,  # the library holds little more than one chunk, and a copy of x is n of them
    ),
    hints=(
        "Let the partial sum of one chunk travel. Each device it visits adds its own x of that "
        "chunk; n-1 hops visit them all.",
        "The last device to add is where the sum stays. So chunk c sets out from device c + 1, "
        "goes to the next device n-1 times, and ends on device c.",
        "Start with x[(i - 1) % n]. After hop k = 1, ..., n-1 add x[(i - 1 - k) % n].",
    ),
    minimal="The sum of chunk i needs something from each of the n-1 other devices; a device "
    "passes on one partial sum for each chunk but its own, (n-1)/n of x.",
    harder="Split each chunk into halves, and send one half each way round the ring: the same "
    "bytes, but on two links.",
    variants=(
        Variant(
            ring_reduce_scatter,
            "return on device i of `axis` the sum of x[(i + 1) % n], by a ring of permutes",
            before=lambda x: jnp.roll(x, -1, axis=0),
        ),
    ),
)


def _travel(
    x: Array, axis: str, *, hops: int, first: int = -1, step: int = -1, by: int = 1
) -> Array:
    """A partial sum goes round: after hop k, device i adds its chunk i + first + step * k."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[(i + first) % n]
    for k in range(1, hops + 1):
        partial = hop(partial, axis, by) + x[(i + first + step * k) % n]
    return partial


@wrong("values")
def keeps_chunk_after(x: Array, *, axis: str) -> Array:
    """Device i ends with the sum of chunk i+1, because chunk i set out from device i; let it set
    out from device i+1."""
    return _travel(x, axis, hops=len(x) - 1, first=0)


@wrong("values")
def index_against_ring(x: Array, *, axis: str) -> Array:
    """The sums travel one way round and the chunks are counted the other way, so different chunks
    are added."""
    return _travel(x, axis, hops=len(x) - 1, by=-1)


@wrong("values")
def adds_own_chunk(x: Array, *, axis: str) -> Array:
    """Every hop adds x[i], the chunk that this device keeps at the end; add the chunk whose sum has
    just arrived."""
    return _travel(x, axis, hops=len(x) - 1, first=0, step=0)


@wrong("values")
def ring_of_eight(x: Array, *, axis: str) -> Array:
    """The ring always makes 7 hops; make n-1, for the size n of the axis."""
    return _travel(x, axis, hops=7)


@wrong("values")
def hops_of_two(x: Array, *, axis: str) -> Array:
    """Each hop goes two devices on, so for even n half of the devices are never reached; go to the
    next device."""
    return _travel(x, axis, hops=len(x) - 1, first=-2, step=-2, by=2)


@wrong("values")
def one_hop_too_many(x: Array, *, axis: str) -> Array:
    """You make n hops: a sum that is complete after n-1 of them is sent on once more, and one
    device adds to it twice."""
    return _travel(x, axis, hops=len(x))


@wrong("values")
def one_hop_too_few(x: Array, *, axis: str) -> Array:
    """There are n-2 hops, so each sum misses one device; n devices are n-1 hops apart."""
    return _travel(x, axis, hops=len(x) - 2, first=1)


@wrong("values")
def forwards_without_adding(x: Array, *, axis: str) -> Array:
    """The devices on the way pass the chunk on unchanged; each must add its own x of that chunk."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    chunk = x[(i - 1) % n]
    for _ in range(n - 1):
        chunk = hop(chunk, axis)
    return chunk + x[i]


@wrong("values")
def sums_from_float32(x: Array, *, axis: str) -> Array:
    """The partial sum starts from jnp.zeros, which are float32 whatever x is, and so is the result;
    start with a chunk of x."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = jnp.zeros(x.shape[1:]) + x[(i - 1) % n]
    for k in range(2, n + 1):
        partial = hop(partial, axis) + x[(i - k) % n]
    return partial


@wrong("values")
def sums_rounded_to_float32(x: Array, *, axis: str) -> Array:
    """x is summed in float32, which rounds large integers, and sends a bfloat16 in twice its bytes;
    keep the dtype of x."""
    return _travel(x.astype(jnp.float32), axis, hops=len(x) - 1).astype(x.dtype)


@wrong("gradient")
def ring_cuts_gradient(x: Array, *, axis: str) -> Array:
    """The gradient stops at the last hop; it must go back round the ring to every device that
    added."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = x[(i - 1) % n]
    for k in range(2, n + 1):
        partial = lax.stop_gradient(hop(partial, axis)) + x[(i - k) % n]
    return partial


@wrong("sharding")
def every_chunk_everywhere(x: Array, *, axis: str) -> Array:
    """Every device returns the sums of all chunks; device i must return that of chunk i only."""
    return lax.psum(x, axis)


@wrong("communication")
def sets_out_empty(x: Array, *, axis: str) -> Array:
    """The ring starts with zeros and needs n hops; start with a chunk of x, and n-1 are enough."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    partial = jnp.zeros_like(x[0])
    for k in range(1, n + 1):
        partial = hop(partial, axis) + x[(i - k) % n]
    return partial


@wrong("communication")
def whole_buffer_round(x: Array, *, axis: str) -> Array:
    """All of x goes round the ring where one chunk is wanted: n times the bytes needed."""
    i = lax.axis_index(axis)
    total = x[i]
    for _ in range(len(x) - 1):
        x = hop(x, axis)
        total = total + x[i]
    return total


@wrong("communication")
def far_hops(x: Array, *, axis: str) -> Array:
    """Chunks are sent straight to their device, up to n-1 places away; on a ring they go from
    neighbour to neighbour."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    total = x[i]
    for k in range(1, n):
        total = total + hop(x[(i + k) % n], axis, k)
    return total


@wrong("communication")
def one_reduce_scatter(x: Array, *, axis: str) -> Array:
    """lax.psum_scatter does it in one call; build it from lax.ppermute here."""
    return lax.psum_scatter(x, axis)


@wrong("communication")
def all_reduces_then_takes(x: Array, *, axis: str) -> Array:
    """An all-reduce brings the sums of all chunks to every device, which keeps one: twice the bytes
    needed."""
    return lax.psum(x, axis)[lax.axis_index(axis)]


@wrong("communication")
def gathers_then_sums(x: Array, *, axis: str) -> Array:
    """Every device's whole x is gathered for the sum of one chunk: n times the bytes needed."""
    return lax.all_gather(x, axis)[:, lax.axis_index(axis)].sum(axis=0)


@wrong("memory")
def keeps_x_of_each_hop(x: Array, *, axis: str) -> Array:
    """All of x is kept as it is after each hop, which is n times x; keep only the partial sum that
    travels."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def step(x: Array, k: Array) -> tuple[Array, Array]:
        arrived = hop(x[(i - k) % n], axis)
        x = x.at[(i - k - 1) % n].add(arrived)
        return x, x

    _, states = lax.scan(step, x, jnp.arange(1, n))
    return jnp.concatenate([x[None], states])[-1, i]
