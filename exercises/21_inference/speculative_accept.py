"""Exercise speculative_accept (lesson 21): which guessed tokens are kept, and what follows them.

Your task: return how many drafted tokens are accepted, and the distribution of the next one.

Save it while `jaxpar` runs, or check it with `jaxpar check speculative_accept`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  nothing is sent
#   errors        1  ValueError where there is no distribution of the target after the last
#                    drafted token
#
# Tried with, on each device:
#   mesh dp=4
#     draft         tokens of the vocabulary, made from int32[8, 4]
#     draft_probs   distributions of tokens, in multiples of 1/256, made from float32[8, 4, 11]
#     target_probs  distributions of tokens, in multiples of 1/256, made from float32[8, 5, 11]
#     uniforms      numbers from 0 to below 1, in multiples of 1/64, made from int32[8, 4]
#   mesh dp=2,tp=3
#     draft         tokens of the vocabulary, made from int32[10, 2]
#     draft_probs   distributions of tokens, in multiples of 1/256, made from float32[10, 2, 8]
#     target_probs  distributions of tokens, in multiples of 1/256, made from float32[10, 3, 8]
#     uniforms      numbers from 0 to below 1, in multiples of 1/64, made from int32[10, 2]
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def speculative_accept(
    draft: Int[Array, "b t"],
    draft_probs: Float[Array, "b t v"],
    target_probs: Float[Array, "b s v"],
    uniforms: Float[Array, "b t"],
) -> tuple[Int[Array, " b"], Float[Array, "b v"]]:
    """How many of t drafted tokens are accepted, and the distribution of the token after them.

    `draft_probs` are the distributions that the drafted tokens were drawn from, and `target_probs`
    are those of the model at the same places, and after the last of them, so s is t+1. `uniforms`
    are in [0, 1). A token is accepted if its number times the draft's probability is below the
    target's, and all before it were. Tokens chosen in this way are distributed as those of the
    target alone. All is computed in float32, and so is the distribution.

    Math: accepted = the first i with uniforms_i * q_i(x_i) >= p_i(x_i), or t; the distribution is
        max(0, p_i - q_i), over its sum, or p_t if all are accepted
    Source: Leviathan, Kalman and Matias 2023 (Fast Inference from Transformers via Speculative
        Decoding), section 2.3, algorithm 1

    Raises:
        ValueError: there is no distribution of the target after the last drafted token.
    """
    raise NotImplementedError(
        "return how many drafted tokens are accepted, and the distribution of the next one"
    )
