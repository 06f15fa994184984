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

    What takes 2 bytes an element: the inputs of products, norms, softmax' gradient (its result),
    and GELU. Queries, keys and values have one input in common. The masks of three dropouts take
    1 byte an element: after softmax, and at the ends of attention and MLP.

    With tensor parallelism each device has 1/tp of the heads and of the MLP's 4h, and holds what
    is outside of them (both norms' and both blocks' inputs, the masks at the ends) whole, or if
    `sequence_parallel`, 1/tp of it.

    `remat`: "none" keeps all this. "selective" computes again what has s*s elements for each head.
    "full" keeps each layer's input alone, and that whole on every device, in any case.

    Source: Korthikanti et al. 2022, table 2

    Raises:
        ValueError: `remat` is none of the three.
    """
    check_one_of("activation_bytes", "remat", remat, REMATS)
    x = s * b * h
    if remat == "full":
        return layers * 2.0 * x
    # softmax, its mask, what dropout makes of it
    scores = (2 + 1 + 2) * heads * s * s * b if remat == "none" else 0
    # x, the stream between, what norms make of them; two masks
    outside = (4 * 2 + 2) * x / (tp if sequence_parallel else 1)
    # queries, keys, values, what attention gives; GELU's input and result, each 4h wide
    inside = (4 * 2 + 2 * 4 * 2) * x
    return layers * (outside + (inside + scores) / tp)
