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
        "With {14} bytes for each parameter (2 in bfloat16, and in float32 the weight and two "
        "means of AdamW), a checkpoint would have {5.7} TB",
        2 + 3 * 4,
        STATE / 1e12,
    ),
    published("Its storage took 2 TB in a second", f"{LLAMA_3}, section 3.3.1"),
    computed("if all devices write at once, that is {2.8} s", SAVING.checkpoint_seconds),
    asserted("(Young and Daly; lesson 19): here {252} seconds"),
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
        "every {22.4} s. A failure then costs half an interval, and the 22.4 s of a checkpoint "
        "that was not yet complete: {33.6} s, or {0.03%} of {30} hours",
        OWN,
        1.5 * OWN,
        100 * 1.5 * OWN / MTBF,
        MTBF / 3600,
    ),
    computed(
        "Every five minutes is often enough: {172} s, or {0.16%}",
        150 + OWN,
        100 * (150 + OWN) / MTBF,
    ),
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
