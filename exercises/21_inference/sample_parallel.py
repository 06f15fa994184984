"""Exercise sample_parallel (lesson 21): a random token, of logits that no device has whole.

Your task: return the token of each row with the largest logit + temperature * noise.

Save it while `jaxpar` runs, or check it with `jaxpar check sample_parallel`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  all-reduces of two numbers for each row; no logit
#
# Tried with, on each device:
#   mesh tp=8
#     logits       multiples of a power of two, so that sums are exact, and some are equal, made
#                  from float32[24, 13]
#     noise        multiples of a power of two, so that sums are exact, and some are equal, made
#                  from float32[24, 13]
#     temperature  0 or a power of two from 1/4 to 4, made from int32[24]
#     axis         "tp"
#   mesh dp=2,tpx=3
#     logits       multiples of a power of two, so that sums are exact, and some are equal, made
#                  from float32[20, 16]
#     noise        multiples of a power of two, so that sums are exact, and some are equal, made
#                  from float32[20, 16]
#     temperature  0 or a power of two from 1/4 to 4, made from int32[20]
#     axis         "tpx"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def sample_parallel(
    logits: Float[Array, "b v_tp"],
    noise: Float[Array, "b v_tp"],
    temperature: Float[Array, " b"],
    *,
    axis: str,
) -> Int[Array, " b"]:
    """Chooses a token of each row, whose logits are split over the devices by the vocabulary.

    With Gumbel noise this is a sample of softmax(logits / temperature), and no logit is sent. A
    temperature of 0 takes the most likely token. Where several have the largest sum, the first is
    taken. A token whose logit is minus infinity is never taken. All is computed in float32, and the
    result is equal on all devices.

    Math: y = argmax_i(logits_i + temperature * noise_i), over the vocabularies of all devices
    Source: Maddison, Tarlow and Minka 2014 (A* Sampling), section 2; Shoeybi et al. 2019
        (Megatron-LM), section 3
    """
    raise NotImplementedError(
        "return the token of each row with the largest logit + temperature * noise"
    )
