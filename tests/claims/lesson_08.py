"""The numbers of real clusters in lesson 08."""

from tests.claims.claim import computed, published
from tests.claims.figures import GB, KORTHIKANTI

ZERO = "Rajbhandari et al. 2020, ZeRO"
HIDDEN, HEADS, SEQUENCE, LAYERS = 12288, 96, 2048, 96  # GPT-3
OF_DEVICE = SEQUENCE * HIDDEN / 8  # numbers of a layer's input: sbh/tp
SCORES = 5 * HEADS * SEQUENCE / HIDDEN
NONE, SELECTIVE, FULL = (k * OF_DEVICE * LAYERS / GB for k in (34 + SCORES, 34, 2))
PARAMETERS = LAYERS * 12 * HIDDEN**2
STATES = 18 * PARAMETERS / 64 / GB
LONG = 131_072 * 4096  # numbers of the input of a layer of Llama 3 8B
# Of Llama, with 8 kv heads for 32 heads and an MLP of 3.5h: both norms, the input of attention,
# queries, keys and values, their result, the input of the MLP, and three arrays inside it.
NUMBERS_OF_LLAMA = 2 + 1 + (1 + 2 * 8 / 32) + 1 + 1 + 3 * 3.5
# Of these, both norms, queries, values, the result of attention, and one array of the MLP.
ALTERNATE_NUMBERS = 2 + (1 + 8 / 32) + 1 + 3.5
EIGHT_K = 32 * 8192 * 4096 * 2 / GB  # of one such number in 32 layers, for a sequence of 8,192


CLAIMS = (
    published(
        "takes 1.42 s with full recomputation, and 1.10 s with selective and sequence parallelism "
        "(table 5)",
        f"{KORTHIKANTI}, table 5, 22B",
    ),
    published(
        "30% more computation in a layer for full",
        "NVIDIA, NeMo Framework User Guide 25.02, Activation Recomputation",
    ),
    computed(
        "The activations of Llama 3 8B then take {16.6} GB in place of {36.5}",
        ALTERNATE_NUMBERS * EIGHT_K,
        NUMBERS_OF_LLAMA * EIGHT_K,
    ),
    computed(
        'Keys and "up" are computed again, which have {29}% of the FLOPs',
        100 * (8 / 32 + 3.5) / (2 + 2 * 8 / 32 + 3 * 3.5),
    ),
    published("PaLM reports 46.2% and 57.8%", "Chowdhery et al. 2022, PaLM, section 4.1"),
    computed("its hardware did {1.25} times the model's FLOPs", 57.8 / 46.2),
    computed(
        "33 GB become {2} GB in a model of 100 billion parameters",
        33 / 16,
        source=f"{ZERO}, section 6.1: tensor parallelism of 16",
    ),
    computed(
        "{12} layers for 8 sequences are as much as {96} layers for one",
        LAYERS / 8,
        8 * LAYERS / 8,
    ),
    computed("Then sbh/8 is {3.15} million numbers", OF_DEVICE / 1e6),
    computed(
        "34 + 5as/h = 34 + {80} = {114} bytes for each, {34.4} GB in 96 layers. Selective: 34 "
        "bytes, {10.3} GB. Full: 2 bytes for each, {0.6} GB, or {4.8} GB",
        SCORES,
        34 + SCORES,
        NONE,
        SELECTIVE,
        FULL,
        8 * FULL,
        source=f"{KORTHIKANTI}, table 2",
    ),
    computed("18 * {174} billion / 64 bytes, {48.9} GB", PARAMETERS / 1e9, STATES),
    computed(
        "that makes {83.3} of the device's {85.9} GB (80 GiB)",
        NONE + STATES,
        80 * 2**30 / GB,
        source="nvidia-smi of an A100-SXM4-80GB: 81,920 MiB",
    ),
    computed("With selective it makes {59.2} GB", SELECTIVE + STATES),
    computed("saves at most {10} GB more", SELECTIVE - FULL),
    computed("2 * 131,072 * 4096 * 32 bytes = {34.4} GB", 2 * LONG * 32 / GB),
    computed("32 heads times 131,072 squared times 2 bytes = {1.1} TB", 32 * 131_072**2 * 2 / 1e12),
    computed(
        "The layer at work keeps {18} GB more ({34}sbh, also in Llama)",
        2 * NUMBERS_OF_LLAMA * LONG / GB,
        2 * NUMBERS_OF_LLAMA,
    ),
    computed(
        "the parameters take {16} GB",
        2 * 8.03e9 / GB,
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models, table 3: the sizes of 8B",
    ),
    computed("45% * 4/3 = {60%} of the peak", 45 * 4 / 3),
    computed("If it stays at 45%, the MFU falls to 45% * 3/4 = {34%}", 45 * 3 / 4),
)
