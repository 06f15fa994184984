"""The numbers of real clusters in lesson 03."""

from math import log2

from tests.claims.claim import computed, published
from tests.claims.figures import BETWEEN, CARD, CARDS, INSIDE, NVLINK, SCALING_BOOK

RING_8, RING_64 = 2 * 7 / 8, 2 * 63 / 64  # of an array, what a device sends in an all-reduce
RING_STEPS = 112 * INSIDE + 14 * BETWEEN  # of 64 devices in 8 nodes
TREE_STEPS = 14 * INSIDE + 6 * BETWEEN  # of a hierarchy with a tree between nodes
BASEPOD = "NVIDIA, DGX BasePOD, core components: eight single-port ConnectX-7, up to 400 Gb/s"


CLAIMS = (
    computed("{40} ms is slow for 1 GB", 1e3 * (RING_STEPS + RING_64 * 1e9 / CARD)),
    computed(
        "A node of 8 H100 has 8 network cards, so {400} GB/s can leave it (NVIDIA, DGX BasePOD: 8 "
        "ports of 400 Gb/s)",
        8 * 400 / 8,
        source=BASEPOD,
    ),
    published("four ways to all-reduce on 64 H100", "given"),
    published("`Layout(dp=64)` means an axis dp of 64 devices", "the meaning of a layout"),
    computed(
        "For 1 GB, eight rings take {5.2} ms. They send {9}/8 of what the hierarchy sends",
        1e3 * (RING_STEPS + RING_64 * 1e9 / CARDS),
        8 * RING_64 / RING_8,
    ),
    computed(
        "a hierarchy whose parts wait for one another takes {8.3} ms",
        1e3 * (14 * INSIDE + 14 * BETWEEN + RING_8 * (1e9 / NVLINK + 1e9 / 8 / CARD)),
    ),
    computed(
        "only the slower part counts: {4.5} ms",
        1e3 * (14 * INSIDE + 14 * BETWEEN + RING_8 * max(1e9 / NVLINK, 1e9 / 8 / CARD)),
    ),
    computed(
        "For 1 MB the hierarchy is {4} times as fast as the eight rings, because it has fewer "
        "steps: {14} inside nodes and {6} between them (by a tree), in place of {126}",
        (RING_STEPS + RING_64 * 1e6 / CARDS) / (TREE_STEPS + 6 * 1e6 / 8 / CARD),
        2 * (8 - 1),
        2 * log2(8),
        2 * (64 - 1),
    ),
    computed(
        "For an all-gather of `bf16[4096, 65536]` on 8 H100, *How to Scale Your Model* "
        '("GPUs") computes {1.04} ms, and says that it takes about 1.5 ms',
        1e3 * 7 / 8 * 2 * 4096 * 65536 / NVLINK,
        source=SCALING_BOOK,
    ),
    published("About 30% more bandwidth was measured", SCALING_BOOK),
    computed(
        "x has {16,384} bytes. A ring takes {14} steps of 1.9 us, and `2 * 7/8 * 16384 / 450e9` s "
        "= {0.06} us for its bytes",
        2 * 8192,
        2 * (8 - 1),
        1e6 * RING_8 * 16384 / NVLINK,
        source="NVIDIA/nccl, src/graph/tuning.cc, hwLat: 1.9 us",
    ),
    computed(
        "Recursive doubling takes {3} steps, and 3 times x in {0.11} us. {160} of them take {4.3} "
        "ms or {0.93} ms",
        log2(8),
        1e6 * 3 * 16384 / NVLINK,
        2 * 80,
        1e3 * 160 * (14 * INSIDE + RING_8 * 16384 / NVLINK),
        1e3 * 160 * 3 * (INSIDE + 16384 / NVLINK),
    ),
    computed(
        "`2 * 63/64 * 141 / 50` = {5.6} s. Eight rings: as many bytes by 400 GB/s, {0.69} s",
        RING_64 * 141e9 / CARD,
        RING_64 * 141e9 / CARDS,
        source=BASEPOD,
    ),
    computed(
        "each card sends `2 * 7/8 * 141/8` = {30.8} GB: {0.62} s. That is longer than the part "
        "inside the nodes, `2 * 7/8 * 141 / 450` = {0.55} s",
        RING_8 * 141 / 8,
        RING_8 * 141e9 / 8 / CARD,
        RING_8 * 141e9 / NVLINK,
    ),
    computed(
        "A ring has {32,766} steps: {4,094} between nodes, of 4 us, and {28,672} inside, of 1.9 "
        "us. That is {70.9} ms",
        2 * (16384 - 1),
        2 * (2048 - 1),
        2 * (16384 - 2048),
        1e3 * (2 * (2048 - 1) * BETWEEN + 2 * (16384 - 2048) * INSIDE),
        source="NVIDIA/nccl, src/graph/tuning.cc, hwLat: 1.9 us and 4.0 us",
    ),
    computed(
        "The hierarchy has {14} steps inside nodes and {22} between them: {0.11} ms",
        2 * (8 - 1),
        2 * log2(2048),
        1e3 * (14 * INSIDE + 22 * BETWEEN),
    ),
)
