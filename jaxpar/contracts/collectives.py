"""Contracts of lesson 02: collectives."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxpar import collectives
from jaxpar.contracts import collectives_mistakes, exchange_mistakes, variants
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import axis_first, mesh_order, on_every_device, share
from jaxpar.contracts.case import Array, Case
from jaxpar.contracts.variants import with_variant

# An all-to-all and a sum hold twice what an all-reduce does; gathering every x holds n times x.
_NO_GATHER = MemoryLimit(
    "at most 3 times the library's bytes of intermediate results", multiple=3.0
)
_ALL_BUT_ALL_REDUCE = ("reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast")


def _mean(case: Case, x: jax.Array) -> list[Expected]:
    return [Expected(on_every_device(case, axis_first(case, x).mean(axis=0)))]


def _scattered(case: Case, x: jax.Array) -> list[Expected]:
    sent = axis_first(case, x)[case.kwargs["root"]]  # [*others, n, ...]
    chunks = jnp.moveaxis(sent, len(case.sizes) - 1, 0)
    return [Expected(mesh_order(case, chunks), whole=on_every_device(case, sent))]


def _gathered(case: Case, x: jax.Array) -> list[Expected]:
    blocks = axis_first(case, x)  # [n, *others, ...]
    n, others = len(blocks), len(case.sizes) - 1
    gathered = jnp.moveaxis(blocks, 0, others)  # [*others, n, ...]
    held = jnp.zeros((n, *gathered.shape), x.dtype).at[case.kwargs["root"]].set(gathered)
    return [Expected(mesh_order(case, held))]


def _maximum_and_holder(case: Case, x: jax.Array) -> list[Expected]:
    blocks = axis_first(case, x)
    holder = blocks.argmax(axis=0).astype(jnp.int32)  # of equal ones the first
    return [Expected(on_every_device(case, part)) for part in (blocks.max(axis=0), holder)]


def _exchanged(case: Case, x: jax.Array) -> list[Expected]:
    blocks = axis_first(case, x)  # [n, *others, n, ...]
    return [Expected(mesh_order(case, jnp.swapaxes(blocks, 0, len(case.sizes))))]


def _rooted(*cases: tuple[str, tuple[int, ...], str, str, int]) -> tuple[Case, ...]:
    return tuple(
        Case(mesh, {"x": Array(shape, layout)}, {"axis": axis, "root": root})
        for mesh, shape, layout, axis, root in cases
    )


MEAN_OVER_DEVICES = Contract(
    id="mean_over_devices",
    kind="program",
    task="return the mean of x over the devices of `axis`, on every device",
    reference=collectives.mean_over_devices,
    oracle=_mean,
    cases=(
        Case("tp=8", {"x": Array((8 * 1200,), "b_tp")}, {"axis": "tp"}),
        Case("dp=3,tp=2", {"x": Array((6 * 6, 5, 2), "b_dp_tp t d")}, {"axis": "dp"}),
    ),
    hidden=(Case("tp=2,dp=4", {"x": Array((8 * 12, 4), "b_tp_dp t")}, {"axis": "dp"}),),
    gradient=("x",),
    communication=Communication(
        "the bytes of one all-reduce of x: at most 2(n-1)/n of x",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", share(2)),),),
        backward="forward",
    ),
    memory=_NO_GATHER,
    mistakes=collectives_mistakes.MEAN_OVER_DEVICES,
    hints=(
        "A mean is a sum over the devices and a division on each of them.",
        "lax.psum sums over a mesh axis; lax.axis_size gives the number to divide by.",
    ),
    minimal="The x of each device must leave it, and the mean, which none knew, must come back: "
    "(n-1)/n of x each way.",
    harder="Take a weight on each device, and return the weighted mean with one all-reduce.",
)

SCATTER = Contract(
    id="scatter",
    kind="program",
    task="return chunk i of the root's x on device i of `axis`",
    reference=collectives.scatter,
    oracle=_scattered,
    cases=_rooted(
        ("dp=8", (8 * 8, 12), "n_dp d", "dp", 5),
        ("dp=2,tp=3", (6 * 3, 4, 5), "n_dp_tp t d", "tp", 1),
    ),
    hidden=_rooted(("fsdp=4,cp=2", (8 * 4, 3, 2), "n_fsdp_cp t d", "fsdp", 2)),
    gradient=("x",),
    sharding=True,
    communication=Communication(
        "at most (n-1)/n of x, by any collective",
        forward=((Limit(("all_reduce", *_ALL_BUT_ALL_REDUCE), "axis", share(1)),),),
        backward="forward",
    ),
    mistakes=collectives_mistakes.SCATTER,
    hints=(
        "JAX has no scatter. Which collective leaves device i with chunk i of something?",
        "A reduce-scatter sums chunk i of every device: make the others add zeros.",
        "Replace x by zeros off the root with jnp.where, then call lax.psum_scatter.",
    ),
    minimal="The root must send n-1 chunks, one to each other device: (n-1)/n of x.",
    harder="Send from the root in ceil(log2 n) permutes, each with half of what is left.",
)

GATHER = Contract(
    id="gather",
    kind="program",
    task="return [n, ...] in device order on the root, and zeros of that shape elsewhere",
    reference=collectives.gather,
    oracle=_gathered,
    cases=_rooted(
        ("tp=8", (8 * 60,), "b_tp", "tp", 5),
        ("dp=4,tp=2", (8 * 4, 3, 4), "b_dp_tp t d", "dp", 2),
    ),
    hidden=_rooted(("cp=4,pp=2", (8 * 6, 2), "b_cp_pp t", "pp", 1)),
    gradient=("x",),
    communication=Communication(
        "no all-reduce; no device receives more than n-1 times x",
        forward=((Limit(_ALL_BUT_ALL_REDUCE, "axis", lambda s: (s.n() - 1) * s.bytes("x")),),),
        backward="forward",
    ),
    mistakes=collectives_mistakes.GATHER,
    hints=(
        "One program runs on every device, so all of them may receive what only the root keeps.",
        "lax.all_gather stacks the x of all devices in device order.",
        "Keep it where lax.axis_index(axis) == root; jnp.where gives zeros elsewhere.",
    ),
    minimal="The root must receive the n-1 arrays that it does not hold: n-1 times x.",
    harder="Let only the root receive: n-1 permutes of one pair each. What does it cost in time?",
)

REDUCE_MAX_LOCATION = Contract(
    id="reduce_max_location",
    kind="program",
    task="return (maximum over devices, int32 lowest index of a device that holds it)",
    reference=collectives.reduce_max_location,
    oracle=_maximum_and_holder,
    cases=(
        Case("tp=8", {"x": Array((8 * 1024,), "b_tp", draw="ties")}, {"axis": "tp"}),
        Case("dp=5,tp=2", {"x": Array((10 * 10, 4, 2), "b_dp_tp t d")}, {"axis": "dp"}),
    ),
    hidden=(
        Case("pp=2,cp=3", {"x": Array((6 * 12, 5), "b_pp_cp t", draw="ties")}, {"axis": "cp"}),
    ),
    communication=Communication(
        "at most three all-reduces of x; no gather",
        # JAX has no reduce-scatter of maxima: an all-to-all and a local maximum are one.
        forward=(
            (Limit(("all_reduce",), "axis", share(6), exact=True),),
            (Limit(("all_to_all", "all_gather"), "axis", share(3)),),
        ),
    ),
    memory=_NO_GATHER,
    mistakes=exchange_mistakes.REDUCE_MAX_LOCATION,
    hints=(
        "Find the maximum first. Then each device knows whether it holds it.",
        "Let each holder vote with its index, and everybody else with something larger.",
        "lax.pmax of x; then lax.pmin of jnp.where(x == largest, index, n).",
    ),
    minimal="A device knows whether to vote only once it knows the maximum: two all-reduces, one "
    "after the other. JAX has none that carries both.",
    harder="Send 3/4 of that: an all-to-all, a local maximum and argmax, and two all-gathers.",
)

ALL_TO_ALL_BY_PERMUTES = Contract(
    id="all_to_all_by_permutes",
    kind="program",
    task="send chunk j of x to device j by lax.ppermute only; y[j] came from device j",
    reference=collectives.all_to_all_by_permutes,
    oracle=_exchanged,
    cases=(
        Case("dp=8", {"x": Array((8 * 8, 6), "n_dp d")}, {"axis": "dp"}),
        Case("dp=2,tp=3", {"x": Array((6 * 3, 4, 2), "n_dp_tp t d")}, {"axis": "tp"}),
    ),
    hidden=(Case("cp=4,pp=2", {"x": Array((8 * 4, 4, 5), "n_cp_pp t d")}, {"axis": "cp"}),),
    gradient=("x",),
    communication=Communication(
        "permutes only, (n-1)/n of x in all",
        forward=((Limit(("permute",), "axis", share(1)),),),
        backward="forward",
    ),
    mistakes=exchange_mistakes.ALL_TO_ALL_BY_PERMUTES,
    hints=(
        "Draw 4 devices with 4 chunks each. In one permute every device sends one chunk.",
        "In step k, let every device i send to device (i + k) % n: which chunk of x is that?",
        "Send x[(i + k) % n]; what you receive came from device (i - k) % n, and goes there.",
    ),
    minimal="n-1 of the n chunks belong to other devices, and each crosses the wire once.",
    harder="For n a power of two, let step k exchange with device i ^ k: both ways on one link.",
)

CONTRACTS = (
    with_variant(
        MEAN_OVER_DEVICES,
        variants.mean_over_devices,
        "return the quadratic mean of x over the devices of `axis`, on every device",
        before=jnp.square,
        after=jnp.sqrt,
    ),
    with_variant(
        SCATTER,
        variants.scatter,
        "return chunk n-1-i of the root's x on device i of `axis`",
        before=jnp.flipud,
    ),
    with_variant(
        GATHER,
        variants.gather,
        "return [n, ...] on the root, the last device's x first, and zeros of that shape elsewhere",
        after=jnp.flipud,
    ),
    with_variant(
        REDUCE_MAX_LOCATION,
        variants.reduce_max_location,
        "return (maximum of |x| over devices, int32 lowest index of a device that holds it)",
        before=jnp.abs,
    ),
    with_variant(
        ALL_TO_ALL_BY_PERMUTES,
        variants.all_to_all_by_permutes,
        "send chunk j of x to device n-1-j by lax.ppermute only; y[j] came from device j",
        before=jnp.flipud,
    ),
)
