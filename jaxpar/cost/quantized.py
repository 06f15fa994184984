"""How many bits a number takes when it is kept as a code and a scale for each group.

Sources: Dettmers et al. 2022 (8-bit optimizers); Dettmers et al. 2023 (QLoRA), section 3.
"""

from jaxpar.checks import check_positive

FLOAT_BITS = 32


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
    second = {} if double_group is None else {"double_group": double_group}
    check_positive(
        "quantized_bits", {"bits": bits, "group": group, "scale_bits": scale_bits} | second
    )
    of_scale = scale_bits + (FLOAT_BITS / double_group if double_group is not None else 0)
    return bits + of_scale / group
