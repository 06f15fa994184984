"""Exercise chunks_to_read (lesson 20): what a device reads of an array saved in other parts.

Your task: return each chunk that has elements of the part, with what to read of it, and where to.

Save it while `jaxpar` runs, or check it with `jaxpar check chunks_to_read`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   chunks_to_read((8,), (4,), (2,), (0,)) -> [((0,), ((0, 2),), ((0, 2),)), ((1,), ((0, 2),),
#       ((2, 4),))]
#   chunks_to_read((8,), (4,), (2,), (1,)) -> [((2,), ((0, 2),), ((0, 2),)), ((3,), ((0, 2),),
#       ((2, 4),))]
#   chunks_to_read((8,), (2,), (4,), (0,)) -> [((0,), ((0, 2),), ((0, 2),))]
#   chunks_to_read((8, 8), (2,), (2, 2), (0, 0)) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Sequence


def chunks_to_read(
    shape: Sequence[int], saved: Sequence[int], wanted: Sequence[int], part: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]]:
    """What a device reads of an array that was saved in chunks: its part, and no byte besides.

    The array has the sizes `shape`. It was saved in saved[k] chunks along dim k, and is to be split
    into wanted[k] parts along dim k, of which the device takes the one with the index part[k]. A
    dim of size s that is cut into c blocks has ceil(s/c) elements in each; so the last ones may be
    smaller, or empty.

    Returns a triple for each chunk that has elements of the part, in ascending order of the chunk's
    indices, the last dim fastest. It has the indices of the chunk, the range (start, stop) of each
    dim to be read, counted from the start of the chunk, and the same counted from the start of the
    part. An array without dims is one chunk.

    Math: chunk, range - chunk's start, range - part's start, where range is what both have
    Source: TensorStore documentation, "Chunk layout"

    Raises:
        ValueError: there are not as many numbers for each argument, a size is negative, there are
            fewer than 1 chunks or parts along a dim, or there is no such part.
    """
    raise NotImplementedError(
        "return each chunk that has elements of the part, with what to read of it, and where to"
    )
