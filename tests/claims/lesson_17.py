"""The numbers of real clusters in lesson 17."""

from tests.claims.claim import asserted, computed, published
from tests.claims.figures import CARD, GB

DEEPSEEK = "DeepSeek-AI 2024, DeepSeek-V3 Technical Report"
LLAMA = "Grattafiori et al. 2024, The Llama 3 Herd of Models, table 4"
SWITCH = "Fedus, Zoph and Shazeer 2021, Switch Transformers"
EXPERT = 3 * 4096 * 14336  # parameters: Jiang et al. 2024, Mixtral of Experts, table 1

CLAIMS = (
    published(
        "Devices have 4,096 tokens each, in 16 bits, and a capacity factor of 1.25", "chosen"
    ),
    computed(
        "k times the factor: at {2.5} for Mixtral, and at {10} for DeepSeek-V3",
        2 * 1.25,
        8 * 1.25,
        source="the sizes of the table",
    ),
    published(
        "With 8 choices, a token goes to most of 8 devices anyway",
        "8 * (1 - (7/8)**8) = 5.3 devices, if it chooses at random",
    ),
    published(
        "trained on 2,048 H800 with 16 stages of a pipeline, experts over 64 GPUs and ZeRO-1 "
        "(section 3.2 of its report), in batches of 15,360 sequences of 4,096 tokens (section 4.2)",
        f"{DEEPSEEK}, sections 3.2 and 4.2",
    ),
    published(
        "Mixtral 8x7B on 64 GPUs, as `pp=4,dp=2,ep=8` and with 1,024 such sequences", "chosen"
    ),
    computed(
        "At the 50 GB/s of a GPU's network card, the 887.9 GB of DeepSeek-V3 would take {17.8} s "
        "of a step",
        887.9e9 / CARD,
        source="an H100's network card; the 887.9 GB: asserted in the lesson",
    ),
    published(
        "A token goes to at most 4 nodes (section 3.2.2), and travels in 8 bits on its way to the "
        "experts (section 3.3)",
        f"{DEEPSEEK}, sections 3.2.2 and 3.3.3",
    ),
    published("two microbatches of 4,096 tokens, with products at 400 TFLOP/s", f"chosen; {LLAMA}"),
    asserted(
        "the tokens travel for {9.4} ms to the experts, and as long back, and the products of the "
        "experts take {8.2} ms"
    ),
    published(
        "a ratio of compute to communication of about 1 to 1 (section 3.2.1)",
        f"{DEEPSEEK}, section 3.2.1",
    ),
    computed(
        "An expert has 3 * 4,096 * 14,336 = {176} million parameters, a layer eight times as many, "
        "and all layers {45.1} billion",
        EXPERT / 1e6,
        32 * 8 * EXPERT / 1e9,
    ),
    computed(
        "one expert of each layer: {5.6} billion parameters, or {11.3} GB. A token uses 2 of 8: "
        "{11.3} billion",
        32 * EXPERT / 1e9,
        2 * 32 * EXPERT / GB,
        2 * 32 * EXPERT / 1e9,
    ),
    computed(
        "that is 1 * 1.25 = {1.25}, so it is 2 devices. For DeepSeek-V2-Lite it is 6 * 1.25 = "
        "{7.5}, so it is 8 devices, which divides 64",
        1 * 1.25,
        6 * 1.25,
        source=f"{SWITCH}, section 2.2; DeepSeek-AI 2024, DeepSeek-V2, appendix B",
    ),
    computed(
        "4,096 * 8 / 256 = {128} rows from one GPU, and 64 * 128 = {8,192} in all",
        4096 * 8 / 256,
        64 * 128,
    ),
    computed(
        "The capacity must be 1.3 times the mean, so 0.3 of 1.3 rows are empty: {23%}",
        100 * 0.3 / 1.3,
        source="given",
    ),
)
