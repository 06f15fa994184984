"""The numbers of real clusters in lesson 02."""

from tests.claims.claim import computed, published
from tests.claims.figures import PARAMETERS_8B, SCALING_BOOK

MIXTRAL = "Jiang et al. 2024, Mixtral of Experts, section 2: d of 4,096, 2 of 8 experts"
GRADIENTS = 2 * PARAMETERS_8B / 1e9  # GB: Llama 3 8B's parameters, from its configuration
CARD = 50  # GB/s: given
TOKENS = 2 * 8192 * 4096 / 1e6  # MB of a device's 8,192 tokens in bfloat16


CLAIMS = (
    published("about 30% more bandwidth was measured", SCALING_BOOK),
    published(
        "NVLink of an H100, sold as 900 GB/s, has 450 GB/s each way",
        f"NVIDIA H100 datasheet: NVLink, 900 GB/s; 450 GB/s: {SCALING_BOOK}",
    ),
    computed(
        "`2*7/8` of them, {28.1} GB, and `2*1023/1024` of them, {32.1} GB. That is {14} percent "
        "more for {128} times as many devices",
        2 * 7 / 8 * GRADIENTS,
        2 * 1023 / 1024 * GRADIENTS,
        100 * (1023 / 1024 / (7 / 8) - 1),
        1024 / 8,
    ),
    computed(
        "`2*63/64` of {16.06} GB, so it takes {0.63} s",
        GRADIENTS,
        2 * 63 / 64 * GRADIENTS / CARD,
    ),
    computed(
        "The master receives {63} times 16.06 GB, which takes {20.2} s, and then sends as much: "
        "{40.5} s, {64} times as long",
        64 - 1,
        63 * GRADIENTS / CARD,
        2 * 63 * GRADIENTS / CARD,
        2 * 63 / (2 * 63 / 64),
    ),
    computed(
        "`8192 * 2 * 4096 * 2` bytes, {134} MB, and 7/8 of it are sent: {117} MB",
        2 * TOKENS,
        7 / 8 * 2 * TOKENS,
        source=MIXTRAL,
    ),
    computed(
        "it is sent {7} times: {470} MB, which is {4} times as much",
        8 - 1,
        7 * TOKENS,
        7 * TOKENS / (7 / 8 * 2 * TOKENS),
    ),
)
