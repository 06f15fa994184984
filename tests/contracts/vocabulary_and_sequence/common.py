"""What answers to several exercises are made of."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def rows(ids, v, axis):
    here = ids - lax.axis_index(axis) * v
    mine = (here >= 0) & (here < v)
    return jnp.where(mine, here, 0), mine


def rows_of_table(ids, v, axis):
    here = ids - lax.axis_index(axis) * v
    return here, (here >= 0) & (here < v)
