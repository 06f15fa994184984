"""Exercise activation_bytes (lesson 08): what a GPT keeps for its gradient.

Your task: return the bytes of activations that one device keeps, as in table 2 of the paper.

Save it while `jaxpar` runs, or check it with `jaxpar check activation_bytes`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   activation_bytes(1, 4, 8, 2, 3, tp=2, sequence_parallel=False, remat="none") -> 2352.0
#   activation_bytes(1, 4, 8, 2, 3, tp=2, sequence_parallel=True, remat="none") -> 1872.0
#   activation_bytes(1, 4, 8, 2, 3, tp=2, sequence_parallel=False, remat="selective") -> 2112.0
#   activation_bytes(4, 5, 7, 8, 2, tp=1, sequence_parallel=False, remat="half") raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def activation_bytes(
    b: int, s: int, h: int, heads: int, layers: int, *, tp: int, sequence_parallel: bool, remat: str
) -> float:
    """Bytes that one device keeps of all layers of a GPT, in 16 bits.

    Kept in 2 bytes an element are the inputs of products, norms and GELU, and the result of the
    softmax, which its gradient needs. Queries, keys and values are products of one input, which is
    kept once. The masks of the three dropouts take 1 byte an element: after the softmax, and at the
    ends of attention and MLP.

    With tensor parallelism each device has 1/tp of the heads and of the MLP's 4h. What is outside
    of them (the inputs of both norms and of both blocks, the masks at their ends) it keeps whole,
    or 1/tp of it with `sequence_parallel`.

    `remat`: "none" keeps all this. "selective" keeps nothing that has s*s elements for each head,
    and computes it again. "full" keeps only the input of each layer, whole on every device even
    with `sequence_parallel`.

    Source: Korthikanti et al. 2022, table 2

    Raises:
        ValueError: `remat` is none of the three.
    """
    raise NotImplementedError(
        "return the bytes of activations that one device keeps, as in table 2 of the paper"
    )
