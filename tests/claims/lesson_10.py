"""The numbers of real clusters in lesson 10."""

from tests.claims.claim import asserted, computed, published
from tests.claims.figures import BETWEEN, CARDS, GB, LAYER_8B, LLAMA_3, SCALING_BOOK

SPEED = 400e12
LAYER_70B = 8192 * (8192 + 2 * 1024 + 8192 + 3 * 28672) + 2 * 8192
EMBEDDING_70B = 128256 * 8192
HELD_70B = (70.6e9 * 16 / 64 + 6 * LAYER_70B + 8 * EMBEDDING_70B + 80 * 8192**2 * 2) / GB


CLAIMS = (
    computed("three layers of Llama 3 8B, of {218} million parameters each", LAYER_8B / 1e6),
    published("on 64 H100 in 8 nodes", "given: eight GPUs to a node"),
    published(
        "400 TFLOP/s, the rate at which Llama 3 405B was trained on 16,384 H100",
        f"{LLAMA_3}, tables 3 and 4",
    ),
    asserted("computing waits {7.0} of {27.1} ms"),
    asserted("{2.0} ms for these three layers"),
    asserted(
        "with 512 tokens a layer takes less time than the next gather, and computing waits "
        "{4.2} of {9.2} ms"
    ),
    computed(
        "990e12 / 450e9 = {2,200} tokens in a node of H100, and 990e12 / 400e9 = {2,475} beyond "
        "it, where eight network cards of 50 GB/s",
        990e12 / 450e9,
        990e12 / 400e9,
        source=SCALING_BOOK,
    ),
    asserted("At 400 TFLOP/s the lines cross below {1,000} tokens, in a node and over 8 nodes"),
    computed("70.6e9 * 16 / 64 = {17.6} GB", 70.6e9 * 16 / 64 / GB),
    computed("2 * {1.71} = {3.4} GB", 2 * LAYER_70B / GB, 4 * LAYER_70B / GB),
    computed("before it is reduce-scattered: {1.7} GB", 2 * LAYER_70B / GB),
    computed("their full gradients: {4.2} GB each", 2 * 2 * EMBEDDING_70B / GB),
    computed("80 * 8192 * 8192 * 2 = {10.7} GB", 80 * 8192 * 8192 * 2 / GB),
    computed("Together {42} GB. It fits, with {38} GB left", HELD_70B, 80 - HELD_70B),
    computed(
        "400e12 / 400e9 = {1,000} tokens, so 4 million are enough for {4,000} GPUs, {500} nodes",
        SPEED / CARDS,
        4e6 / (SPEED / CARDS),
        4e6 / (SPEED / CARDS) / 8,
    ),
    computed(
        "a ring over 500 nodes also has {499} steps, and at 4 us each (our cost model, from "
        "NCCL's) their latency adds {2} ms to each gather, where a layer of 1,000 tokens is "
        "computed in {1.1} ms",
        500 - 1,
        1e3 * 499 * BETWEEN,
        1e3 * 2 * LAYER_8B * 1000 / SPEED,
    ),
    computed("Hybrid sharding gathers inside a node, in {7} steps", 8 - 1),
    computed("of 8,192 tokens there are only {488}, enough for 488 GPUs", 4e6 // 8192),
    computed(
        "The parameters have {2.6} GB. Each gather or reduce-scatter sends 15/16 of that out of a "
        "node, {2.44} GB. FSDP does 3 for each of 4 microbatches: {29} GB, or {1.2} s",
        2 * 1.3,
        15 / 16 * 2.6,
        12 * 15 / 16 * 2.6,
        12 * 15 / 16 * 2.6e9 / 25e9,
    ),
    computed(
        "if it adds up the shards of 4 microbatches first: {4.9} GB, or {0.2} s",
        2 * 15 / 16 * 2.6,
        2 * 15 / 16 * 2.6e9 / 25e9,
    ),
    computed(
        "1.3e9 * 16 / 8 = {2.6} GB of states on each device in place of {0.16} GB",
        1.3 * 16 / 8,
        1.3 * 16 / 128,
    ),
)
