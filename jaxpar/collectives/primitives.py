"""The collectives that move data: from one device, to one device, or between all of them."""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num, Shaped

from jaxpar.mesh import Axis, check_chunks, check_root


def add_rank(x: Num[Array, "..."], *, axis: str) -> Num[Array, "..."]:
    """Adds the index of this device on the axis to x; the result has the dtype of x.

    Math: y = x + i on device i
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: MPI 4.1, section 7.4.1 (MPI_Comm_rank)
    """
    return x + lax.axis_index(axis).astype(x.dtype)


def broadcast(x: Num[Array, "..."], *, axis: Axis, root: int) -> Num[Array, "..."]:
    """Copies the root's x to every device.

    Math: y = x_root, as the sum of x_root and zeros
    Comm:
        forward: all_reduce(axis) x
        backward: nothing
    Memory: x
    Source: MPI 4.1, section 6.4

    Raises:
        ValueError: the axis has no device `root`.
    """
    check_root("broadcast", root, axis)
    if axis is None:
        return x
    is_root = lax.axis_index(axis) == root
    return lax.psum(jnp.where(is_root, x, jnp.zeros_like(x)), axis)


def scatter(x: Num[Array, "n ..."], *, axis: str, root: int) -> Num[Array, "..."]:
    """Gives device i chunk i of the root's x; the x of the other devices is ignored.

    Math: y = x_root[i] on device i, as the sum of x_root[i] and zeros
    Comm:
        forward: reduce_scatter(axis) x
        backward: all_gather(axis) x/n
    Memory: x/n
    Source: MPI 4.1, section 6.6

    Raises:
        ValueError: the size of dim 0 of x is not that of the axis, or there is no device `root`.
    """
    check_chunks("scatter", x, axis)
    check_root("scatter", root, axis)
    is_root = lax.axis_index(axis) == root
    return lax.psum_scatter(jnp.where(is_root, x, jnp.zeros_like(x)), axis)


def gather(x: Shaped[Array, "..."], *, axis: str, root: int) -> Shaped[Array, "n ..."]:
    """Gathers every device's x on the root, in device order; the other devices return zeros.

    Math: y[j] = x_j on the root, 0 elsewhere
    Comm:
        forward: all_gather(axis) x
        backward: reduce_scatter(axis) n*x
    Memory: n*x
    Source: MPI 4.1, section 6.5

    Raises:
        ValueError: the axis has no device `root`.
    """
    check_root("gather", root, axis)
    is_root = lax.axis_index(axis) == root
    y = lax.all_gather(x, axis)  # [n, ...]; all devices run one program, so all receive it
    return jnp.where(is_root, y, jnp.zeros_like(y))


def all_gather(x: Shaped[Array, "..."], *, axis: Axis) -> Shaped[Array, "n ..."]:
    """Gathers every device's x, in device order, on every device.

    Math: y[j] = x_j
    Comm:
        forward: all_gather(axis) x
        backward: reduce_scatter(axis) n*x
    Memory: n*x
    Source: MPI 4.1, section 6.7
    """
    return x[None] if axis is None else lax.all_gather(x, axis)


def all_to_all(x: Shaped[Array, "n ..."], *, axis: Axis) -> Shaped[Array, "n ..."]:
    """Sends chunk j to device j, which transposes devices and chunks.

    Math: y[j] = x_j[i] on device i
    Comm:
        forward: all_to_all(axis) x
        backward: all_to_all(axis) x
    Memory: x
    Source: MPI 4.1, section 6.8

    Raises:
        ValueError: dim 0 of x is not the size of the axis.
    """
    check_chunks("all_to_all", x, axis)
    return x if axis is None else lax.all_to_all(x, axis, split_axis=0, concat_axis=0)


def permute(x: Shaped[Array, "..."], *, axis: Axis, shift: int) -> Shaped[Array, "..."]:
    """Sends x to the device `shift` places further along a ring.

    Math: y = x_((i - shift) mod n) on device i
    Comm:
        forward: permute(axis) x
        backward: permute(axis) x
    Memory: x
    Source: MPI 4.1, section 3.10 (MPI_Sendrecv)
    """
    if axis is None:
        return x
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + shift) % n) for j in range(n)])


def all_to_all_by_permutes(x: Shaped[Array, "n ..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Does what `all_to_all` does, in n - 1 steps: in step k, device i sends to device i + k.

    Math: y[j] = x_j[i] on device i
    Comm:
        forward: permute(axis) (n-1)/n*x
        backward: permute(axis) (n-1)/n*x
    Memory: x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (alltoall)

    Raises:
        ValueError: dim 0 of x is not the size of the axis.
    """
    n = check_chunks("all_to_all_by_permutes", x, axis)
    i, steps = lax.axis_index(axis), jnp.arange(n)
    x = x[(i + steps) % n]  # x[k] goes to device i + k
    received = [x[0]]  # received[k] comes from device i - k
    for k in range(1, n):
        received.append(lax.ppermute(x[k], axis, [(j, (j + k) % n) for j in range(n)]))
    return jnp.stack(received)[(i - steps) % n]
