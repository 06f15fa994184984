"""The numbers of real clusters in lesson 11."""

from tests.claims.claim import asserted, computed, published
from tests.claims.figures import LAYER_8B, LLAMA_3, NVLINK, PARAMETERS_70B

SPEED = 400e12
KEYS_VALUES_70B = 2 * 8192 * 1024 * 2  # bytes of both matrices in a layer
SENT_70B = 8 * 8192 * 8192 * 7 / 8  # numbers for a layer
SUMS_70B = 80 * 2 * SENT_70B / NVLINK
PRODUCTS_70B = 6 * PARAMETERS_70B * 8192 / 8 / SPEED


CLAIMS = (
    computed("A layer of Llama 3 8B has d = 4096 and {218} million parameters", LAYER_8B / 1e6),
    published("its forward pass for 4096 tokens in bfloat16, on H100 in nodes of 8", "given"),
    published("400 TFLOP/s, the rate at which Llama 3 405B was trained", f"{LLAMA_3}, table 4"),
    computed(
        "{450} GB/s for each GPU inside a node, and {50} GB/s for each of a node's 8 network cards",
        18 * 25,
        400 / 8,
        source='Austin et al. 2025, How to Scale Your Model, chapter "GPUs": 18 links of 25 GB/s, '
        "8 cards of 400 Gb/s",
    ),
    asserted("twice as many GPUs compute the layer only {1.4} times as fast"),
    published("If 8 GPUs are on 8 nodes, each sends everything by one card", "given"),
    computed(
        "with tp=8 a GPU has {4} of the 32 query heads, {1} of the 8 kv heads and {1,792} of the "
        "14,336 hidden numbers",
        32 / 8,
        8 / 8,
        14336 / 8,
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models, table 3",
    ),
    published("With 16 devices and 8 kv heads", "given"),
    computed(
        "each has 8192 times {1024} numbers, so the two take {33.6} MB in a layer and {2.7} GB in "
        "all layers. With tp=8 a GPU has one kv head of each, 1/8 of that: {0.34} GB",
        8 * 128,
        KEYS_VALUES_70B / 1e6,
        80 * KEYS_VALUES_70B / 1e9,
        80 * KEYS_VALUES_70B / 8 / 1e9,
    ),
    computed("would hold {0.34} GB with tp=16, too", 80 * KEYS_VALUES_70B / 8 / 1e9),
    computed(
        "A layer sends 8bsd(n-1)/n numbers: 8 * 8,192 * 8,192 * 7/8 are {470} million, or {0.94} "
        "GB. 80 layers send {75} GB, which takes {0.17} s",
        SENT_70B / 1e6,
        2 * SENT_70B / 1e9,
        80 * 2 * SENT_70B / 1e9,
        SUMS_70B,
        source="Narayanan et al. 2021, Efficient Large-Scale Language Model Training, section 3.2",
    ),
    computed(
        "Computing takes {6} FLOPs for each parameter and token: 6 * 70.6e9 * 8,192 / 8 / 400e12 = "
        "{1.08} s. If nothing is hidden, the sums add {15} %",
        2 + 4,
        PRODUCTS_70B,
        100 * SUMS_70B / PRODUCTS_70B,
    ),
    computed(
        "4bsd = {218} million parameters: at {13,300} tokens for all devices together",
        LAYER_8B / 1e6,
        LAYER_8B / (4 * 4096),
    ),
    computed(
        "A batch of 16 million has far more. But it has only {2,048} sequences, and data "
        "parallelism cannot split a sequence: so {8} of the 16,384 GPUs must work on each",
        128 * 16,
        16384 / (128 * 16),
        source=f"{LLAMA_3}, table 4: 16M tokens, dp=128, 16 sequences of 8,192 for each",
    ),
)
