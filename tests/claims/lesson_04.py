"""The numbers of real clusters in lesson 04."""

from tests.claims.claim import computed, published
from tests.claims.figures import (
    CARD,
    CARDS,
    KORTHIKANTI,
    LLAMA_3,
    PARAMETERS_8B,
    PARAMETERS_70B,
    PEAK,
)

ISSUE = "NVIDIA/Megatron-LM, issue 523: equation 8 counts 24 B L s^2 h, and 16 is right"
SCORES_22B, HEAD_22B = 2048 / (6 * 6144), 51200 / (12 * 6144 * 48)  # the terms of equation 7
SECONDS_8B = 6 * PARAMETERS_8B * 15e12 / (1024 * PEAK * 0.4)
# Attention has 3 passes of 2 products of 2 s h FLOPs for a token; the embedding is no product.
WITH_ATTENTION = (6 * (PARAMETERS_8B - 128256 * 4096) + 12 * 32 * 8192 * 4096) / (6 * PARAMETERS_8B)
CACHE_70B = 2 * 80 * 8 * 128 * 2 * 8192  # of a user, whose keys and values have 2 bytes


CLAIMS = (
    published(
        "Llama 3 405B was trained at 400 TFLOP/s on 16,384 H100, an MFU of 41% (table 4 of its "
        "paper)",
        f"{LLAMA_3}, table 4",
    ),
    computed(
        "At 400 TFLOP/s it takes {992} tokens per device in place of {2,453}",
        400e12 / CARDS * 127 / 128,
        PEAK / CARDS * 127 / 128,
        source=f"{LLAMA_3}, table 4",
    ),
    computed(
        "Korthikanti et al. print 41.5% MFU, as their seconds are rounded, and {43.7}% HFU",
        41.5 * (1 + 2 * SCORES_22B + HEAD_22B) / (1 + SCORES_22B + HEAD_22B),
        source=f"{KORTHIKANTI}, table 5 and equation 8",
    ),
    published("three times over; an author has confirmed that (NVIDIA/Megatron-LM", ISSUE),
    computed("Parameters take {141} GB of {640} GB", 2 * PARAMETERS_70B / 1e9, 8 * 80),
    computed(
        "`2 * 80 * 1024 * 2` = {327,680} bytes. That is {2.68} GB for each user, so {185} users. "
        "If each of the 64 query heads had a key head of its own, it would be {23}.",
        CACHE_70B / 8192,
        CACHE_70B / 1e9,
        (640e9 - 2 * PARAMETERS_70B) // CACHE_70B,
        (640e9 - 2 * PARAMETERS_70B) // (CACHE_70B * 64 / 8),
    ),
    computed(
        "`6 * 8.03e9 * 15e12` = {7.2}e23 FLOPs, at `1024 * 989e12 * 0.4` = {4.05}e17 a second: "
        "{1.78} million seconds, {20.6} days",
        6 * PARAMETERS_8B * 15e12 / 1e23,
        1024 * PEAK * 0.4 / 1e17,
        SECONDS_8B / 1e6,
        SECONDS_8B / 86400,
    ),
    computed(
        "With attention it is {1.2} times as much: {24.8} days",
        WITH_ATTENTION,
        SECONDS_8B * WITH_ATTENTION / 86400,
    ),
    computed(
        "A device has {1,024} tokens of the batch, and needs about {2,470}: no. With tp and pp a "
        "device holds 1/{128} of the parameters",
        128 * 16 * 8192 / 16384,
        PEAK / CARDS * 2047 / 2048,
        8 * 16,
        source=f"{LLAMA_3}, table 4: dp=128, 16 sequences of 8,192 for each, tp=8, pp=16",
    ),
    computed(
        "one card of {50} GB/s. It takes `989e12 / 50e9 / 128` = {155} tokens on each device",
        400 / 8,
        PEAK / CARD / 128,
        source="400 Gb/s: NVIDIA, DGX BasePOD, core components",
    ),
    computed(
        "A replica of the model has {16} sequences of the batch, that is 16 microbatches of one. "
        "The last of them alone, with {64} tokens for each device",
        16384 * 1024 / 8192 / 128,
        8192 / 128,
        source=f"{LLAMA_3}, table 4",
    ),
)
