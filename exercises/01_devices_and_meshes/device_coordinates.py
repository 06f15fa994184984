"""Exercise device_coordinates (lesson 01): the position of a device in a mesh.

Your task: return {axis: position} of device number `rank`, the last axis of `sizes` fastest.

Check it with `jaxpar check device_coordinates`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   device_coordinates(7, {"tp": 8}) -> {"tp": 7}
#   device_coordinates(1, {"dp": 2, "tp": 4}) -> {"dp": 0, "tp": 1}
#   device_coordinates(4, {"tp": 4, "dp": 2}) -> {"tp": 2, "dp": 0}
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Mapping


def device_coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """The position of device number `rank` in a mesh of these sizes, the last axis fastest.

    Raises:
        ValueError: there is no such device.
    """
    raise NotImplementedError(
        "return {axis: position} of device number `rank`, the last axis of `sizes` fastest"
    )
