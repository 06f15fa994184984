"""Ring algorithms: n - 1 steps, in each of which a device sends to its neighbours only."""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num, Shaped

from jaxpar.collectives._chunks import join, split
from jaxpar.mesh import check_chunks


def ring_all_gather(x: Shaped[Array, "..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Gathers every device's x, in device order: each block travels once around the ring.

    Math: y[j] = x_j
    Comm:
        forward: permute(axis) (n-1)*x
        backward: permute(axis) (n-1)*x
    Memory: n*x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (allgather)
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    to_next = [(j, (j + 1) % n) for j in range(n)]
    blocks = [x]  # blocks[k] comes from device i - k
    for _ in range(n - 1):
        blocks.append(lax.ppermute(blocks[-1], axis, to_next))
    return jnp.stack(blocks)[(i - jnp.arange(n)) % n]


def two_way_ring_all_gather(x: Shaped[Array, "..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Gathers every device's x, in device order: a block travels half the ring in each direction.

    Where a link carries both directions at once, this takes half as many steps as one direction.

    Math: y[j] = x_j
    Comm:
        forward: permute(axis) (n-1)*x
        backward: permute(axis) (n-1)*x
    Memory: n*x
    Source: Austin et al. 2025, How to Scale Your Model, "Sharded Matrices" (AllGather)
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    to_next = [(j, (j + 1) % n) for j in range(n)]
    to_previous = [(j, (j - 1) % n) for j in range(n)]
    before, after = [x], [x]  # before[k] comes from device i - k, after[k] from device i + k
    for _ in range(n // 2):
        before.append(lax.ppermute(before[-1], axis, to_next))
    for _ in range(n - 1 - n // 2):
        after.append(lax.ppermute(after[-1], axis, to_previous))
    blocks = before + after[:0:-1]  # device i + k is device i - (n - k)
    return jnp.stack(blocks)[(i - jnp.arange(n)) % n]


def ring_reduce_scatter(x: Num[Array, "n ..."], *, axis: str) -> Num[Array, "..."]:
    """Sums every device's chunk i onto device i: partial sums travel around the ring and grow.

    Math: y = sum_j x_j[i] on device i
    Comm:
        forward: permute(axis) (n-1)/n*x
        backward: permute(axis) (n-1)/n*x
    Memory: x/n
    Source: Patarasuk and Yuan 2009 (ring algorithm)

    Raises:
        ValueError: the size of dim 0 of x is not that of the axis.
    """
    n, i = check_chunks("ring_reduce_scatter", x, axis), lax.axis_index(axis)
    to_next = [(j, (j + 1) % n) for j in range(n)]
    partial = x[(i - 1) % n]  # chunk c starts on device c + 1 and reaches device c last
    for k in range(2, n + 1):
        partial = lax.ppermute(partial, axis, to_next) + x[(i - k) % n]
    return partial


def ring_all_reduce(x: Num[Array, "..."], *, axis: str) -> Num[Array, "..."]:
    """Sums x over the devices, on every device: a ring reduce-scatter, then a ring all-gather.

    Math: y = sum_j x_j
    Comm:
        forward: permute(axis) 2*(n-1)*ceil(x/n)
        backward: permute(axis) 2*(n-1)*ceil(x/n)
    Memory: x
    Source: Patarasuk and Yuan 2009 (ring algorithm)
    """
    chunks = split(x, lax.axis_size(axis))  # [n, c]
    chunk = ring_reduce_scatter(chunks, axis=axis)  # [c]
    return join(ring_all_gather(chunk, axis=axis), x.shape)
