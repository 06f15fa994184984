"""Trees and recursive doubling: log2 n steps, for messages so small that latency dominates."""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num, Shaped

from jaxpar.mesh import check_power_of_two, check_root


def tree_broadcast(x: Shaped[Array, "..."], *, axis: str, root: int) -> Shaped[Array, "..."]:
    """Copies the root's x to every device: in each step, every device that has it sends it on.

    Math: y = x_root
    Comm:
        forward: permute(axis) ceil(log2(n))*x
        backward: permute(axis) ceil(log2(n))*x
    Memory: x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (broadcast)

    Raises:
        ValueError: the axis has no device `root`.
    """
    n = check_root("tree_broadcast", root, axis)
    place = (lax.axis_index(axis) - root) % n  # the distance from the root
    held = 1  # places 0 to held - 1 have the root's x
    while held < n:
        senders = range(min(held, n - held))
        pairs = [((root + p) % n, (root + p + held) % n) for p in senders]
        received = lax.ppermute(x, axis, pairs)
        x = jnp.where((held <= place) & (place < 2 * held), received, x)
        held *= 2
    return x


def tree_reduce(x: Num[Array, "..."], *, axis: str, root: int) -> Num[Array, "..."]:
    """Sums x on the root, by the steps of a broadcast in reverse; the other devices return zeros.

    Math: y = sum_j x_j on the root, 0 elsewhere
    Comm:
        forward: permute(axis) ceil(log2(n))*x
        backward: permute(axis) ceil(log2(n))*x
    Memory: x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (reduce and allreduce)

    Raises:
        ValueError: the axis has no device `root`.
    """
    n = check_root("tree_reduce", root, axis)
    half = 1 << (n - 1).bit_length()  # places 0 to half - 1 hold partial sums
    while half > 1:
        half //= 2
        senders = range(half, min(2 * half, n))
        pairs = [((root + p) % n, (root + p - half) % n) for p in senders]
        x = x + lax.ppermute(x, axis, pairs)  # a device that is sent nothing receives zeros
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))


def recursive_doubling_all_gather(x: Shaped[Array, "..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Gathers every device's x, in device order: in each step, partners exchange all they hold.

    Math: y[j] = x_j
    Comm:
        forward: permute(axis) (n-1)*x
        backward: permute(axis) (n-1)*x
    Memory: n*x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (allgather)

    Raises:
        ValueError: the size of the axis is not a power of two.
    """
    n, i = check_power_of_two("recursive_doubling_all_gather", axis), lax.axis_index(axis)
    y, distance = x[None], 1
    while distance < n:
        theirs = lax.ppermute(y, axis, [(j, j ^ distance) for j in range(n)])  # [distance, ...]
        below, above = jnp.concatenate([y, theirs]), jnp.concatenate([theirs, y])
        y = jnp.where(i & distance == 0, below, above)  # [2 * distance, ...]
        distance *= 2
    return y


def recursive_doubling_all_reduce(x: Num[Array, "..."], *, axis: str) -> Num[Array, "..."]:
    """Sums x on every device: partners at distance 1, 2, 4 and so on exchange and add.

    Math: y = sum_j x_j
    Comm:
        forward: permute(axis) log2(n)*x
        backward: permute(axis) log2(n)*x
    Memory: x
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (reduce and allreduce)

    Raises:
        ValueError: the size of the axis is not a power of two.
    """
    n, distance = check_power_of_two("recursive_doubling_all_reduce", axis), 1
    while distance < n:
        x = x + lax.ppermute(x, axis, [(j, j ^ distance) for j in range(n)])
        distance *= 2
    return x
