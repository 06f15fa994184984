"""The numbers of real clusters in lesson 09."""

from tests.claims.claim import computed, published
from tests.claims.figures import CARDS, GB, LLAMA_3, NVLINK, PEAK

LLAMA_3_8B = 8.03e9
SENT = 63 / 64 * 2 * LLAMA_3_8B  # bytes that a device of 64 sends in a gather
GATHER = 7 / 8 * max(2 * LLAMA_3_8B / NVLINK, 2 * LLAMA_3_8B / CARDS)  # seconds, 8 nodes


CLAIMS = (
    published(
        "For Llama 3, parameters were gathered before the forward pass and kept for the backward "
        "pass",
        f"{LLAMA_3}, section 3.3.2",
    ),
    computed(
        "Then a parameter takes {18} bytes, and in stage 1 a device holds {6} + {12}/n of them",
        2 + 4 + 12,
        2 + 4,
        4 + 4 + 4,
        source="NVIDIA, Megatron Core, Distributed Optimizer: bf16 parameters, fp32 gradients",
    ),
    computed(
        "A step of stage 1 then sends {1.5} times as many bytes: 4 for the gradient and 2 for the "
        "parameter, in place of 2 and 2",
        (4 + 2) / (2 + 2),
    ),
    computed(
        "with about {2,200} tokens on each device of a node, and with {2,475} over many nodes",
        990e12 / NVLINK,
        990e12 / CARDS,
        source='Austin et al. 2025, How to Scale Your Model, chapter "GPUs"',
    ),
    computed(
        "four home machines with an RTX 4090 each and 10 Gb Ethernet need about {100,000}",
        3 / 4 * 165.2e12 / (10e9 / 8),
        source="NVIDIA, Ada whitepaper: 165.2 TFLOP/s, dense, sums in float32",
    ),
    computed(
        "Stage 1: 4 times 70.6 and 12/256 times 70.6, which is {285.7} GB. Stage 2: 2 times 70.6 "
        "and 14/256 times 70.6, which is {145.1} GB. Stage 3: 16/256 times 70.6, which is {4.4} GB",
        (4 + 12 / 256) * 70.6,
        (2 + 14 / 256) * 70.6,
        16 / 256 * 70.6,
    ),
    computed(
        "tensor parallelism of 8 (lesson 11) and stage 1 over the other 32, it is {38.6} GB",
        (4 + 12 / 32) * 70.6 / 8,
    ),
    computed("63/64 of {16.06} GB are {15.8} GB", 2 * LLAMA_3_8B / GB, SENT / GB),
    computed(
        "Stage 1 holds {33.6} GB and sends 2 times 15.8 GB, which is {31.6} GB",
        (4 + 12 / 64) * LLAMA_3_8B / GB,
        2 * SENT / GB,
    ),
    computed(
        "Stage 2 holds {17.8} GB and sends {9} times 15.8 GB, {142} GB",
        (2 + 14 / 64) * LLAMA_3_8B / GB,
        8 + 1,
        (8 + 1) * SENT / GB,
    ),
    computed(
        "Stage 3 holds {2.0} GB and sends {24} times 15.8 GB, {379} GB",
        16 / 64 * LLAMA_3_8B / GB,
        3 * 8,
        3 * 8 * SENT / GB,
    ),
    computed("If the activations fit beside {33.6} GB", (4 + 12 / 64) * LLAMA_3_8B / GB),
    computed("a microbatch has more than {2,475} tokens", 990e12 / CARDS),
    computed(
        "sending takes {0.8} s by the cost model, beside {8.0} s of computing at 40% of the peak",
        3 * 8 * GATHER,
        6 * LLAMA_3_8B * 8 * 8192 / (0.4 * PEAK),
    ),
)
