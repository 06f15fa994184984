"""Exercise local_shape (lesson 01): the shape of each device's shard.

Your task: return the shape of each device's shard; raise ValueError where a size does not divide.

Save it while `jaxpar` runs, or check it with `jaxpar check local_shape`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   local_shape((8, 6), "b_dp d", {"dp": 4}) -> (2, 6)
#   local_shape((8, 6), "b_dp d", {"dp": 4, "tp": 2}) -> (2, 6)
#   local_shape((12, 2, 2), "b_dp t d", {"dp": 4, "tp": 2, "cp": 3}) -> (3, 2, 2)
#   local_shape((13, 2), "b_dp d", {"dp": 4, "tp": 2, "cp": 3}) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Mapping


def local_shape(shape: tuple[int, ...], layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of each device's shard of an array, on a mesh with these axis sizes.

    A scalar has the shape (), and its layout is the empty text.

    Raises:
        ValueError: the layout does not fit the shape or the mesh, or the axes of a dim do not
            divide its size.
    """
    raise NotImplementedError(
        "return the shape of each device's shard; raise ValueError where a size does not divide"
    )
