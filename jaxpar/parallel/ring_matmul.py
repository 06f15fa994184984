"""Matrix products in rounds around a ring: while one block is multiplied, another one travels.

They send as much as an all-gather before the product, or a reduce-scatter after it, but never hold
all of that at once.
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from jaxpar.mesh import divide, vary_alike


def ring_matmul(
    x: Float[Array, "t_tp d"], w: Float[Array, "d f_tp"], *, axis: str
) -> Float[Array, "t f_tp"]:
    """Multiplies all rows by this device's columns, though no device ever holds all rows.

    x is this device's rows, and w is this device's columns of the full matrix. Each round
    multiplies the rows that are here, and sends them on to the next device. x and w have the same
    dtype, in which the rows travel, and which the result has.

    Math: y = [x_1, ..., x_n] @ w
    Comm:
        forward: permute(axis) (n-1)*x
        backward: permute(axis) (n-1)*x
    Memory: y
    Source: Wang et al. 2023 (Overlap Communication with Dependent Computation), all-gather case
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = jnp.zeros((n, len(x), w.shape[1]), jnp.result_type(x, w))
    # Without this, the backward pass would sum a gradient over the devices in each round.
    x, w, blocks = vary_alike(x, w, blocks)
    for k in range(n):  # the rows that are here come from device i - k
        blocks = lax.dynamic_update_index_in_dim(blocks, x @ w, (i - k) % n, 0)
        if k < n - 1:
            x = lax.ppermute(x, axis, _to_next(n))
    return blocks.reshape(-1, w.shape[1])


def matmul_ring(
    x: Float[Array, "t f_tp"], w: Float[Array, "f_tp d"], *, axis: str
) -> Float[Array, "t_tp d"]:
    """This device's rows of a sum of products, though no device ever holds its whole product.

    x is this device's columns of all rows, and w is this device's rows of the full matrix. Each
    round multiplies the rows of one device, and adds the partial sum that arrives.

    Math: y = sum_j (x_j @ w_j)[t_i] on device i
    Comm:
        forward: permute(axis) (n-1)*y
        backward: permute(axis) (n-1)*y
    Memory: y
    Source: Wang et al. 2023 (Overlap Communication with Dependent Computation), reduce-scatter case

    Raises:
        ValueError: n does not divide the rows.
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    rows = divide("matmul_ring", "t", len(x), axis, n)
    # Without this, the backward pass would sum a gradient over the devices in each round.
    x, w = vary_alike(x, w)

    def product(device: Array) -> Array:
        return lax.dynamic_slice_in_dim(x, device % n * rows, rows) @ w

    def one_round(k: Array, total: Array) -> Array:
        return lax.ppermute(total, axis, _to_next(n)) + product(i - k)

    # The partial sum for device j starts on device j + 1 and reaches device j last. This is a loop,
    # because XLA's CPU compiler would otherwise multiply for all rounds first, and hold the whole
    # product.
    return lax.fori_loop(2, n + 1, one_round, product(i - 1))


def _to_next(n: int) -> list[tuple[int, int]]:
    return [(j, (j + 1) % n) for j in range(n)]
