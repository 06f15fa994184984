"""What a transformer keeps of its forward pass for its gradient.

Source: Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models,
sections 4 and 5.
"""

from jaxpar.checks import check_one_of
from jaxpar.cost.layout import REMATS


def activation_bytes(
    b: int,
    s: int,
    h: int,
    heads: int,
    layers: int,
    *,
    tp: int,
    sequence_parallel: bool,
    remat: str,
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
    check_one_of("activation_bytes", "remat", remat, REMATS)
    x = s * b * h
    if remat == "full":
        return layers * 2.0 * x
    # the softmax, its dropout mask, and the softmax after dropout
    scores = (2 + 1 + 2) * heads * s * s * b if remat == "none" else 0
    # the inputs of both norms and their outputs; two dropout masks
    outside = (4 * 2 + 2) * x / (tp if sequence_parallel else 1)
    # queries, keys, values and attention's result; the input and the output of GELU, each 4h wide
    inside = (4 * 2 + 2 * 4 * 2) * x
    return layers * (outside + (inside + scores) / tp)
