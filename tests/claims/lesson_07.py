"""The numbers of real clusters in lesson 07."""

from math import ceil, log2

import jax.numpy as jnp

from tests.claims.claim import computed

NUMBERS = 8.03  # billions of Llama 3 8B's parameters: 8,030,261,248, from its configuration
STATES = 2 + 2 + 4 + 4 + 4  # bytes: parameter, gradient, master weight, and Adam's two means
NEXT = 1 + float(jnp.finfo(jnp.bfloat16).eps)


CLAIMS = (
    computed(
        "keeps {18} bytes for each parameter, not our {16}",
        STATES + 4 - 2,
        STATES,
        source='Megatron Core guide, "Distributed Optimizer": bf16 parameters, fp32 gradients, 18',
    ),
    computed(
        "{8.03} billion parameters times {16} bytes are {128} GB: two devices, each of which has "
        "{16} GB left",
        8.030261248,
        STATES,
        STATES * NUMBERS,
        80 - STATES * NUMBERS / 2,
    ),
    computed("after 1 is `1 + 2**-7` = {1.0078}, and 1.003 is nearer to 1", NEXT),
    computed("In float32 it takes {334} steps", ceil((2 - 1) / 0.003)),
    computed("has become {64} times as large as usual", 2**16 / 2**10),
    computed("{6} bits less room above underflow", log2(2**16 / 2**10)),
)
