"""Exercise all_reduce_seconds (lesson 04): how long a ring takes on a link.

Your task: return the seconds of a ring all-reduce, from its steps, the bytes of each, and the
link.

Save it while `jaxpar` runs, or check it with `jaxpar check all_reduce_seconds`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   all_reduce_seconds(1000, 4, latency_seconds=1, bytes_per_second=100) -> 21.0
#   all_reduce_seconds(1000, 2, latency_seconds=0, bytes_per_second=100) -> 10.0
#   all_reduce_seconds(1000, 1, latency_seconds=1, bytes_per_second=100) -> 0.0
#   all_reduce_seconds(8, 0, latency_seconds=1, bytes_per_second=100) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def all_reduce_seconds(
    num_bytes: float, n: int, *, latency_seconds: float, bytes_per_second: float
) -> float:
    """The time of an all-reduce of `num_bytes` on each of n devices, by a ring.

    A reduce-scatter, then an all-gather, each of n-1 steps; a message of s bytes takes
    `latency_seconds + s / bytes_per_second`, and all devices send at once, in one direction.

    Source: Thakur, Rabenseifner and Gropp 2005, section 4.5

    Raises:
        ValueError: n is below 1, the bandwidth not above 0, or bytes or the latency negative.
    """
    raise NotImplementedError(
        "return the seconds of a ring all-reduce, from its steps, the bytes of each, and the link"
    )
