"""Contracts of lesson 03: rings, trees and two-level meshes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar import collectives
from jaxpar.contracts import hierarchical_mistakes, ring_mistakes, tree_mistakes, variants
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit
from jaxpar.contracts.blocks import axis_first, mesh_order, on_every_device, share
from jaxpar.contracts.case import Array, Case, Sizes
from jaxpar.contracts.variants import with_variant

_ANY_KIND = ("all_reduce", "permute", "all_to_all")


def _sums_of_chunks(case: Case, x: jax.Array) -> list[Expected]:
    total = axis_first(case, x).sum(axis=0)  # [*others, n, ...]
    chunks = jnp.moveaxis(total, len(case.sizes) - 1, 0)
    return [Expected(mesh_order(case, chunks), whole=on_every_device(case, total))]


def _all_blocks(case: Case, x: jax.Array) -> list[Expected]:
    blocks = jnp.moveaxis(axis_first(case, x), 0, len(case.sizes) - 1)  # [*others, n, ...]
    return [Expected(on_every_device(case, blocks))]


def _from_root(case: Case, x: jax.Array) -> list[Expected]:
    return [Expected(on_every_device(case, axis_first(case, x)[case.kwargs["root"]]))]


def _sum(case: Case, x: jax.Array) -> list[Expected]:
    return [Expected(on_every_device(case, axis_first(case, x).sum(axis=0)))]


def _sum_over_both(case: Case, x: jax.Array) -> list[Expected]:
    blocks = x.reshape(*case.sizes.values(), -1, *x.shape[1:])
    both = tuple(list(case.sizes).index(case.kwargs[level]) for level in ("outer", "inner"))
    return [Expected(jnp.broadcast_to(blocks.sum(axis=both, keepdims=True), blocks.shape))]


def _steps(sizes: Sizes) -> int:
    """ceil(log2 n)."""
    return (sizes.n() - 1).bit_length()


def _half_round(sizes: Sizes) -> int:
    """ceil((n - 1) / 2) times x."""
    return sizes.n() // 2 * sizes.bytes("x")


def _parts_bytes(sizes: Sizes, *levels: str) -> int:
    """Bytes of one part of x, in as many parts as the levels have devices, rounded up."""
    x = sizes.case.args["x"]
    elements = math.prod(x.shape) // math.prod(sizes.case.sizes.values())
    for level in levels:
        elements = -(-elements // sizes.n(level))
    return elements * np.dtype(x.dtype).itemsize


def _over_inner(sizes: Sizes) -> int:
    """The bytes of one all-reduce of x, padded."""
    chunk_bytes = sizes.n("outer") * _parts_bytes(sizes, "inner", "outer")
    return 2 * (sizes.n("inner") - 1) * chunk_bytes


def _over_outer(sizes: Sizes) -> int:
    """The bytes of one all-reduce of 1/n_inner of x, padded."""
    return 2 * (sizes.n("outer") - 1) * _parts_bytes(sizes, "inner", "outer")


def _case(mesh: str, x: Array, **kwargs: str | int) -> Case:
    return Case(mesh, {"x": x}, kwargs)


RING_REDUCE_SCATTER = Contract(
    id="ring_reduce_scatter",
    kind="program",
    task="return on device i of `axis` the sum of x[i] over all devices, by a ring of permutes",
    reference=collectives.ring_reduce_scatter,
    oracle=_sums_of_chunks,
    cases=(
        _case("tp=8", Array((8 * 8, 10), "n_tp d"), axis="tp"),
        _case("dp=2,tp=5", Array((10 * 5, 7, 2), "n_dp_tp t d"), axis="tp"),
    ),
    hidden=(_case("cp=3,pp=2", Array((6 * 3, 4), "n_cp_pp d"), axis="cp"),),
    gradient=("x",),
    sharding=True,
    communication=Communication(
        "permutes to a neighbour only, (n-1)/n of x in all",
        forward=((Limit(("permute",), "axis", share(1), neighbours=True),),),
        backward="forward",
    ),
    mistakes=ring_mistakes.RING_REDUCE_SCATTER,
    hints=(
        "Let the partial sum of one chunk travel. Each device it visits adds its own x of that "
        "chunk; n-1 hops visit them all.",
        "The last device to add is where the sum stays. So chunk c sets out from device c + 1, "
        "goes to the next device n-1 times, and ends on device c.",
        "Start with x[(i - 1) % n]. After hop k = 1, ..., n-1 add x[(i - 1 - k) % n].",
    ),
    minimal="The sum of chunk i needs something from each of the n-1 other devices; a device "
    "passes on one partial sum for each chunk but its own, (n-1)/n of x.",
    harder="Halve each chunk, and send one half each way round: as many bytes, on two links.",
)

TWO_WAY_RING_ALL_GATHER = Contract(
    id="two_way_ring_all_gather",
    kind="program",
    task="return every device's x, [n, ...] in device order, by permutes both ways round a ring",
    reference=collectives.two_way_ring_all_gather,
    oracle=_all_blocks,
    cases=(
        _case("tp=8", Array((8 * 40,), "b_tp"), axis="tp"),
        _case("dp=5,tp=2", Array((10 * 4, 5, 4), "b_dp_tp t d", "bfloat16"), axis="dp"),
    ),
    hidden=(_case("pp=2,cp=3", Array((6 * 8, 3), "b_pp_cp d"), axis="cp"),),
    gradient=("x",),
    communication=Communication(
        "permutes to a neighbour only; ceil((n-1)/2) times x each way",
        forward=((Limit(("permute",), "axis", _half_round, neighbours=True, each_way=True),),),
        backward="forward",
    ),
    mistakes=ring_mistakes.TWO_WAY_RING_ALL_GATHER,
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

TREE_BROADCAST = Contract(
    id="tree_broadcast",
    kind="program",
    task="return the root's x on every device of `axis`, in ceil(log2 n) permutes",
    reference=collectives.tree_broadcast,
    oracle=_from_root,
    cases=(
        _case("tp=8", Array((8 * 40,), "b_tp"), axis="tp", root=5),
        _case("dp=2,tp=6", Array((12 * 4, 5, 4), "b_dp_tp t d", "bfloat16"), axis="tp", root=4),
    ),
    hidden=(_case("cp=5,pp=2", Array((10 * 6, 3), "b_cp_pp d"), axis="cp", root=3),),
    gradient=("x",),
    communication=Communication(
        "permutes only, ceil(log2 n) of them, each of x",
        forward=((Limit(("permute",), "axis", lambda s: _steps(s) * s.bytes("x"), times=_steps),),),
        backward="forward",
    ),
    mistakes=tree_mistakes.TREE_BROADCAST,
    hints=(
        "In every step, all devices that hold the root's x send it on: how many hold it then?",
        "Count places from the root: p = (i - root) % n. Before a step places 0 to h-1 hold it; "
        "in the step, place p sends to place p + h, as long as there is one.",
        "lax.ppermute gives zeros where no pair ends: keep x there with jnp.where. The pairs are "
        "((root + p) % n, (root + p + h) % n) for p in range(min(h, n - h)).",
    ),
    minimal="A step can at most double the number of devices that hold x, so ceil(log2 n) steps "
    "are needed.",
    harder="Write the tree reduce: the same tree, from the leaves to the root.",
)

RECURSIVE_DOUBLING_ALL_REDUCE = Contract(
    id="recursive_doubling_all_reduce",
    kind="program",
    task="return the sum of x over `axis` on every device, in log2 n permutes; other n raise",
    reference=collectives.recursive_doubling_all_reduce,
    oracle=_sum,
    cases=(
        _case("tp=8", Array((8 * 40,), "b_tp"), axis="tp"),
        _case("dp=2,tp=4", Array((8 * 7, 6), "b_dp_tp d"), axis="tp"),
        _case("dp=2,tp=3", Array((6 * 4, 5, 2), "b_dp_tp t d"), axis="dp"),
    ),
    hidden=(_case("fsdp=4,cp=2", Array((8 * 5, 3), "b_fsdp_cp d"), axis="fsdp"),),
    errors=(
        BadCall(_case("cp=6", Array((6 * 4,), "b_cp"), axis="cp"), "n = 6"),
        BadCall(_case("dp=3,tp=2", Array((6 * 4,), "b_dp_tp"), axis="dp"), "n = 3"),
    ),
    gradient=("x",),
    communication=Communication(
        "permutes only, log2 n of them, each of x",
        forward=((Limit(("permute",), "axis", lambda s: _steps(s) * s.bytes("x"), times=_steps),),),
        backward="forward",
    ),
    mistakes=tree_mistakes.RECURSIVE_DOUBLING_ALL_REDUCE,
    hints=(
        "If partners swap their sums and add, each sum is over twice as many devices as before.",
        "Partners are 1 apart, then 2, then 4: sums that overlap would count a device twice.",
        "The partner of device j at distance d is j ^ d. Raise ValueError if n & (n - 1).",
    ),
    minimal="A sum over n devices, each step at most twice as many: log2 n steps. For large x a "
    "ring sends less; for small x the number of steps is the time.",
    harder="Halve what is sent in each step (recursive halving), then double it back: the bytes "
    "of a ring in 2 log2 n steps.",
)

HIERARCHICAL_ALL_REDUCE = Contract(
    id="hierarchical_all_reduce",
    kind="program",
    task="return the sum of x over `inner` and `outer`; over `outer` goes 1/n_inner of x only",
    reference=collectives.hierarchical_all_reduce,
    oracle=_sum_over_both,
    cases=(
        _case(
            "node=2,device=4", Array((8 * 7, 19), "b_node_device d"), inner="device", outer="node"
        ),
        _case("node=4,device=2", Array((8 * 71,), "b_node_device"), inner="device", outer="node"),
        _case("dp=2,cp=2,tp=3", Array((12 * 5, 11, 2), "b_dp_cp_tp t d"), inner="tp", outer="dp"),
    ),
    hidden=(_case("tp=3,dp=2", Array((6 * 5, 7), "b_tp_dp d"), inner="tp", outer="dp"),),
    gradient=("x",),
    communication=Communication(
        "over outer one all-reduce of ceil(1/n_inner of x), over inner one all-reduce of x",
        forward=((Limit(_ANY_KIND, "outer", _over_outer), Limit(_ANY_KIND, "inner", _over_inner)),),
        backward="forward",
    ),
    mistakes=hierarchical_mistakes.HIERARCHICAL_ALL_REDUCE,
    hints=(
        "An all-reduce is a reduce-scatter and an all-gather. Between the two, a device holds "
        "1/n of the sum over its node: that is all it has to share with other nodes.",
        "Reduce-scatter over inner, all-reduce over outer, all-gather over inner. Flatten x and "
        "pad it first, so that it divides into n_inner chunks.",
        "jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1) makes the chunks; after "
        "lax.psum_scatter, lax.psum and lax.all_gather, cut to x.size and reshape.",
    ),
    minimal="A node must give away its sum, all of x, and its devices share the work: 1/n_inner "
    "each. Inside a node it stays one all-reduce.",
    harder="Write it for three levels: device, node, and rack.",
)

CONTRACTS = (
    with_variant(
        RING_REDUCE_SCATTER,
        variants.ring_reduce_scatter,
        "return on device i of `axis` the sum of x[(i + 1) % n], by a ring of permutes",
        before=lambda x: jnp.roll(x, -1, axis=0),
    ),
    TWO_WAY_RING_ALL_GATHER,
    TREE_BROADCAST,
    RECURSIVE_DOUBLING_ALL_REDUCE,
    HIERARCHICAL_ALL_REDUCE,
)
