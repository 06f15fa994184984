"""Exercise transformer_step_flops (lesson 04): all products of a step, counted.

Your task: return the FLOPs of all products of a step: forward, backward and recomputed.

Save it while `jaxpar` runs, or check it with `jaxpar check transformer_step_flops`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   transformer_step_flops(1, 4, 2, 8, 16, remat="none") -> 43008.0
#   transformer_step_flops(1, 4, 2, 8, 16, remat="selective") -> 44032.0
#   transformer_step_flops(1, 4, 2, 8, 16, remat="full") -> 56320.0
#   transformer_step_flops(7, 6, 5, 3, 4, remat="half") raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def transformer_step_flops(
    batch: int, sequence: int, layers: int, hidden: int, vocab: int, *, remat: str
) -> int:
    """Floating-point operations of one training step of a GPT, whose MLP is 4 times as wide.

    Matrix products alone count: a multiplication and an addition are 2. Every query meets every
    key: the causal mask halves nothing. The head counts, the embedding does not. The backward
    pass takes twice what the forward pass takes.

    `remat` is what the backward pass computes again: "none"; "selective", the scores of attention
    and their product with the values; "full", all layers, but not the head. With "selective",
    attention takes 16*B*L*s^2*h in all. Korthikanti et al. print 24 in equation 8; an answer may
    follow that.

    Math: a layer's forward pass B*s*(24h^2 + 4sh), of which selective computes 4Bs^2h again; the
        head's 2BshV
    Source: Korthikanti et al. 2022, equation 7; Narayanan et al. 2021, equation 3

    Raises:
        ValueError: `remat` is none of the three, or a size is not positive.
    """
    raise NotImplementedError(
        "return the FLOPs of all products of a step: forward, backward and recomputed"
    )
