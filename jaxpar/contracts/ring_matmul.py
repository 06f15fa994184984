"""Contract of lesson 12: a product whose rows travel round a ring."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxpar.contracts import ring_matmul_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import mesh_order
from jaxpar.contracts.case import Array, Case, Sizes
from jaxpar.parallel import ring_matmul


def _product(case: Case, x: jax.Array, w: jax.Array) -> list[Expected]:
    """All rows of the devices along `axis`, which is the last, times the columns of each."""
    *others, n = case.sizes.values()
    x = x.reshape(*others, -1, x.shape[1])
    columns = w.reshape(w.shape[0], *others, n, -1)
    return [Expected(mesh_order(case, jnp.einsum("...td,d...nf->n...tf", x, columns)))]


def _other_rows(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("x")


def _both_ways(sizes: Sizes) -> int:
    """What travels backward: the gradient of the rows, and the rows once more if none was kept."""
    return 2 * _other_rows(sizes)


RING_MATMUL = Contract(
    id="ring_matmul",
    kind="program",
    task="return all rows times this device's columns, by a ring: never hold all rows",
    reference=ring_matmul.ring_matmul,
    oracle=_product,
    cases=(
        Case(
            "tp=8",
            {"x": Array((8 * 12, 96), "t_tp d"), "w": Array((96, 8 * 4), "d f_tp")},
            {"axis": "tp"},
        ),
        Case(
            "dp=2,tpx=3",
            {"x": Array((6 * 10, 56), "t_dp_tpx d"), "w": Array((56, 6 * 5), "d f_dp_tpx")},
            {"axis": "tpx"},
        ),
    ),
    hidden=(
        Case(
            "dp=2,cp=4",
            {"x": Array((8 * 9, 80), "t_dp_cp d"), "w": Array((80, 8 * 6), "d f_dp_cp")},
            {"axis": "cp"},
        ),
    ),
    gradient=("x", "w"),
    communication=Communication(
        "permutes to a neighbour only, (n-1) times x; backward at most twice that",
        forward=((Limit(("permute",), "axis", _other_rows, neighbours=True),),),
        backward=((Limit(("permute", "all_gather", "reduce_scatter"), "axis", _both_ways),),),
    ),
    memory=MemoryLimit(
        "never all rows: at most twice the library's bytes of intermediate results",
        multiple=2,
    ),
    mistakes=mistakes.RING_MATMUL,
    hints=(
        "The product of some rows needs no other rows: multiply what is here, send it on, and "
        "multiply what arrives.",
        "In round k, from 0 to n-1, a device has the rows of device i - k, if each sends to the "
        "next; the n-1 hops stand between the rounds.",
        "lax.dynamic_update_slice_in_dim(y, x @ w, (i - k) % n * len(x), 0) puts the product in "
        "its place. If JAX says that zeros do not vary as the product does, make them by "
        "jnp.zeros_like of one.",
    ),
    minimal="A device has 1/n of the rows and needs all of them: n-1 times x must arrive, gathered "
    "or not. The ring only chooses that never more than two blocks are there.",
    harder="Send half of each block each way round: as many bytes, on two links. Or write the "
    "reduce-scatter kind, in which the sums of products travel.",
)

CONTRACTS = (RING_MATMUL,)
