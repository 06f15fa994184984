"""Exercise hierarchical_all_reduce_seconds (lesson 04): an all-reduce over two kinds of links.

Your task: return the seconds of three parts together: inside nodes, between them, and inside
again.

Save it while `jaxpar` runs, or check it with `jaxpar check hierarchical_all_reduce_seconds`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   hierarchical_all_reduce_seconds(80, inner=2, outer=5, inner_link=(1, 8), outer_link=(3, 4)) ->
#       52.0
#   hierarchical_all_reduce_seconds(80, inner=2, outer=1, inner_link=(1, 8), outer_link=(3, 4)) ->
#       12.0
#   hierarchical_all_reduce_seconds(80, inner=1, outer=5, inner_link=(1, 8), outer_link=(3, 4)) ->
#       56.0
#   hierarchical_all_reduce_seconds(-8, inner=2, outer=5, inner_link=(1, 8), outer_link=(3, 4))
#       raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def hierarchical_all_reduce_seconds(
    num_bytes: float,
    *,
    inner: int,
    outer: int,
    inner_link: tuple[float, float],
    outer_link: tuple[float, float],
) -> float:
    """The time of an all-reduce of `num_bytes` on each of `outer` nodes of `inner` devices.

    A ring reduce-scatter inside each node; a ring all-reduce between nodes, of each device's part
    with those that hold the same part; a ring all-gather inside each node. A link is
    (latency_seconds, bytes_per_second), both of one device: all devices of a node send at once.

    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)

    Raises:
        ValueError: a size is below 1, a bandwidth not above 0, or bytes or a latency negative.
    """
    raise NotImplementedError(
        "return the seconds of three parts together: inside nodes, between them, and inside again"
    )
