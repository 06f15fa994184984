"""The numbers of real clusters in lesson 15."""

from jaxpar.schedules import make_table, simulate
from tests.claims.claim import computed, published
from tests.claims.figures import LLAMA_3

LAYERS_405B, STAGES_405B, TP_405B = 126, 16, 8  # LLAMA_3, tables 3 and 4
BATCH_405B = 2**24  # tokens: the 16M of its table 4
SEQUENCE = 8192
INPUT_70B = 2 * SEQUENCE * 8192  # bytes of a microbatch in bfloat16
OF_405B = simulate(make_table("gpipe", STAGES_405B, 16))


CLAIMS = (
    published(
        "a sequence of 8192 tokens through 20 of the 80 layers of Llama 3 70B",
        f"given; 80 layers: {LLAMA_3}, table 3",
    ),
    published("8 devices share them by tensor parallelism", "given"),
    computed("one network card of {50} GB/s", 400 / 8, source="DGX H100: a 400 Gb/s port each"),
    published("400 TFLOP/s, as measured for Llama 3 405B (its paper, table 4)", LLAMA_3),
    computed(
        "one layer less than the other {14} in Llama 3 405B (its paper, section 3.3.2): "
        "`2 * {7} + 14 * {8}` are its {126} layers",
        STAGES_405B - 2,
        (LAYERS_405B + 2) / STAGES_405B - 1,
        (LAYERS_405B + 2) / STAGES_405B,
        2 * 7 + 14 * 8,
        source=f"{LLAMA_3}, section 3.3.2 and table 3",
    ),
    computed(
        "is at most {0.1} from m = {63} on",
        simulate(make_table("gpipe", 8, 63)).bubble,
        7 / 0.1 - 7,
    ),
    computed(
        "The batch has {512} sequences, so that each pipeline gets {64}.",
        4_194_304 / SEQUENCE,
        4_194_304 / SEQUENCE / 8,
    ),
    computed(
        "m = {64}, and the bubble is {9.9%}. With two it would be {18%}.",
        4_194_304 / SEQUENCE / 8,
        100 * simulate(make_table("gpipe", 8, 64)).bubble,
        100 * simulate(make_table("gpipe", 8, 32)).bubble,
    ),
    computed(
        "15/31 = {48%} of the whole time, and 15/16 = {94%} of the ideal time",
        100 * OF_405B.bubble,
        100 * (OF_405B.makespan / OF_405B.ideal - 1),
    ),
    computed(
        "On half as many devices each pipeline had {32} sequences",
        BATCH_405B / SEQUENCE / (16_384 / 2 / (TP_405B * STAGES_405B)),
        source=f"{LLAMA_3}, table 4",
    ),
    published("a device reached 430 TFLOP/s in place of 400", f"{LLAMA_3}, table 4"),
    computed("`8192 * 8192 * 2` bytes = {134} MB", INPUT_70B / 1e6),
    computed("Kept for {20} layers and 32 microbatches", 80 / 4),
    computed("that is {86} GB", 20 * 32 * INPUT_70B / 1e9),
    published("more than the 80 GB of an H100", "NVIDIA H100 datasheet"),
    computed("The inputs of the stage alone are {4.3} GB", 32 * INPUT_70B / 1e9),
    computed("the activations of all {20} layers must be recomputed", 80 / 4),
)
