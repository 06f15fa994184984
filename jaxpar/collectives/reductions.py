"""The collectives that combine the arrays of several devices into one.

`op` is sum, prod, min or max; for integers and booleans it may also be the bitwise and, or, xor.
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32, Num, Shaped

from jaxpar.collectives._chunks import join, split
from jaxpar.mesh import Axis, check_chunks, check_root

# These reductions are collectives of their own in JAX ...
_OVER_DEVICES = {"sum": lax.psum, "min": lax.pmin, "max": lax.pmax}
# ... and these combine the chunks that a device has received.
_OVER_CHUNKS = {
    "prod": lax.reduce_prod,
    "min": lax.reduce_min,
    "max": lax.reduce_max,
    "and": lax.reduce_and,
    "or": lax.reduce_or,
    "xor": lax.reduce_xor,
}


def reduce_scatter(
    x: Shaped[Array, "n ..."], *, axis: Axis, op: str = "sum"
) -> Shaped[Array, "..."]:
    """Reduces every device's chunk i onto device i, by a sum or another operation.

    Math: y = sum_j x_j[i] on device i
    Comm:
        forward if op in {sum}: reduce_scatter(axis) x
        forward: all_to_all(axis) x
        backward if op in {sum}: all_gather(axis) x/n
        backward if op in {prod, min, max}: all_to_all(axis) x
        backward: no derivative
    Memory: x/n
    Source: MPI 4.1, section 6.10

    Raises:
        ValueError: dim 0 of x is not the size of the axis, or `op` is unknown.
    """
    check_chunks("reduce_scatter", x, axis)
    _check_op("reduce_scatter", op)
    if axis is None:
        return x[0]
    if op == "sum":
        return lax.psum_scatter(x, axis)
    chunks = lax.all_to_all(x, axis, split_axis=0, concat_axis=0)  # [n, ...]: chunk i of every x
    return _OVER_CHUNKS[op](chunks, axes=(0,))


def all_reduce(x: Shaped[Array, "..."], *, axis: Axis, op: str = "sum") -> Shaped[Array, "..."]:
    """Reduces every device's x, on every device, by a sum or another operation.

    JAX has a single collective for each of sum, min and max. The other operations are a
    reduce-scatter and an all-gather, which together send as much as an all-reduce; gathering first
    would send n/2 times as much.

    Math: y = sum_j x_j
    Comm:
        forward if op in {sum, min, max}: all_reduce(axis) x
        forward: all_to_all(axis) n*ceil(x/n) + all_gather(axis) ceil(x/n)
        backward if op in {sum}: nothing
        backward if op in {prod}: all_to_all(axis) n*ceil(x/n)
        backward: no derivative
    Memory: x
    Source: MPI 4.1, section 6.9

    Raises:
        ValueError: `op` is unknown.
    """
    _check_op("all_reduce", op)
    if axis is None:
        return x
    if op in _OVER_DEVICES:
        return _OVER_DEVICES[op](x, axis)
    chunk = reduce_scatter(split(x, lax.axis_size(axis)), axis=axis, op=op)
    return join(lax.all_gather(chunk, axis, to="invarying"), x.shape)


def reduce(
    x: Shaped[Array, "..."], *, axis: Axis, root: int, op: str = "sum"
) -> Shaped[Array, "..."]:
    """Reduces every device's x on the root, by a sum or another operation; the others return zeros.

    Math: y = sum_j x_j on the root, 0 elsewhere
    Comm:
        forward if op in {sum}: reduce_scatter(axis) n*ceil(x/n) + all_gather(axis) ceil(x/n)
        forward: all_to_all(axis) n*ceil(x/n) + all_gather(axis) ceil(x/n)
        backward if op in {sum}: reduce_scatter(axis) n*ceil(x/n) + all_gather(axis) ceil(x/n)
        backward if op in {prod, min, max}: reduce_scatter(axis) n*ceil(x/n)
            + all_to_all(axis) n*ceil(x/n)
        backward: no derivative
    Memory: x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (reduce and allreduce)

    Raises:
        ValueError: the axis has no device `root`, or `op` is unknown.
    """
    n = check_root("reduce", root, axis)
    _check_op("reduce", op)
    if axis is None:
        return x
    chunk = reduce_scatter(split(x, n), axis=axis, op=op)
    y = join(lax.all_gather(chunk, axis), x.shape)
    return jnp.where(lax.axis_index(axis) == root, y, jnp.zeros_like(y))


def mean_over_devices(x: Float[Array, "..."], *, axis: str) -> Float[Array, "..."]:
    """Averages x over the devices, on every device, in the dtype of x.

    Math: y = (sum_j x_j) / n
    Comm:
        forward: all_reduce(axis) x
        backward: nothing
    Memory: x
    Source: MPI 4.1, section 6.9
    """
    return lax.psum(x, axis) / lax.axis_size(axis)


def reduce_max_location(
    x: Num[Array, "..."], *, axis: str
) -> tuple[Num[Array, "..."], Int32[Array, "..."]]:
    """Finds, element by element, the largest x of all devices and the device that holds it.

    The results are equal on every device. Where several devices hold the largest value, the result
    is the lowest of their indices.

    Math: y = max_j x_j, and min {j : x_j = y}
    Comm:
        forward: all_reduce(axis) 2*x
        backward: no derivative
    Memory: 2*x
    Source: MPI 4.1, section 6.9.4 (MPI_MAXLOC)
    """
    largest = lax.pmax(x, axis)
    n = lax.axis_size(axis)  # more than any index: this device does not hold it
    return largest, lax.pmin(jnp.where(x == largest, lax.axis_index(axis), n), axis)


def reduce_min_location(
    x: Num[Array, "..."], *, axis: str
) -> tuple[Num[Array, "..."], Int32[Array, "..."]]:
    """Finds, element by element, the smallest x of all devices and the device that holds it.

    The results are equal on every device. Where several devices hold the smallest value, the result
    is the lowest of their indices.

    Math: y = min_j x_j, and min {j : x_j = y}
    Comm:
        forward: all_reduce(axis) 2*x
        backward: no derivative
    Memory: 2*x
    Source: MPI 4.1, section 6.9.4 (MPI_MINLOC)
    """
    smallest = lax.pmin(x, axis)
    n = lax.axis_size(axis)  # more than any index: this device does not hold it
    return smallest, lax.pmin(jnp.where(x == smallest, lax.axis_index(axis), n), axis)


def _check_op(where: str, op: str) -> None:
    if op not in ("sum", *_OVER_CHUNKS):
        known = ", ".join(("sum", *_OVER_CHUNKS))
        raise ValueError(f"{where}: op {op!r} is unknown; use one of {known}")
