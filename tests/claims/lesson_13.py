"""The numbers of real clusters in lesson 13."""

from math import ceil

from tests.claims.claim import computed, published
from tests.claims.figures import GB, LLAMA_3, PARAMETERS_70B

POPE = "Pope et al. 2022, Efficiently Scaling Transformer Inference"
V5P = "docs.cloud.google.com/tpu/docs/v5p: 459 TFLOP/s, and 1,200 GB/s both ways by six links"
AXIS = 2 * 1200e9 / 6 / 2  # bytes in a second that a chip sends by the two links of an axis
A = 459e12 / AXIS
F = 4 * 8192
MIX = 4 * A**2 / (2 * F)  # tokens of a chip for FSDP on two axes, tensor parallelism on one
STATES_70B = 16 * PARAMETERS_70B / GB
D_GPT3, F_GPT3, TOKENS = 12_288, 49_152, 65_536
X, H, W = (2 * size / GB for size in (TOKENS * D_GPT3, TOKENS * F_GPT3, D_GPT3 * F_GPT3))


CLAIMS = (
    computed(
        "GPT-3 has f/d = {4}",
        F_GPT3 / D_GPT3,
        source="Brown et al. 2020, Language Models are Few-Shot Learners, section 2.1",
    ),
    computed(
        "the condition is q > 1.5 f/d: for Llama 3 8B q > {5.25}",
        1.5 * 14_336 / 4096,
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models, table 3",
    ),
    computed(
        "a cube of 64 devices is no better than FSDP 4 with tp={16}",
        (F_GPT3 / D_GPT3) ** 2,
    ),
    published("In a node of 8 GPUs all links are equal", "given: NVSwitch joins all"),
    computed(
        "With n = 8, f = 32,768 and an H100's 400 TFLOP/s (lesson 11) and 450 GB/s that is {19%}",
        100 * 7 * 400e12 / (32_768 * 450e9),
        source=f'400: {LLAMA_3}, table 4; 450: Austin et al. 2025, How to Scale Your Model, "GPUs"',
    ),
    published("on 4 x 4 x 4 chips of a TPU v5p", "given"),
    computed(
        "459 TFLOP/s, and {200} GB/s for each axis, since a chip sends {100} GB/s to each of its "
        "two neighbours there",
        AXIS / GB,
        AXIS / 2 / GB,
        source=V5P,
    ),
    computed(
        "With {754} tokens on each chip FSDP alone is enough, and with about 300 FSDP",
        ceil(63 / 64 * A / 3),
        source="300: between the 341 and the 269 that the lesson's table shows for this mix",
    ),
    published(
        "1D over 64 chips is limited by its links whatever the tokens",
        "given: 4 x 4 x 4; never enough, as 63 * a/3 is more than f",
    ),
    computed("The cube goes down to {108}", ceil(3 / 64 * A)),
    computed(
        "16 million tokens in a batch on 16,384 GPUs (table 4 of its paper), about {1,000} each",
        2**24 / 16_384,
        source=f"{LLAMA_3}, table 4",
    ),
    published("split the weights of PaLM 540B in two dims on 64 TPU v4", POPE),
    computed(
        "In all they take {1,130} GB. 1D, 2D and 3D hold 1/64: {17.6} GB",
        STATES_70B,
        STATES_70B / 64,
    ),
    computed(
        "so it holds 1/16: {70.6} GB, which leaves {9} GB",
        STATES_70B / 16,
        80 - STATES_70B / 16,
    ),
    computed(
        "X is 2 * 65,536 * 12,288 bytes = {1.61} GB, H is {6.44} GB, and W is {1.21} GB",
        X,
        H,
        W,
    ),
    computed(
        "Cube: 2 * {7} * ({1.61} + {6.44} + {1.21}) / 512 = {0.25} GB",
        8 - 1,
        X,
        H,
        W,
        2 * 7 * (X + H + W) / 512,
    ),
    computed(
        "FSDP with tensor parallelism: 2 * ({63} * {1.61} + {7} * {1.21}) / 512 = {0.43} GB",
        64 - 1,
        X,
        8 - 1,
        W,
        2 * (63 * X + 7 * W) / 512,
    ),
    computed(
        "a = 459e12 / 200e9 = {2,295}. The run has 1e6 / 4,096 = {244} tokens on each chip. FSDP "
        "needs {765}, and the mix needs {321}",
        A,
        1e6 / 16**3,
        A / 3,
        MIX,
        source=f'{V5P}; the mix: Austin et al. 2025, How to Scale Your Model, "Training"',
    ),
    computed(
        "Take at most {3,110} chips for the mix, or {1,307} for FSDP alone",
        1e6 // MIX,
        1e6 // (A / 3),
    ),
)
