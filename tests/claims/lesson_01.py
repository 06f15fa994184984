"""The numbers of real clusters in lesson 01."""

from tests.claims.claim import computed, published
from tests.claims.figures import LLAMA_3, SCALING_BOOK

MODEL, HIDDEN = 8192, 28672  # Llama 3 70B
TP, DP, NODE = 8, 8, 8
UP = 2 * MODEL * HIDDEN / 1e6  # MB of an up-projection in bfloat16
Y = 2 * 8192 * MODEL  # bytes of the result for 8,192 tokens
RANK = 100
FLOPS = 2 * 8192 * HIDDEN / TP * MODEL


CLAIMS = (
    published(
        "In a node of eight H100, a GPU sends 450 GB/s to the others, but 50 GB/s to other nodes",
        SCALING_BOOK,
    ),
    computed(
        "[8192, {3584}], which is {58.7} MB, an eighth of {470} MB. The {4} devices of a dp group",
        HIDDEN / TP,
        UP / TP,
        UP,
        4,
        source=f"{LLAMA_3}, table 3",
    ),
    computed('With `"d_dp f_tp"` each would hold {14.7} MB', UP / TP / 4),
    computed(
        "`100 = {1}*64 + {4}*8 + {4}`, so it is at pp {1}, dp {4}, tp {4}, and on node {12} with "
        "local rank {4}",
        *(RANK // (DP * TP), RANK // TP % DP, RANK % TP) * 2,
        RANK // NODE,
        RANK % NODE,
    ),
    computed(
        "Its tp group is ranks {96} to {103}, all of node {12}",
        RANK // TP * TP,
        RANK // TP * TP + TP - 1,
        RANK // NODE,
    ),
    computed(
        "ranks {68}, {76}, {84}, {92}, {100}, {108}, {116} and {124}: one device on each of the "
        "nodes {8} to {15}",
        *range(64 + RANK % TP, 128, TP),
        64 / NODE,
        124 // NODE,
    ),
    computed("y takes {134} MB, and `2*7/8` of that are {235} MB", Y / 1e6, 2 * 7 / 8 * Y / 1e6),
    computed(
        "At 450 GB/s this takes {0.52} ms, at 50 GB/s {4.7} ms",
        1e3 * 2 * 7 / 8 * Y / 450e9,
        1e3 * 2 * 7 / 8 * Y / 50e9,
        source=SCALING_BOOK,
    ),
    computed("`2 * 8192 * {3584} * 8192` operations", HIDDEN / TP),
    computed(
        "At 989 TFLOP/s, the peak of an H100 in bfloat16, they take {0.49} ms",
        1e3 * FLOPS / 989e12,
        source="NVIDIA H100 datasheet: 1,979 TFLOP/s with sparsity, half of that without",
    ),
)
