"""Exercise quantized_bits (lesson 22): what a number takes, with its part of the scales.

Your task: return the bits that a number takes, with its part of the scales.

Save it while `jaxpar` runs, or check it with `jaxpar check quantized_bits`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   quantized_bits(4, group=64, scale_bits=32, double_group=None) -> 4.5
#   quantized_bits(4, group=64, scale_bits=8, double_group=256) -> 4.126953125
#   quantized_bits(8, group=256, scale_bits=32, double_group=None) -> 8.125
#   quantized_bits(0, group=2, scale_bits=4, double_group=7) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def quantized_bits(
    bits: int, *, group: int, scale_bits: int = 32, double_group: int | None = None
) -> float:
    """The bits that a number takes, with its part of the scales.

    A number has a code of `bits` bits, and each `group` numbers share a scale of `scale_bits` bits.
    In *double quantization* the scales are codes themselves: each `double_group` of them share a
    second scale, which is a float32. With None there is no second scale.

    Math: bits + scale_bits / group + 32 / (group * double_group)
    Source: Dettmers et al. 2023 (QLoRA), section 3

    Raises:
        ValueError: a number is not above 0.
    """
    raise NotImplementedError("return the bits that a number takes, with its part of the scales")
