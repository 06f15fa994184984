"""Exercise route (lesson 17): the experts of each token, and their weights.

Your task: choose the best experts of each token, and return a Routing with their weights.

Save it while `jaxpar` runs, or check it with `jaxpar check route`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to x, router
#   communication 3  nothing is sent
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where top_k = 0; top_k = 9 of 8 experts
#
# Tried with, on each device:
#   mesh dp=4
#     x       multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be
#             equal, made from float32[24, 12]
#     router  multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be
#             equal, made from float32[12, 8]
#     top_k   2
#   mesh ep=2,tp=3
#     x       multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be
#             equal, made from float32[10, 9]
#     router  multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be
#             equal, made from float32[9, 6]
#     bias    one of three levels for each expert, further apart than any two scores, made from
#             int32[6]
#     top_k   1
#     score   "sigmoid"
#   mesh dp=2
#     x       multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be
#             equal, made from float32[30, 6]
#     router  multiples of 1, 1/4 or 1/16, so that logits are exact in float32, and some may be
#             equal, made from float32[6, 5]
#     bias    one of three levels for each expert, further apart than any two scores, made from
#             int32[5]
#     top_k   2
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.experts.Routing,
#                jaxpar.experts.Score and, of Python's own, collections, dataclasses, functools,
#                itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from jaxpar.experts import Routing, Score


def route(
    x: Float[Array, "t d"],
    router: Float[Array, "d e"],
    bias: Float[Array, " e"] | None = None,
    *,
    top_k: int,
    score: Score = "softmax",
) -> Routing:
    """Chooses the `top_k` experts with the best scores for each token.

    Returns `Routing(weights, experts, scores, logits)`. The logits are x @ router; the scores are
    their softmax over the experts, or the sigmoid of each. The best expert of a token comes first,
    and of equal ones that with the lowest number. The weights of a token are its chosen scores,
    divided by their sum, and this holds even where all of them are nearly 0. A `bias` is added to
    the scores where experts are chosen, and nowhere else: it balances their load
    (`jaxpar.parallel.expert`), and has no gradient. What comes out is float32, or float64 if x or
    the router is.

    Math: scores = softmax(x @ router); weights = scores_i / sum of the scores of the k best
    Source: Shazeer et al. 2017, section 2.1; Jiang et al. 2024 (Mixtral), section 2.1; DeepSeek-AI
        2024 (DeepSeek-V3), section 2.1.2

    Raises:
        ValueError: there are fewer experts than `top_k`, or `top_k` is below 1.
    """
    raise NotImplementedError(
        "choose the best experts of each token, and return a Routing with their weights"
    )
