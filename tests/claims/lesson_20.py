"""The numbers of real clusters in lesson 20."""

import math

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS, failures
from tests.claims.claim import asserted, computed, published
from tests.claims.figures import GB, LLAMA_3

STATE = 14 * 405.9e9  # bytes: parameters in bfloat16, and 12 for AdamW and weights in float32
SAVING = failures(STATE, 16_384, DEVICE_MTBF_HOURS)
PCIE_5 = 32e9 * 16 * 128 / 130 / 8  # bytes in a second
OWN = 14 * 8e9 / 5e9  # seconds of a checkpoint in the first problem
MTBF = 30 * 3600
INTERVAL = math.sqrt(2 * OWN * MTBF)

CLAIMS = (
    published(
        "was trained on 16,384 H100, with 419 unplanned interruptions in 54 days: one in about "
        "three hours",
        f"{LLAMA_3}, section 3.3.4",
    ),
    computed(
        "with parameters in bfloat16 and 12 bytes of AdamW and float32 weights for each of them, "
        "has {5.7} TB",
        STATE / 1e12,
        source="lesson 07: 12 bytes for two means and the weights in float32",
    ),
    published("its storage took 2 TB in a second", f"{LLAMA_3}, section 3.3.1"),
    computed("Saved from all devices at once, that is {2.8} s", SAVING.checkpoint_seconds),
    asserted("a checkpoint every {252} seconds loses least"),
    computed(
        "with 2 GB/s to a local disk, it would take {47} minutes",
        STATE / 2e9 / 60,
        source="2 GB/s are given",
    ),
    computed(
        "{347} MB from each device over PCIe 5.0 at {63} GB/s take {6} ms",
        STATE / 16_384 / 1e6,
        PCIE_5 / GB,
        1e3 * STATE / 16_384 / PCIE_5,
        source="32 GT/s on 16 lanes, 128 of 130 bits",
    ),
    published("starts two processes of four simulated devices each", "given"),
    computed("14 * 8 = {112} GB take {22.4} s", 14 * 8, OWN),
    computed(
        "the root of 2 * 22.4 * {108,000} is {2,200} s, {37} minutes",
        MTBF,
        INTERVAL,
        INTERVAL / 60,
    ),
    computed(
        "Saving costs 22.4 / 2,200 = {1%}, and repeated work 1,100 / 108,000 = {1%}, {2%} in all",
        100 * OWN / INTERVAL,
        100 * INTERVAL / 2 / MTBF,
        100 * (OWN / INTERVAL + INTERVAL / 2 / MTBF),
    ),
    computed(
        "every 22.4 s; half of that is {0.01%} of {30} hours",
        100 * OWN / 2 / MTBF,
        MTBF / 3600,
    ),
    computed("Every five minutes is often enough: {0.14%}", 100 * 150 / MTBF),
    computed(
        "from 10,000 * 1,024 = {10,240,000} on, and should take those from {5,120,000} on",
        10_000 * 1024,
        10_000 * 512,
    ),
    computed("It leaves out {5,120,000} examples", 10_000 * (1024 - 512)),
    computed("It reads 2,048 * 3,584 * 2 = {14.7} MB", 2048 * 28672 / 8 * 2 / 1e6),
    computed("Whole files would be {8} times as many bytes, {117} MB", 8, 16 * 128 * 28672 * 2e-6),
    computed("each row gives one piece of {7,168} bytes", 28672 / 8 * 2),
)
