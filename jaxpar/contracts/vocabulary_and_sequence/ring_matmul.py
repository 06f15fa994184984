"""A product of all rows with this device's columns: the rows travel round a ring."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order, work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.steps import gathered, gathered_by_sum, hop
from jaxpar.parallel import ring_matmul


def _product(case: Case, x: Array, w: Array) -> list[Expected]:
    """All rows of the devices along `axis` times the columns of each."""
    rows = jnp.moveaxis(axis_first(case, x), 0, -3)  # [*others, n, t, d]
    rows = rows.reshape(*rows.shape[:-3], -1, rows.shape[-1])
    columns = axis_first(case, w.T)  # [n, *others, f, d]
    return [Expected(mesh_order(case, jnp.einsum("...td,n...fd->n...tf", rows, columns)))]


def _case(mesh: str, axis: str, rows: int, d: int, columns: int, dtype: str = "float32") -> Case:
    """All axes of the mesh split rows and columns; the ring is along one of them."""
    split = all_axes(mesh)
    args = {
        "x": ArraySpec((rows, d), f"t_{split} d", dtype),
        "w": ArraySpec((d, columns), f"d f_{split}", dtype),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    n, t, f = pick(rng, (5, 6)), pick(rng, (7, 8, 9)), pick(rng, (3, 6))
    mesh, d = mesh_of(rng, **{axis: n, other: 2}), pick(rng, range(150, 170))
    return (
        _case(mesh, axis, 2 * n * t, d, 2 * n * f, "bfloat16"),
        _case(f"{axis}=1,{other}=2", axis, rows=2 * 3, d=pick(rng, range(6, 9)), columns=2 * 2),
        # In bfloat16 the compiler itself holds much; these bytes tell a gathering ring on few
        # devices from a right one.
        _case(f"{axis}=7", axis, rows=7 * 6, d=pick(rng, range(115, 125)), columns=7 * 2),
    )


def _other_rows(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("x")


def _both_ways(sizes: Sizes) -> int:
    """What travels backward: the gradient of the rows, and the rows once more if none was kept."""
    return 2 * _other_rows(sizes)


CONTRACT = Contract(
    kind="program",
    task="return all rows times this device's columns, by a ring: never hold all rows",
    reference=ring_matmul.ring_matmul,
    oracle=_product,
    cases=(
        _case("tp=8", "tp", rows=8 * 12, d=96, columns=8 * 4),
        _case("dp=2,tpx=3", "tpx", rows=6 * 10, d=56, columns=6 * 5),
    ),
    draw=_drawn,
    gradient=("x", "w"),
    communication=Communication(
        "permutes to a neighbour only, (n-1) times x; backward at most twice that",
        forward=((Limit(("permute",), "axis", _other_rows, neighbours=True),),),
        backward=((Limit(("permute", "all_gather", "reduce_scatter"), "axis", _both_ways),),),
    ),
    memory=MemoryLimit(
        "never all rows, and once all blocks with the gradient: at most 2.5 times the library's "
        "bytes of intermediate results",
        multiple=2.5,
        programs=("forward", "gradient"),
    ),
    # A loop may begin with one product more. On one device that is twice the work, but then there
    # are no bytes of intermediate results.
    flops=replace(work_is_split(1.7), traded=(2, 0)),
    hints=(
        "The product of some rows needs no other rows: multiply what is here, send it on, and "
        "multiply what arrives.",
        "In round k, from 0 to n-1, device i has the rows of device i - k, if each device sends to "
        "the next one; the n-1 hops come between the rounds.",
        "lax.dynamic_update_slice_in_dim(y, x @ w, (i - k) % n * len(x), 0) puts the product in "
        "its place. If JAX says that zeros do not vary as the product does, make them with "
        "jnp.zeros_like of one.",
    ),
    minimal="A device has 1/n of the rows and needs all of them: n-1 times x must arrive, gathered "
    "or not. The ring only makes sure that a device never holds more than two blocks at once.",
    harder="Send half of each block each way round: as many bytes, on two links. Or write the "
    "reduce-scatter kind, in which the sums of products travel.",
)


def _products(x: Array, w: Array, axis: str, rounds: int) -> list[Array]:
    """The rows that are here in each round times the columns; they are sent on between rounds."""
    products = [x @ w]
    for _ in range(rounds - 1):
        x = hop(x, axis)
        products.append(x @ w)
    return products


def _in_place(blocks: list[Array], axis: str, places: list[Array] | None = None) -> Array:
    """The result, with block k of device i as its block places[k], or i - k; zeros elsewhere."""
    n, i, (rows, columns) = lax.axis_size(axis), lax.axis_index(axis), blocks[0].shape
    y = jnp.zeros_like(blocks[0], shape=(n * rows, columns))
    for k, block in enumerate(blocks):
        place = i - k if places is None else places[k]
        y = lax.dynamic_update_slice_in_dim(y, block, place % n * rows, 0)
    return y


def _right(x: Array, w: Array, axis: str) -> Array:
    return _in_place(_products(x, w, axis, lax.axis_size(axis)), axis)


@wrong("values")
def ring_matmul_mirrored(x: Array, w: Array, *, axis: str) -> Array:
    """The blocks go round the wrong way: rows that are sent to the next device come from the
    previous one, so round k has those of device i - k."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    return _in_place(_products(x, w, axis, n), axis, [i + k for k in range(n)])


@wrong("values")
def ring_matmul_as_they_arrive(x: Array, w: Array, *, axis: str) -> Array:
    """The blocks are in the order in which they arrive, which differs on each device; those of
    device j go to block j."""
    n = lax.axis_size(axis)
    return _in_place(_products(x, w, axis, n), axis, [jnp.int32(k) for k in range(n)])


@wrong("values")
def ring_matmul_one_round_short(x: Array, w: Array, *, axis: str) -> Array:
    """One block is missing: n products are needed, and n-1 hops."""
    return _in_place(_products(x, w, axis, lax.axis_size(axis) - 1), axis)


@wrong("values")
def ring_matmul_off_by_one(x: Array, w: Array, *, axis: str) -> Array:
    """The rows are sent on before the first product, so all blocks are one place off; multiply
    first, then send."""
    return _right(hop(x, axis), w, axis)


@wrong("values")
def ring_matmul_sends_own_always(x: Array, w: Array, *, axis: str) -> Array:
    """Each round sends the device's own rows; send on what arrived in the round before."""
    arrived = hop(x, axis) @ w
    return _in_place([x @ w] + [arrived] * (lax.axis_size(axis) - 1), axis)


@wrong("values")
def ring_matmul_not_closed(x: Array, w: Array, *, axis: str) -> Array:
    """The last device sends to no one, so zeros go round from device 0; close the ring with the
    pairs (j, (j + 1) % n)."""
    n, blocks = lax.axis_size(axis), [x @ w]
    for _ in range(n - 1):
        x = lax.ppermute(x, axis, [(j, j + 1) for j in range(n - 1)])
        blocks.append(x @ w)
    return _in_place(blocks, axis)


@wrong("values")
def ring_matmul_product_travels(x: Array, w: Array, *, axis: str) -> Array:
    """The product travels, but the next device needs these rows times its own columns; send the
    rows."""
    blocks = [x @ w]
    for _ in range(lax.axis_size(axis) - 1):
        blocks.append(hop(blocks[-1], axis))
    return _in_place(blocks, axis)


@wrong("values")
def ring_matmul_weights_travel(x: Array, w: Array, *, axis: str) -> Array:
    """The columns travel, and every device has its own rows times all columns; send the rows, so
    that it has all rows times its columns."""
    blocks = [x @ w]
    for _ in range(lax.axis_size(axis) - 1):
        w = hop(w, axis)
        blocks.append(x @ w)
    return _in_place(blocks, axis)


@wrong("values")
def ring_matmul_summed(x: Array, w: Array, *, axis: str) -> Array:
    """The result is summed over the devices; each has columns of its own."""
    return lax.psum(_right(x, w, axis), axis)


@wrong("values")
def ring_matmul_own_rows_only(x: Array, w: Array, *, axis: str) -> Array:
    """Each device multiplies its own rows only; the rows of the others must reach it, too."""
    return x @ w


@wrong("values")
def ring_matmul_into_float32(x: Array, w: Array, *, axis: str) -> Array:
    """The result is float32 whatever comes in; make it in the dtype of the products, as
    jnp.zeros_like of one does."""
    return _right(x, w, axis).astype(jnp.float32)


@wrong("gradient")
def ring_matmul_cuts_gradient(x: Array, w: Array, *, axis: str) -> Array:
    """No gradient returns for the rows that were sent on; leave lax.stop_gradient out: the
    derivative of lax.ppermute sends the gradient back."""
    blocks = [x @ w]
    for _ in range(lax.axis_size(axis) - 1):
        x = lax.stop_gradient(hop(x, axis))
        blocks.append(x @ w)
    return _in_place(blocks, axis)


@wrong("communication")
def ring_matmul_of_eight(x: Array, w: Array, *, axis: str) -> Array:
    """The ring always has 8 rounds, and on fewer devices the rows come by more than once; n is
    lax.axis_size(axis)."""
    return _in_place(_products(x, w, axis, 8), axis)


@wrong("communication")
def ring_matmul_one_hop_too_many(x: Array, w: Array, *, axis: str) -> Array:
    """The rows are sent n times, back to their own device; n-1 hops reach all the others."""
    blocks = []
    for _ in range(lax.axis_size(axis)):
        blocks.append(x @ w)
        x = hop(x, axis)
    # What arrives last is its own rows again; they are used, so that the hop is not removed.
    blocks[0] = x @ w
    return _in_place(blocks, axis)


@wrong("communication")
def ring_matmul_gathers_first(x: Array, w: Array, *, axis: str) -> Array:
    """All rows are gathered before the product; multiply what is here while it travels on, by
    lax.ppermute to the next device."""
    return gathered(x, axis) @ w


@wrong("communication")
def ring_matmul_gathers_by_sum(x: Array, w: Array, *, axis: str) -> Array:
    """All rows are padded with zeros and summed, which sends twice the bytes, and all of them are
    held at once."""
    return gathered_by_sum(x, axis) @ w


@wrong("communication")
def ring_matmul_far_hops(x: Array, w: Array, *, axis: str) -> Array:
    """Rows are sent further than to the next device, so one link carries several; pass on what
    arrived."""
    blocks = [(hop(x, axis, k) if k else x) @ w for k in range(lax.axis_size(axis))]
    return _in_place(blocks, axis)


@wrong("communication")
def ring_matmul_in_float32(x: Array, w: Array, *, axis: str) -> Array:
    """The rows travel in float32, whatever dtype they come in; send them as they are."""
    return _right(x.astype(jnp.float32), w.astype(jnp.float32), axis).astype(x.dtype)


@wrong("memory")
def ring_matmul_queue_of_all_rows(x: Array, w: Array, *, axis: str) -> Array:
    """A copy of the rows of all devices is shifted in each round, and the gradient keeps every such
    copy; hold only the block that is here."""
    t, blocks = len(x), [x @ w]
    queue = jnp.concatenate([x] * lax.axis_size(axis))
    for _ in range(lax.axis_size(axis) - 1):
        queue = jnp.concatenate([hop(queue[:t], axis), queue[:-t]])
        blocks.append(queue[:t] @ w)
    return _in_place(blocks, axis)


@wrong("memory")
def ring_matmul_gathers_by_ring(x: Array, w: Array, *, axis: str) -> Array:
    """The rows go round and are collected before the product; multiply each block when it arrives,
    and then drop it."""
    n, i, rows = lax.axis_size(axis), lax.axis_index(axis), [x]
    for _ in range(n - 1):
        rows.append(hop(rows[-1], axis))
    return jnp.stack(rows)[(i - jnp.arange(n)) % n].reshape(-1, x.shape[1]) @ w


@wrong("flops")
def ring_matmul_both_blocks(x: Array, w: Array, *, axis: str) -> Array:
    """Each round multiplies the rows that are here and those that arrive, so most rows are
    multiplied twice; multiply what is here, and keep what arrives for the next round."""
    n, blocks, last = lax.axis_size(axis), [], x @ w
    for _ in range(n - 1):
        arrived = hop(x, axis)
        here, last = jnp.split(jnp.concatenate([x, arrived]) @ w, 2)
        blocks, x = [*blocks, here], arrived
    return _in_place([*blocks, last], axis)
