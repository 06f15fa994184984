"""The numbers of real clusters in lesson 19."""

from dataclasses import replace

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS, failures
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner import Job
from jaxpar.cost.planner.plan import Plan
from jaxpar.layout import Layout
from tests.claims.claim import computed, published
from tests.claims.figures import GB, LLAMA_3, PARAMETERS_8B, PARAMETERS_70B

FAILING = failures(14 * 405.9e9, 16384, DEVICE_MTBF_HOURS)  # saved: parameters, 12 bytes of Adam
ON_A100 = Job(find_model("llama3-70b"), find_cluster("a100"), 128, 512, 4096)
ON_H100 = Job(find_model("llama3-405b"), find_cluster("h100"), 16384, 2048, 8192)
# The plans that the lesson's table shows for these two strategies.
SHARDED_LAYOUT = Layout(dp=2, fsdp=64, microbatch=4, zero=3, remat="full")
LAYOUT_3D = Layout(pp=4, dp=8, cp=2, tp=2, chunks=10, zero=1, sequence_parallel=True)
SHARDED, IN_3D = (Plan(ON_A100, one, FAILING, overlap=True) for one in (SHARDED_LAYOUT, LAYOUT_3D))
# Grattafiori et al. 2024, table 4, with one of 126 + 2 layers in each chunk.
MESH = Layout(pp=16, dp=128, tp=8, chunks=8, zero=1, remat="selective", sequence_parallel=True)
ZERO_1, ZERO_2 = (
    Plan(ON_H100, replace(MESH, zero=stage), FAILING, overlap=True) for stage in (1, 2)
)
OWN = Layout(pp=16, dp=64, cp=4, tp=4, chunks=8, zero=1, sequence_parallel=True)
PLANNED = Plan(ON_H100, OWN, FAILING, overlap=True)
# Llama 3 70B, for each token: the two products of attention, 12 FLOPs for each layer, key and
# element of a query; the others, 6 for each parameter but those of the embedding.
SCORES = 12 * 80 * 8192 * 8192
PRODUCTS = 6 * (PARAMETERS_70B - 128_256 * 8192)
CACHE_8B = 2 * 2 * 32 * 8 * 128 * 8192  # bytes: keys and values of 8 heads in 32 layers
FLOPS_405B = 6 * 405.9e9 * 15.6e12
SECONDS_405B = FLOPS_405B / (16384 * 400e12)
GATHER = 3 / 4 * 2 * 6.74e9  # bytes of Llama 2 7B that enter a machine
ETHERNET = 10e9 / 8


CLAIMS = (
    published("Llama 3 70B on 128 A100 in nodes of 8", "given"),
    computed(
        "for the forward and backward pass of one layer that takes it {4} to {6.5} ms",
        1e3 * ON_H100.cluster.efficiency.eager_layer_seconds,
        1e3 * find_cluster("gb200").efficiency.eager_layer_seconds,
        source="the end of jaxpar/cost/hardware.toml",
    ),
    computed("Its step takes {22%} longer", 100 * (SHARDED.step_seconds / IN_3D.step_seconds - 1)),
    published(
        "It was trained on 16,384 H100 with pp=16, dp=128, tp=8, at 400 TFLOP/s each",
        f"{LLAMA_3}, table 4",
    ),
    computed(
        "the formulas give {6%} fewer TFLOP/s than published", 100 * (1 - ZERO_1.mfu * 989 / 400)
    ),
    computed(
        "The planner's own takes {7%} less time",
        100 * (1 - PLANNED.step_seconds / ZERO_1.step_seconds),
    ),
    published(
        "With ZeRO-1 their mesh would need more than 80 GB",
        f"{ZERO_1.memory_bytes / GB:.1f} GB by the formulas; an H100 has 80",
    ),
    computed(
        "for which the formulas of ZeRO-2 give {76} GB",
        ZERO_2.memory_bytes / GB,
        source=f"{LLAMA_3}, section 3.3.2: gradients are sharded",
    ),
    computed(
        "In Llama 3 70B with 8192 tokens the two products of attention are {13%} of them",
        100 * SCORES / (SCORES + PRODUCTS),
    ),
    computed(
        "about {7%} of the counted FLOPs are never computed",
        100 * SCORES / (SCORES + PRODUCTS) / 2,
        source="Dao 2023, FlashAttention-2, section 3.1: about half of the blocks",
    ),
    published(
        "419 unplanned interruptions in 54 days, and more than 90% of the time was effective "
        "training",
        f"{LLAMA_3}, section 3.3.4",
    ),
    published("what it holds for one text of 8192 tokens", "given"),
    computed(
        "a device of 80 GB has room for fewer than {60} such caches",
        (80 * GB - 2 * PARAMETERS_8B) / CACHE_8B,
    ),
    computed("There are {70.6} billion parameters", PARAMETERS_70B / 1e9, source=LLAMA_3),
    computed(
        "split over all {256} devices, by tp or pp and by dp: 12 * 70.6 / 256 = {3.3} GB",
        8 * 32,
        12 * 70.6 / 256,
    ),
    computed(
        "With tp=8 they take 4 * 70.6 / 8 = {35.3} GB: {38.6} GB in all",
        4 * 70.6 / 8,
        4 * 70.6 / 8 + 12 * 70.6 / 256,
    ),
    computed(
        "With pp=4 they take 4 * 70.6 / 4 = {70.6} GB: {73.9} GB in all",
        4 * 70.6 / 4,
        4 * 70.6 / 4 + 12 * 70.6 / 256,
    ),
    computed("16 * 70.6 / 256 = {4.4} GB", 16 * 70.6 / 256),
    computed("How many if the goodput is {92.6%}", 100 * FAILING.goodput),
    computed(
        "6 * 405.9 billion * 15.6 trillion = {3.8}e25 FLOPs",
        FLOPS_405B / 1e25,
        source=f"{LLAMA_3}, section 3.2.1",
    ),
    computed(
        "16,384 devices do {6.55}e18 in a second, so it takes {5.8} million seconds, {67} days. "
        "With the goodput it is {67.1} / 0.926 = {72} days",
        16384 * 400e12 / 1e18,
        SECONDS_405B / 1e6,
        SECONDS_405B / 86400,
        SECONDS_405B / 86400,
        SECONDS_405B / 86400 / 0.926,
    ),
    computed(
        "A gather brings 3/4 of {13.5} GB into every machine: {10.1} GB at {1.25} GB/s take {8.1} "
        "s. There are two gathers and a reduce-scatter, {24} s",
        2 * 6.74,
        GATHER / GB,
        ETHERNET / GB,
        GATHER / ETHERNET,
        3 * GATHER / ETHERNET,
    ),
    computed(
        "6 * 6.74e9 * 2048 / 165e12 = {0.5} s at the peak",
        6 * 6.74e9 * 2048 / 165e12,
        source="NVIDIA, Ada whitepaper: 165.2 TFLOP/s, dense, sums in float32",
    ),
    computed(
        "2 * 2048 * 4096 bytes = {16.8} MB and takes {13} ms",
        2 * 2048 * 4096 / 1e6,
        1e3 * 2 * 2048 * 4096 / ETHERNET,
    ),
)
