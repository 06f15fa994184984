"""The numbers of real clusters in lesson 21."""

from tests.claims.claim import asserted, computed, published
from tests.claims.figures import GB, LLAMA_3, NVLINK, PARAMETERS_8B, PARAMETERS_70B, PEAK

MEMORY = 3.35e12  # bytes in a second: the data sheet of the H100
SIZES = f"{LLAMA_3}, table 3"
WEIGHTS_8B = 2 * PARAMETERS_8B

SUMS = 2 * 80  # of a decode step of 70B
SUMS_BYTES = SUMS * 2 * 7 / 8 * 64 * 8192 * 2

ON_EACH = 2 * PARAMETERS_70B / 8
TOKEN_70B = 2 * 80 * 8 * 128 * 2
ROOM = 0.9 * 80 * GB - ON_EACH
REQUESTS = int(ROOM / (TOKEN_70B / 8) / 2000)
STEP = 0.9 * 80 * GB / MEMORY

FULL = 2 * PARAMETERS_8B * 512 / PEAK
LAST = WEIGHTS_8B / MEMORY


def tokens(alpha: float, g: int) -> float:
    """The tokens of a round of speculation."""
    return (1 - alpha ** (g + 1)) / (1 - alpha)


CLAIMS = (
    published(
        "held states of tokens in only 20.4% to 38.2% of their cache",
        "Kwon et al. 2023 (PagedAttention), figure 2",
    ),
    asserted("on an H100, up to {295} requests could decode"),
    computed(
        "64 requests get {42} times as many tokens in a second as one",
        64 * (WEIGHTS_8B + 131_072_000) / (WEIGHTS_8B + 64 * 131_072_000),
    ),
    published(
        "with prompts of 128 to 4,096 tokens and answers of 16 to 512",
        "given",
    ),
    published("within 1 s, and a mean gap of at most 50 ms", "given"),
    computed(
        "Llama 3 70B over tp=8 sends {160} all-reduces in a decode step. With 64 requests they "
        "take {0.65} ms by their bytes over NVLink, beside {5.3} ms for the weights",
        SUMS,
        1e3 * SUMS_BYTES / NVLINK,
        1e3 * ON_EACH / MEMORY,
        source=SIZES,
    ),
    computed("a step of Llama 3 8B takes {4.8} ms for the weights", 1e3 * LAST),
    computed(
        "The weights take {141} GB, {17.6} GB on each GPU, which leaves {54.4} GB of {72}. A token "
        "has 2 * 80 * 8 * 128 * 2 = {327,680} bytes, {40,960} on each GPU. So there is room for "
        "{1.33} million tokens: {663} requests. A step reads all of the 72 GB, in {21.5} ms, and "
        "that gives {30,850} tokens in a second",
        8 * ON_EACH / GB,
        ON_EACH / GB,
        ROOM / GB,
        0.9 * 80,
        TOKEN_70B,
        TOKEN_70B / 8,
        ROOM / (TOKEN_70B / 8) / 1e6,
        REQUESTS,
        1e3 * STEP,
        REQUESTS / STEP,
    ),
    computed(
        "A round takes g drafts and one step: {1.2} and {1.4} steps of the large model. It gives "
        "{3.36} and {4.33} tokens, so it is {2.8} and {3.1} times as fast",
        1 + 4 / 20,
        1 + 8 / 20,
        tokens(0.8, 4),
        tokens(0.8, 8),
        tokens(0.8, 4) / (1 + 4 / 20),
        tokens(0.8, 8) / (1 + 8 / 20),
    ),
    computed(
        "checking {5} tokens of each request takes {5} times as long as one, for {3.36} tokens",
        4 + 1,
        4 + 1,
        tokens(0.8, 4),
    ),
    computed(
        "{448} tokens are left in each step, so it takes {10} steps. Nine of them have {512} "
        "tokens, {8.3} ms each, and the last one {128}: limited by the memory, {4.8} ms. Together "
        "that is {80} ms. In one step, {4,160} tokens take {68} ms",
        512 - 64,
        -(-4096 // 448),
        512,
        1e3 * FULL,
        64 + 4096 - 9 * 448,
        1e3 * LAST,
        1e3 * (9 * FULL + LAST),
        4096 + 64,
        1e3 * FULL * 4160 / 512,
    ),
    computed(
        "the {64} others wait {68} ms for a token instead of {8.3} ms",
        64,
        1e3 * FULL * 4160 / 512,
        1e3 * FULL,
    ),
)
