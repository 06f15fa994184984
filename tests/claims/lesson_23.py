"""The numbers of real clusters in lesson 23."""

from jaxpar.cost.adapters import adapter_of
from jaxpar.cost.models import find_model
from tests.claims.claim import asserted, computed, published
from tests.claims.figures import GB, PARAMETERS_8B, PARAMETERS_70B

TRAINED = adapter_of(find_model("llama3-8b"), method="lora", rank=16)
TRAINED_70B = adapter_of(find_model("llama3-70b"), method="lora", rank=16)
QLORA = "Dettmers et al. 2023 (QLoRA), abstract and section 3 (double quantization)"


def tables(hidden: int) -> int:
    """Parameters of the embedding and of the head."""
    return 2 * 128_256 * hidden


def in_codes(parameters: int, hidden: int) -> tuple[float, float]:
    """Bytes of the matrices in 4.5 bits, and of the tables in 16."""
    return 4.5 / 8 * (parameters - tables(hidden)), 2 * tables(hidden)


CODES_8B = sum(in_codes(PARAMETERS_8B, 4096))
MATRICES_70B, TABLES_70B = in_codes(PARAMETERS_70B, 8192)
ONCE = 7 / 8 * 2 * PARAMETERS_8B / GB

CLAIMS = (
    computed(
        "data parallelism sends {0.3} GB in a step, where FSDP gathers a base of {16} GB twice",
        2 * 7 / 8 * 4 * TRAINED / GB,
        2 * PARAMETERS_8B / GB,
    ),
    published(
        "trains models of 70B parameters on two cards of 24 GB",
        "Answer.AI 2024, You Can Now Train a 70b Language Model at Home",
    ),
    computed("a weight then takes {4.127} bits, not 4.5", 4 + 8 / 64 + 32 / (64 * 256)),
    published("in blocks of 256", QLORA),
    published(
        "a model of 65B parameters from more than 780 GB below 48 GB",
        QLORA,
    ),
    published(
        "LoRA of rank 4 at the queries and values of GPT-3 took 35 MB, where the model takes 350 "
        "GB",
        "Hu et al. 2021 (LoRA), section 4.2",
    ),
    computed(
        "so there are {207} million in all. At 16 bytes each, their states take {3.3} GB. The base "
        "takes {141.1} GB in 16 bits. The tables have {2.1} billion parameters, so with NF4 it "
        "takes {38.5} GB for the matrices and {4.2} GB for the tables: {42.7} GB",
        TRAINED_70B / 1e6,
        16 * TRAINED_70B / GB,
        2 * PARAMETERS_70B / GB,
        tables(8192) / 1e9,
        MATRICES_70B / GB,
        TABLES_70B / GB,
        (MATRICES_70B + TABLES_70B) / GB,
    ),
    computed(
        "A layer has 16 times (2 * {16,384} + 2 * {9,216} + 3 * {36,864}) parameters",
        2 * 8192,
        8192 + 1024,
        8192 + 28_672,
    ),
    computed(
        "The model has {16.06} GB, of which each device sends 7/8 in each of two gathers and in a "
        "reduce-scatter: {42.2} GB. A frozen base leaves the gathers, {28.1} GB. With codes these "
        "take {10.5} GB",
        2 * PARAMETERS_8B / GB,
        3 * ONCE,
        2 * ONCE,
        2 * 7 / 8 * CODES_8B / GB,
    ),
    computed(
        "An adapter has {84} MB, so a hundred take {8.4} GB beside the base of {16} GB. A hundred "
        "merged models take {1,606} GB",
        2 * TRAINED / 1e6,
        200 * TRAINED / GB,
        2 * PARAMETERS_8B / GB,
        200 * PARAMETERS_8B / GB,
    ),
    computed("so the adapter adds {0.6%}", 100 * TRAINED / (PARAMETERS_8B - tables(4096))),
    asserted("with FSDP (lesson 10) on eight devices. In a step, each device sends {2,752,512}"),
)
