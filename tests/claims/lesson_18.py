"""The numbers of real clusters in lesson 18."""

from math import sqrt

from tests.claims.claim import asserted, computed, published
from tests.claims.figures import CARD, GB, LLAMA_3, PARAMETERS_70B

MT_NLG = "Smith et al. 2022, Using DeepSpeed and Megatron to Train Megatron-Turing NLG 530B"
BLOOM = "bigscience-workshop/bigscience, train/tr11-176B-ml/README.md"
DEEPSEEK = "DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 3.2"
HOME = "given: 1 Gb/s; Llama 3.2 3B: huggingface.co/meta-llama/Llama-3.2-3B, config.json"
GRADIENTS = 2 * 3.2e9  # bytes
ACTIVATIONS = 2 * 8 * 4096 * 3072
OF_TP = PARAMETERS_70B / 8

CLAIMS = (
    published(
        "tp=8, pp=16 and dp=128 (16,384 H100, 2,048 sequences of 8,192 tokens)",
        f"{LLAMA_3}, table 4",
    ),
    published(
        "We take one sequence for a microbatch, 8 chunks of layers for each stage (lesson 16), and "
        "gradients in 16 bits (the paper sends them in 32)",
        f"chosen; {LLAMA_3}, section 3.3.2",
    ),
    asserted("the products of the step take {6.2} s"),
    published("At the published 400 TFLOP/s", f"{LLAMA_3}, table 4"),
    computed("tp sends {35} times as much as pp", 300.6 / 8.6),
    computed("By the network they would take {6.0} s", 300.6e9 / CARD),
    published(
        "Llama 3 70B on 64 H100, with pp=2, dp=4, tp=8 and ZeRO-1, and 4 microbatches of one "
        "sequence for each pipeline",
        "chosen",
    ),
    published("Products run at 400 TFLOP/s", f"{LLAMA_3}, table 4"),
    asserted("With tp by NVLink, the step takes {3.9} s, of which the GPU waits for {1.4} s"),
    asserted("With tp by the network, the step takes {8.1} s, of which it waits for {5.6} s"),
    asserted("What goes to the other stage takes {0.3} ms"),
    computed(
        "there are 2,048 / 128 = {16} of them, over 16 stages. Without chunks the bubble would add "
        "{15}/16 to the time of computing (lesson 15); 8 chunks make it 15/{128}, or {12%}",
        2048 / 128,
        16 - 1,
        8 * 16,
        100 * 15 / 128,
    ),
    published("MT-NLG 530B | 2,240 A100 | 8 | - | - | 35 | 8", f"{MT_NLG}, section 2.4"),
    published("BLOOM 176B | 384 A100 | 4 | - | - | 12 | 8", BLOOM),
    published("Llama 3 405B | 16,384 H100 | 8 | - | - | 16 | 128", f"{LLAMA_3}, table 4"),
    published("131,072 tokens | 16,384 H100 | 8 | 16 | - | 16 | 8", f"{LLAMA_3}, table 4"),
    computed(
        "MT-NLG needs 8 * 35 = {280} GPUs for one replica",
        8 * 35,
        source=f"{MT_NLG}, section 2.4",
    ),
    published("A node of BLOOM had two groups of tp", f"{BLOOM}: 8 GPUs in a node, tp=4"),
    published(
        "the experts of a layer over 64 of its 128 data-parallel GPUs", f"{DEEPSEEK}: 2,048 / 16"
    ),
    computed("a network of 1 Gb/s, {125} MB/s each way", 1e9 / 8 / 1e6, source=HOME),
    published(
        "They train a model of 3.2 billion parameters (Llama 3.2 3B: 28 layers, d = 3,072), 8 "
        "sequences of 4,096 tokens in a step, in 16 bits",
        HOME,
    ),
    computed(
        "each would all-reduce {6.4} GB of gradients: {51} s a step",
        GRADIENTS / GB,
        2 * (2 - 1) / 2 * GRADIENTS / 125e6,
    ),
    computed(
        "8 * 4,096 * 3,072 * 2 bytes, {0.2} GB each way. That is {1.6} s",
        ACTIVATIONS / GB,
        ACTIVATIONS / 125e6,
        source="both ways at once",
    ),
    computed(
        "reaches the 6.4 GB at {254} sequences",
        GRADIENTS / (ACTIVATIONS / 8),
        source="the 6.4 GB: above",
    ),
    computed("With 16 bytes for each parameter, a stage takes {26} GB", 16 * 3.2e9 / 2 / GB),
    computed(
        "tp leaves 70.6e9 / 8 = {8.82} billion parameters on a GPU", OF_TP / 1e9, source=LLAMA_3
    ),
    computed("Without ZeRO: {16} bytes each, {141} GB", 2 + 2 + 12, 16 * OF_TP / GB),
    computed(
        "ZeRO-1: {4} bytes each, and 12/32 of a byte more: {38.6} GB",
        2 + 2,
        (4 + 12 / 32) * OF_TP / GB,
    ),
    computed("ZeRO-3: 16/32 bytes each, {4.4} GB", 16 / 32 * OF_TP / GB),
    computed(
        "0.99 + 8 * 0.01 = {1.07} times the right one, so the norm is {1.034} times the right one",
        0.99 + 8 * 0.01,
        sqrt(0.99 + 8 * 0.01),
        source="given",
    ),
    computed(
        "Clipped gradients are {3.3%} too small, as if the learning rate were {3.3%} lower",
        100 * (1 - 1 / sqrt(1.07)),
        100 * (1 - 1 / sqrt(1.07)),
    ),
    computed(
        "The mean of the means is {4.0}. The mean of all tokens is (2,000 + 60) / {1,010} = {2.04}",
        (2.0 + 6.0) / 2,
        1000 + 10,
        (1000 * 2.0 + 10 * 6.0) / 1010,
    ),
    computed(
        "weighs 1/20, in place of 1/1,010: {50.5} times too much",
        1010 / 20,
        source="half of one tenth; the token's part of all",
    ),
)
