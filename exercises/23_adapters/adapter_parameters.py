"""Exercise adapter_parameters (lesson 23): how many parameters each kind of adapter trains.

Your task: return how many parameters the method trains.

Save it while `jaxpar` runs, or check it with `jaxpar check adapter_parameters`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   adapter_parameters(2, 8, 4, 2, 2, 16, gated=False, biases=True, method="lora", rank=2,
#       prefix=3) -> 416
#   adapter_parameters(2, 8, 4, 2, 2, 16, gated=True, biases=True, method="lora", rank=2,
#       prefix=3) -> 512
#   adapter_parameters(2, 8, 4, 2, 2, 16, gated=True, biases=False, method="lora", rank=2,
#       prefix=3) -> 512
#   adapter_parameters(0, 2, 3, 8, 6, 6, gated=True, biases=True, method="lora", rank=8, prefix=5)
#       raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def adapter_parameters(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    ffn: int,
    *,
    gated: bool,
    biases: bool,
    method: str,
    rank: int,
    prefix: int,
) -> int:
    """How many parameters of a decoder are trained by a method that freezes all others.

    The methods are:

        lora         two factors of rank `rank` beside each matrix of each layer: those of queries,
                     keys, values and the output of attention, and those of the MLP
        prefix       `prefix` learned keys and values for each kv head of each layer
        p_tuning_v2  the same as prefix
        bitfit       all bias vectors
        prompt       `prefix` learned vectors before the embeddings of the input

    The MLP has two matrices between `hidden` and `ffn`, or three where it is `gated`. With
    `biases`, each matrix of a layer has a bias for each of its outputs, and the two norms of a
    layer, and the one after the last layer, have a bias as well. Without, there is no bias. `rank`
    and `prefix` matter only for the methods that name them.

    Source: Hu et al. 2021 (LoRA), section 4.1; Li and Liang 2021 (Prefix-Tuning), section 4.2; Liu
        et al. 2022 (P-Tuning v2), section 3.2; Ben Zaken et al. 2022 (BitFit), section 3; Lester et
        al. 2021 (Prompt Tuning), section 2

    Raises:
        ValueError: the method is unknown, or a number is not above 0.
    """
    raise NotImplementedError("return how many parameters the method trains")
