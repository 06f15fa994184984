"""The numbers of real clusters in lesson 12."""

from math import ceil

from tests.claims.claim import computed, published
from tests.claims.figures import GB, INSIDE, KORTHIKANTI, NVLINK, PARAMETERS_8B, SCALING_BOOK

MEGATRON = "Megatron-LM, --make-vocab-size-divisible-by and _vocab_size_with_padding"
D_22B, HEADS_22B, LAYERS_22B, S_22B, TP = 6144, 64, 48, 2048, 8
BSD = 4 * S_22B * D_22B
STATES_22B = 18 * 12 * LAYERS_22B * D_22B**2 / TP / GB
ATTENTION = 5 * HEADS_22B * S_22B / (D_22B * TP)  # bytes that selective recomputation saves
A100 = 80 * 2**30 / GB
KEPT = LAYERS_22B * BSD / GB  # GB for each byte that is kept of a number
SELECTIVE, SEQUENCE, BOTH = 10 + 24 / TP, 34 / TP + ATTENTION, 34 / TP
VOCABULARY, D_8B = 128_256, 4096  # Llama 3 8B
MULTIPLE = 128 * 8
PADDED = ceil(VOCABULARY / MULTIPLE) * MULTIPLE
ADDED = PADDED - VOCABULARY
LOGITS = 4 * 8192 * VOCABULARY
GATHER = 7 / 8 * LOGITS / NVLINK + 7 * INSIDE
REDUCE_BYTES = 3 * 2 * 7 / 8 * 4 * 8192
REDUCE = REDUCE_BYTES / NVLINK + 42 * INSIDE


CLAIMS = (
    computed(
        "c = {28,672} columns together, on H100 with F = 400 TFLOP/s (lesson 11)",
        2 * 14_336,
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models, tables 3 and 4",
    ),
    published(
        "On 8 H100 an all-reduce of 58 MB",
        f"{SCALING_BOOK}: bf16[8192, 3584] achieves around 150 of 450 GB/s",
    ),
    published(
        "a model of 22B parameters on 8 A100 took 1.10 s in place of 1.42 s (table 5)",
        f"{KORTHIKANTI}, tables 3 and 5",
    ),
    computed(
        "a multiple of 128 times tp (`--make-vocab-size-divisible-by`, by default 128). GPT-2's "
        "50,257 tokens become {50,304} with tp=1, and {51,200} with tp=8",
        ceil(50_257 / 128) * 128,
        ceil(50_257 / MULTIPLE) * MULTIPLE,
        source=f"{MEGATRON}; GPT-2's vocabulary: Radford et al. 2019, section 2.3",
    ),
    published(
        "For Gemma 2 2B that took 1 MB in place of 24 GB",
        "Wijmans et al. 2024, Cut Your Losses in Large-Vocabulary Language Models, abstract",
    ),
    computed(
        "`b*s*d` is {50.3} million, and 5 * 64 * 2048 / (6144 * 8) is {13.3} bytes",
        BSD / 1e6,
        ATTENTION,
    ),
    computed(
        "Selective alone: {13} bytes, {31.4} GB in {48} layers, in all {80.3} GB. That leaves "
        "{5.6} GB",
        SELECTIVE,
        SELECTIVE * KEPT,
        LAYERS_22B,
        STATES_22B + SELECTIVE * KEPT,
        A100 - STATES_22B - SELECTIVE * KEPT,
        source=f"{KORTHIKANTI}, tables 3 and 5",
    ),
    computed(
        "Sequence parallelism alone: {4.25} + {13.3} bytes, {42.5} GB, in all {91.4} GB: no",
        BOTH,
        ATTENTION,
        SEQUENCE * KEPT,
        STATES_22B + SEQUENCE * KEPT,
    ),
    computed(
        "Both: {4.25} bytes, {10.3} GB, in all {59.2} GB: yes",
        BOTH,
        BOTH * KEPT,
        STATES_22B + BOTH * KEPT,
    ),
    computed(
        "The next multiple of 128 * 8 = {1,024} is {129,024}, which is {768} more",
        MULTIPLE,
        PADDED,
        ADDED,
        source=MEGATRON,
    ),
    computed(
        "Two tables with {768} rows of {4,096} numbers are {6.3} million parameters, {0.08%} of "
        "the model",
        ADDED,
        D_8B,
        2 * ADDED * D_8B / 1e6,
        100 * 2 * ADDED * D_8B / PARAMETERS_8B,
    ),
    computed(
        "All logits are {4.2} GB. A device sends seven eighths of that, {3.68} GB, in {8.2} ms",
        LOGITS / GB,
        7 / 8 * LOGITS / GB,
        1e3 * GATHER,
    ),
    computed(
        "Three all-reduces of {32,768} bytes send {172,032} bytes in {0.4} us. But each has {14} "
        "steps, and {42} steps take {80} us",
        4 * 8192,
        REDUCE_BYTES,
        1e6 * REDUCE_BYTES / NVLINK,
        2 * (8 - 1),
        3 * 2 * (8 - 1),
        1e6 * 42 * INSIDE,
    ),
    computed(
        "still {100} times as fast; and no device needs room for {4.2} GB",
        GATHER / REDUCE,
        LOGITS / GB,
    ),
)
