"""Trees and recursive doubling: log2 n steps, for messages so small that latency is what counts."""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num, Shaped

from jaxpar.mesh import check_power_of_two, check_root


def tree_broadcast(x: Shaped[Array, "..."], *, axis: str, root: int) -> Shaped[Array, "..."]:
    """The root's x, on every device: in each step, all that hold it send it on.

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
    place = (lax.axis_index(axis) - root) % n  # how far behind the root
    held = 1  # places 0 to held - 1 hold the root's x
    while held < n:
        senders = range(min(held, n - held))
        pairs = [((root + p) % n, (root + p + held) % n) for p in senders]
        received = lax.ppermute(x, axis, pairs)
        x = jnp.where((held <= place) & (place < 2 * held), received, x)
        held *= 2
    return x


def tree_reduce(x: Num[Array, "..."], *, axis: str, root: int) -> Num[Array, "..."]:
    """The sum of every device's x, on the root; zeros on the others: the broadcast, backwards.

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
        x = x + lax.ppermute(x, axis, pairs)  # who is sent nothing receives zeros
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))


def recursive_doubling_all_gather(x: Shaped[Array, "..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Every device's x in device order, on every device: partners swap all they hold.

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
    """The sum of every device's x, on every device: partners swap and add, at distances 1, 2, 4.

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
