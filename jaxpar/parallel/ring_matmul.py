"""Matrix products in rounds around a ring: while one block is multiplied, another one travels.

They send what a gather before the product, or a reduce-scatter after it, sends, and never hold all
of what is sent.
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from jaxpar.mesh import divide, vary_alike


def ring_matmul(
    x: Float[Array, "t d"], w: Float[Array, "d f"], *, axis: str
) -> Float[Array, "s f"]:
    """All rows times this device's columns, though a device never holds all rows.

    x is this device's rows, t of n*t, and w its columns of the whole matrix. Each round multiplies
    the rows that are here, and sends them on to the next device.

    Math: y = [x_1, ..., x_n] @ w
    Comm:
        forward: permute(axis) (n-1)*x
        backward: permute(axis) (n-1)*x
    Memory: y
    Source: Wang et al. 2023 (Overlap Communication with Dependent Computation), all-gather case
    """
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = jnp.zeros((n, len(x), w.shape[1]), jnp.result_type(x, w))
    x, w, blocks = vary_alike(x, w, blocks)  # before the rounds, which else would sum in each
    for k in range(n):  # the rows that are here come from device i - k
        blocks = lax.dynamic_update_index_in_dim(blocks, x @ w, (i - k) % n, 0)
        if k < n - 1:
            x = lax.ppermute(x, axis, _to_next(n))
    return blocks.reshape(-1, w.shape[1])


def matmul_ring(
    x: Float[Array, "s f"], w: Float[Array, "f d"], *, axis: str
) -> Float[Array, "t d"]:
    """This device's rows of a sum of products, though a device never holds all of its product.

    x is this device's columns of all rows, and w its rows of the whole matrix. Each round
    multiplies the rows of one device, and adds the sum that arrives.

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
    rows = divide("matmul_ring", "s", len(x), axis, n)
    x, w = vary_alike(x, w)  # before the rounds, which else would sum a gradient in each

    def product(device: Array) -> Array:
        return lax.dynamic_slice_in_dim(x, device % n * rows, rows) @ w

    def one_round(k: Array, total: Array) -> Array:
        return lax.ppermute(total, axis, _to_next(n)) + product(i - k)

    # Rows of device j set out from device j + 1 and come home last. In a loop, because XLA's CPU
    # compiler would multiply for all rounds first, and hold the whole product.
    return lax.fori_loop(2, n + 1, one_round, product(i - 1))


def _to_next(n: int) -> list[tuple[int, int]]:
    return [(j, (j + 1) % n) for j in range(n)]
