"""What answers to several exercises are made of."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.tensor_2d_3d.summa_matmul import brought, side, zeros_of_product
from tests.contracts.ring_and_tree.common import ring_all_gather


def gathered_by_ring(x, axis, dim=0):
    return jnp.concatenate(list(ring_all_gather(x, axis)), axis=dim)


def in_rounds(x, w, *, rows, cols, rounds=None):
    def one_round(y, k):
        return y + brought(x, k, cols) @ brought(w, k, rows), None

    q = side(rows, cols)
    return lax.scan(one_round, zeros_of_product(x, w), jnp.arange(rounds or q))[0]


def by_rings(x, w, *, rows, cols):
    side(rows, cols)
    return gathered_by_ring(x, cols, 1) @ gathered_by_ring(w, rows)
