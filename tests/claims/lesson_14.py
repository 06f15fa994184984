"""The numbers of real clusters in lesson 14."""

from tests.claims.claim import asserted, computed, published
from tests.claims.figures import CARD, GB, LLAMA_3, NVLINK

SPEED = 400e12
SIZES = f"{LLAMA_3}, table 3"
MEMORY = 3.35e12  # bytes in a second: the data sheet of the H100
RING = "zhuzilin/ring-flash-attention, README: fwd + bwd, batch api, 8xH800; its notes on the sizes"

SCORES = 32 * 8192**2 * 2
PRODUCTS = 4 * 8192**2 * 128 * 32

KEYS_405B = 2 * 8192 * 128 * 2  # bytes of keys and values on a GPU
GATHERED = 15 * KEYS_405B
ATTENTION = 2 * 8192 * 131_072 * 128 * 16


CLAIMS = (
    published("32 heads, 8 kv heads, 128 numbers in a head, in 16 bits", SIZES),
    computed(
        "so each sends by a network card of its own, at {50} GB/s. Products run at {400} TFLOP/s "
        "(lesson 11)",
        CARD / GB,
        SPEED / 1e12,
        source=f"{LLAMA_3}, table 4",
    ),
    published("32,768 positions are split over 8 H100 of different nodes", "given"),
    computed("where NVLink carries {450} GB/s", NVLINK / GB),
    asserted("the last three take {2.75}, {3.01} and {2.91} ms"),
    published(
        "measured 54% of the speed of FlashAttention without a ring for contiguous shards, 83% for "
        "striped ones and 90% for zig-zag",
        RING,
    ),
    computed("the waiting in each round alone would leave 1/1.88 = {53%}", 100 / 1.88),
    computed(
        "The scores take 32 * 8,192 * 8,192 * 2 bytes, {4.3} GB, and four times that {17.2} GB: "
        "{5.1} ms",
        SCORES / GB,
        4 * SCORES / GB,
        1e3 * 4 * SCORES / MEMORY,
        source=SIZES,
    ),
    computed(
        "4 * 8,192 * 8,192 * 128 * 32 = {1.1} TFLOPs: {2.7} ms",
        PRODUCTS / 1e12,
        1e3 * PRODUCTS / SPEED,
    ),
    computed(
        "Each GPU has {8,192} positions: 2 * 8,192 * 128 * 2 bytes of keys and values, {4.2} MB. "
        "It sends {15} times that: {63} MB, in {1.3} ms",
        131_072 / 16,
        KEYS_405B / 1e6,
        16 - 1,
        GATHERED / 1e6,
        1e3 * GATHERED / CARD,
        source=f"{LLAMA_3}, tables 3 and 4",
    ),
    computed(
        "2 * 8,192 * 131,072 * 128 * 16 = {4.4} TFLOPs, {11} ms. So if nothing is hidden, "
        "gathering adds {11%}. With 128 kv heads it would be {16} times as much, {20} ms",
        ATTENTION / 1e12,
        1e3 * ATTENTION / SPEED,
        100 * (GATHERED / CARD) / (ATTENTION / SPEED),
        128 / 8,
        1e3 * 16 * GATHERED / CARD,
    ),
    computed(
        "and all devices wait for these: {4,000} positions, as in the table. With both, inside "
        "attention a GPU has the positions of its whole node, for {4} of the 32 heads and {1} of "
        "the 8 kv heads. These positions must be {4,000}, so {500} for each GPU. And there are {7} "
        "hops in place of {63}",
        2 * 8 / 32 * SPEED / CARD,
        32 / 8,
        8 / 8,
        2 * 1 / 4 * SPEED / CARD,
        2 * 1 / 4 * SPEED / CARD / 8,
        8 - 1,
        64 - 1,
    ),
)
