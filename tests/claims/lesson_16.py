"""The numbers of real clusters in lesson 16."""

from jaxpar.schedules import make_table, peak_in_flight, simulate
from tests.claims.claim import computed, published

# Korthikanti et al. 2022, table 3: GPT of 175 billion parameters.
P, V, M, LAYERS, HIDDEN = 8, 3, 64, 96, 12288
OF_LAYER = 34 * 2048 * HIDDEN / 8  # bytes of a microbatch: 34sbh/t, with b = 1 and t = 8
PLAIN = peak_in_flight(make_table("1f1b", P, M))[0]
INTERLEAVED = peak_in_flight(make_table("interleaved", P, M, V))[0]
# Grattafiori et al. 2024, The Llama 3 Herd of Models, tables 3 and 4: 405B.
STAGES_405B, LAYERS_405B = 16, 126
CHUNKED_405B = simulate(make_table("interleaved", STAGES_405B, 16, 8))
PLAIN_405B = simulate(make_table("1f1b", STAGES_405B, 16))


CLAIMS = (
    published(
        "raises the throughput of GPT models by 10% and more (Narayanan et al. 2021, abstract)",
        "Narayanan et al. 2021, Megatron-LM, abstract: 10+%",
    ),
    published(
        "Zero bubble reaches up to 23% more than 1F1B in about the same memory, and up to 31% if "
        "it may take more (Qi et al. 2024, abstract)",
        "Qi et al. 2024, Zero Bubble Pipeline Parallelism, abstract",
    ),
    computed(
        "In 1F1B it keeps {8} microbatches in {12} layers: {96} times {107} MB, or {10.3} GB.",
        PLAIN,
        LAYERS / P,
        PLAIN * LAYERS / P,
        OF_LAYER / 1e6,
        PLAIN * LAYERS / P * OF_LAYER / 1e9,
    ),
    computed(
        "2(p-1) + (v-1)p + 1 = {31} chunks of {4} layers: {124} times 107 MB, or {13.3} GB.",
        INTERLEAVED,
        LAYERS / P / V,
        INTERLEAVED * LAYERS / P / V,
        INTERLEAVED * LAYERS / P / V * OF_LAYER / 1e9,
    ),
    computed(
        "1 + (p-1)/(pv) = {1.29}.",
        1 + (P - 1) / (P * V),
        source="Korthikanti et al. 2022, Reducing Activation Recomputation, section 4.2",
    ),
    computed(
        "The {107} MB are its 34sbh/t",
        OF_LAYER / 1e6,
        source="Korthikanti et al. 2022, Reducing Activation Recomputation, table 2",
    ),
    computed(
        "Without chunks it is 15/16 = {94%}, and with them `15/(8 * 16)` = {12%}.",
        100 * (PLAIN_405B.makespan / PLAIN_405B.ideal - 1),
        100 * (CHUNKED_405B.makespan / CHUNKED_405B.ideal - 1),
    ),
    computed("There are 126 + 2 = {128} chunks.", LAYERS_405B + 2),
    computed(
        "from device to device {127} times in place of {15}, and {8.5} times as much is sent",
        CHUNKED_405B.table.stages - 1,
        PLAIN_405B.table.stages - 1,
        (CHUNKED_405B.table.stages - 1) / (PLAIN_405B.table.stages - 1),
    ),
    computed(
        "{45}, {15} and {14}.",
        simulate(make_table("1f1b", 16, 32)).idle_in_span_per_device[0],
        simulate(make_table("zb-h1", 16, 32)).idle_in_span_per_device[0],
        (16 / 2 - 1) * (3 + 2 - 3 * 1),
        source="DeepSeek-AI 2024, DeepSeek-V3 Technical Report, table 2",
    ),
)
