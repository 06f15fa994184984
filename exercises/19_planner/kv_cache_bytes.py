"""Exercise kv_cache_bytes (lesson 19): the bytes of a key-value cache.

Your task: return the bytes of all keys and values: what each token adds, times the number of
tokens.

Save it while `jaxpar` runs, or check it with `jaxpar check kv_cache_bytes`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   kv_cache_bytes(1, 1, 32, 8, 128, element_bytes=2) -> 131072.0
#   kv_cache_bytes(2, 10, 3, 4, 5, element_bytes=1) -> 2400.0
#   kv_cache_bytes(3, 7, 2, 1, 64, element_bytes=0.5) -> 2688.0
#   kv_cache_bytes(0, 6, 4, 6, 3, element_bytes=2) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def kv_cache_bytes(
    batch: int, sequence: int, layers: int, kv_heads: int, head_size: int, *, element_bytes: float
) -> float:
    """Bytes that the keys and values of all tokens so far take.

    `element_bytes` may be a fraction: 0.5 for elements of 4 bits.

    Source: Kwon et al. 2023, Efficient Memory Management for Large Language Model Serving with
        PagedAttention, section 3

    Raises:
        ValueError: a number is not positive.
    """
    raise NotImplementedError(
        "return the bytes of all keys and values: what each token adds, times the number of tokens"
    )
