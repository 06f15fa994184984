"""The numbers of real clusters in lesson 05."""

from math import ceil

from tests.claims.claim import computed, published
from tests.claims.figures import BETWEEN, CARD, INSIDE, NVLINK, PEAK, SCALING_BOOK

SPEED = 0.4 * PEAK
LATENCY = 14 * INSIDE + 14 * BETWEEN  # 2 * 7 steps in a node, and between 8
GPT2_XL = 48 * (12 * 1600**2 + 13 * 1600) + (50257 + 1024) * 1600 + 2 * 1600  # parameters
GRADIENT = 2 * GPT2_XL  # bytes
FORWARD = 2 * GPT2_XL * 1024 / SPEED  # seconds
BUCKETS = ceil(GRADIENT / (25 * 2**20))
LLAMA_3_8B = 2 * 8.03e9  # bytes


def all_reduce(size: float) -> float:
    """Seconds on 64 H100 in 8 nodes, in two levels at once."""
    return LATENCY + 2 * 7 / 8 * max(size / NVLINK, size / 8 / CARD)


def waiting(forward: float, buckets: int) -> float:
    """Milliseconds after the backward pass, if its all-reduces take longer than it does."""
    reduced = 2 * forward / buckets + buckets * all_reduce(GRADIENT / buckets)
    return 1e3 * (reduced - 2 * forward)


CLAIMS = (
    computed(
        "a step of GPT-2 XL ({1.56} billion parameters)",
        GPT2_XL / 1e9,
        source="Radford et al. 2019 (GPT-2), table 2: 48 layers of width 1600; 50,257 tokens",
    ),
    published(
        "64 H100 in 8 nodes, links at their full bandwidth, gradients in 16 bits, 1,024 tokens on "
        "each device",
        "given",
    ),
    computed(
        "Products run at {40%} of the peak, about what Llama 3 405B reached",
        100 * 400e12 / PEAK,
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models, table 4: 400 TFLOP/s",
    ),
    computed(
        "With one bucket, the devices wait {13.7} ms for the whole all-reduce. With eight, they "
        "wait {1.8} ms for the last one",
        waiting(FORWARD, 1),
        1e3 * all_reduce(GRADIENT / 8),
    ),
    computed(
        "now the network is the slower lane, and the devices wait {7.2} ms", waiting(FORWARD / 2, 8)
    ),
    published("Here is 1 GB of gradients on the same 64 devices", "given"),
    computed(
        "buckets of 25 MB take {1.7} times as long as one of 1 GB",
        1000 / 25 * all_reduce(25e6) / all_reduce(1e9),
    ),
    computed(
        "buckets of 25 MiB would make the devices wait {7.5} ms",
        waiting(FORWARD, BUCKETS),
        source="PyTorch, DistributedDataParallel: bucket_cap_mb is 25 MiB by default",
    ),
    published(
        "a million parameters for each device, and at least 40 million",
        "NVIDIA, Megatron Core, DistributedDataParallelConfig: max(40000000, 1000000 * dp_size)",
    ),
    computed(
        "about {2,200} on each device of a node, and {2,475} over many nodes",
        990e12 / NVLINK,
        990e12 / (8 * CARD),
        source=SCALING_BOOK,
    ),
    published(
        "At 40% of the peak, 40% of them are enough", "the tokens are FLOP/s divided by bandwidth"
    ),
    computed(
        "(The cost model gives {70} ms for the all-reduce of 64 H100.)",
        1e3 * all_reduce(LLAMA_3_8B),
    ),
    computed(
        "Each way 64 times {16.06} GB, which is {1,028} GB and takes {20.6} seconds: {41} seconds "
        "in all",
        LLAMA_3_8B / 1e9,
        64 * LLAMA_3_8B / 1e9,
        64 * LLAMA_3_8B / CARD,
        2 * 64 * LLAMA_3_8B / CARD,
    ),
    published(
        "nearly 600 times as long as the all-reduce",
        f"of the cost model: {2 * 64 * LLAMA_3_8B / CARD / all_reduce(LLAMA_3_8B):.0f}",
    ),
    computed("Hiding takes 40% of 2,475, so {990} tokens", 0.4 * 990e12 / (8 * CARD)),
    computed(
        "The batch has {524,288}, enough for {529} devices",
        512 * 1024,
        512 * 1024 // (0.4 * 990e12 / (8 * CARD)),
    ),
    published("there is work for 512 devices, with one example each", "given: 512 examples"),
    computed("512 / (8 times 16) = {4} microbatches", 512 / (8 * 16)),
    computed(
        "2 times 7/8 of {3.12} GB, which is {5.45} GB; in the loop it is four times that, {21.8} "
        "GB",
        GRADIENT / 1e9,
        2 * 7 / 8 * GRADIENT / 1e9,
        4 * 2 * 7 / 8 * GRADIENT / 1e9,
    ),
)
