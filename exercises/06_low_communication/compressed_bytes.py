"""Exercise compressed_bytes (lesson 06): what each scheme sends of a matrix.

Your task: return the bytes that each device sends to average a matrix of gradients, by the scheme.

Save it while `jaxpar` runs, or check it with `jaxpar check compressed_bytes`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   compressed_bytes(8, 4, 2, scheme="fp32", block=8, k=3, rank=1) -> 128.0
#   compressed_bytes(128, 64, 8, scheme="fp32", block=64, k=32, rank=4) -> 57344.0
#   compressed_bytes(12288, 49152, 1024, scheme="fp32", block=256, k=6039797, rank=32) ->
#       4827119616.0
#   compressed_bytes(0, 2, 2, scheme="fp32", block=3, k=6, rank=5) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def compressed_bytes(
    rows: int, columns: int, n: int, *, scheme: str, block: int, k: int, rank: int
) -> float:
    """The bytes that each of n devices sends to average a matrix of gradients.

    The schemes are:

        fp32              an all-reduce of float32 numbers
        int8, int4, sign  codes of 8, 4 or 1 bits, with a float32 scale for each block of `block`
                          numbers, in an all-to-all and then an all-gather of n equal parts
        topk              an all-gather of the k largest numbers of each device, each with its
                          place, an int32
        powersgd          an all-reduce of two float32 factors of rank `rank`

    An all-reduce, an all-to-all and an all-gather send as many bytes as in a ring (lesson 03).
    `block`, `k` and `rank` matter only for the schemes that name them. No size is rounded or
    padded.

    Source: Vogels, Karimireddy and Jaggi 2019 (PowerSGD), algorithm 1

    Raises:
        ValueError: the scheme is unknown, or a number is not above 0.
    """
    raise NotImplementedError(
        "return the bytes that each device sends to average a matrix of gradients, by the scheme"
    )
