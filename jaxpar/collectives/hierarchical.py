"""Collectives on two levels: fast links inside a node (inner), slow ones between nodes (outer).

Devices are counted node by node, as in a mesh "node=2,device=4". Over the slow links, each device
sends only its own part, never a whole array.
"""

from jax import Array, lax
from jaxtyping import Num, Shaped

from jaxpar.collectives._chunks import join, split
from jaxpar.mesh import check_chunks


def hierarchical_all_gather(
    x: Shaped[Array, "..."], *, inner: str, outer: str
) -> Shaped[Array, "n ..."]:
    """Gathers every device's x, in device order: first between nodes, while the arrays are small.

    Math: y[j] = x_j
    Comm:
        forward: all_gather(outer) x + all_gather(inner) n_outer*x
        backward: reduce_scatter(inner) n_inner*n_outer*x + reduce_scatter(outer) n_outer*x
    Memory: n_inner*n_outer*x
    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)
    """
    y = lax.all_gather(x, outer)  # [n_outer, ...]
    y = lax.all_gather(y, inner, axis=1)  # [n_outer, n_inner, ...]
    return y.reshape(-1, *x.shape)


def hierarchical_reduce_scatter(
    x: Num[Array, "n ..."], *, inner: str, outer: str
) -> Num[Array, "..."]:
    """Sums every device's chunk i onto device i: first inside a node, while the arrays are large.

    Math: y = sum_j x_j[i] on device i
    Comm:
        forward: reduce_scatter(inner) x + reduce_scatter(outer) x/n_inner
        backward: all_gather(outer) x/(n_inner*n_outer) + all_gather(inner) x/n_inner
    Memory: x/(n_inner*n_outer)
    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)

    Raises:
        ValueError: the size of dim 0 of x is not the number of devices of both axes together.
    """
    check_chunks("hierarchical_reduce_scatter", x, (outer, inner))
    x = x.reshape(lax.axis_size(outer), lax.axis_size(inner), *x.shape[1:])
    x = lax.psum_scatter(x, inner, scatter_dimension=1)  # [n_outer, ...]
    return lax.psum_scatter(x, outer)


def hierarchical_all_reduce(x: Num[Array, "..."], *, inner: str, outer: str) -> Num[Array, "..."]:
    """Sums x over both axes, on every device; x may have any size.

    Math: y = sum_j x_j
    Comm:
        forward: reduce_scatter(inner) n_inner*ceil(x/n_inner) + all_reduce(outer) ceil(x/n_inner)
            + all_gather(inner) ceil(x/n_inner)
        backward: all_gather(inner) ceil(x/n_inner)
    Memory: x
    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)
    """
    chunks = split(x, lax.axis_size(inner))  # [n_inner, c]
    chunk = lax.psum_scatter(chunks, inner)  # [c], the sum over the node
    chunk = lax.psum(chunk, outer)  # [c], the sum over all nodes
    y = lax.all_gather(chunk, inner, to="invarying")  # [n_inner, c], equal on every device
    return join(y, x.shape)
