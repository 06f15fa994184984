"""The numbers of real clusters in lesson 06."""

from math import ceil, log2

from tests.claims.claim import asserted, computed, published

BLOCK_OF_CODES = 1 + 4 / 256  # bytes of a number in 8 bits, with its part of a scale
LLAMA_3_8B = 4 * 8.03e9  # bytes of its gradients in float32
LINE = 10e9 / 8
AVERAGE = 2 * 3 / 4 * LLAMA_3_8B / LINE
ROWS, COLUMNS, RANK = 12288, 49152, 32
MATRIX, FACTORS = 4 * ROWS * COLUMNS, 4 * RANK * (ROWS + COLUMNS)
RING = 2 * 63 / 64


def seconds(element_bytes: float, steps: int) -> float:
    """Of averaging a billion numbers over a line of 100 Mb/s, for each of so many steps."""
    return (2 * log2(64) * 50e-3 + RING * element_bytes * 1e9 / (100e6 / 8)) / steps


CLAIMS = (
    published(
        "for lines of 100 Mb/s to 10 Gb/s with a latency of 50 ms (assumed), and for an all-reduce "
        "of 2 log2 n messages",
        "given; Thakur, Rabenseifner and Gropp 2005, section 4 (Rabenseifner's algorithm)",
    ),
    computed("its messages grow only from {12} to {28}", 2 * log2(64), 2 * ceil(log2(10_000))),
    published(
        "A home line of 100 Mb/s needs ten minutes for an average in 32 bits",
        f"by the formula of the lesson: {seconds(4, 1) / 60:.1f} minutes",
    ),
    computed(
        "but with 100 local steps and 8 bits {1.6} s for each step", seconds(BLOCK_OF_CODES, 100)
    ),
    asserted("to the loss that data parallelism has after {480} steps"),
    published(
        "two home machines with a GPU each, which train the smallest GPT-2, and four data centres "
        "of 64 H100 each",
        "given; the lesson computes the table below",
    ),
    asserted("how many local steps on they win, if they need {1.7} times as many steps"),
    asserted("and between two homes with {10} Gb/s local steps lose"),
    published(
        "a model of 10 billion parameters, was trained in this way by up to 14 nodes on three "
        "continents, with 100 local steps and averages sent in 8 bits. It sent 400 times fewer "
        "bytes than data parallelism, and the nodes computed for 83% to 96% of the time",
        "Jaghouar et al. 2024, INTELLECT-1 Technical Report, abstract; its model card: 100 steps",
    ),
    published(
        "4 bytes for each parameter on each device", "float32, as in jaxpar.parallel.compress"
    ),
    computed(
        "A data centre sends 2 times 3/4 of {32.1} GB, which is {48.2} GB and takes {38.5} s. In 8 "
        "bits a number takes 1 + 4/256 bytes, so it sends {12.2} GB in {9.8} s",
        LLAMA_3_8B / 1e9,
        AVERAGE * LINE / 1e9,
        AVERAGE,
        AVERAGE * LINE * BLOCK_OF_CODES / 4 / 1e9,
        AVERAGE * BLOCK_OF_CODES / 4,
    ),
    computed(
        "nine times as long as the average, {347} s: from {35} steps on",
        9 * AVERAGE,
        ceil(9 * AVERAGE / 10),
    ),
    computed(
        "In float32 a device sends 2 times 63/64 of {2.416} GB, which is {4.756} GB. PowerSGD "
        "sends factors of 12,288 and 49,152 rows with 32 columns, which take {7.864} MB. That is "
        "{15.48} MB in the two all-reduces, {307} times less",
        MATRIX / 1e9,
        RING * MATRIX / 1e9,
        FACTORS / 1e6,
        RING * FACTORS / 1e6,
        MATRIX / FACTORS,
    ),
    computed("as large as the gradient, {2.416} GB on each device", MATRIX / 1e9),
    computed("so from {101} devices on the largest are more", 8 / 0.08 + 1),
    computed(
        "4 N becomes {1.016} N, and {26} devices are enough",
        BLOCK_OF_CODES,
        ceil(2 * BLOCK_OF_CODES / 0.08),
    ),
)
