"""Exercise device_coordinates (lesson 01): the position of a device in a mesh.

Your task: return the position of device number `rank` as a tuple, the last axis fastest.

Save it while `jaxpar` runs, or check it with `jaxpar check device_coordinates`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   device_coordinates(3, (8,)) -> (3,)
#   device_coordinates(6, (2, 4)) -> (1, 2)
#   device_coordinates(4, (4, 2)) -> (2, 0)
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def device_coordinates(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The coordinates of device number `rank` in a mesh of these sizes, in row-major order.

    In a mesh of 2 by 4 devices, device 5 is at (1, 1): in the second row and the second column.
    A mesh without axes has one device, at ().
    """
    raise NotImplementedError(
        "return the position of device number `rank` as a tuple, the last axis fastest"
    )
