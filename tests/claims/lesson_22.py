"""The numbers of real clusters in lesson 22."""

from tests.claims.claim import computed, published
from tests.claims.figures import GB, PARAMETERS_8B, PARAMETERS_70B

MEMORY = 3.35e12  # bytes in a second: the data sheet of the H100
NF4 = 4 + 32 / 64
DOUBLE = 4 + 8 / 64 + 32 / (64 * 256)
MOMENTS = 2 * (1 + 4 / 256)
DATA_SHEETS = "data sheets of NVIDIA's A100, H100 and B200, dense; Google Cloud, TPU v5e"

CLAIMS = (
    computed(
        "at {3.35} TB/s, the weights of Llama 3 8B are read in {4.8} ms by an H100 in 16 bits, and "
        "in {1.3} ms in NF4",
        MEMORY / 1e12,
        1e3 * 2 * PARAMETERS_8B / MEMORY,
        1e3 * NF4 / 8 * PARAMETERS_8B / MEMORY,
        source="the H100 reads 3.35 TB/s: its data sheet",
    ),
    published("| A100 | 312 | 624 | - | 1,248 (int4) |", DATA_SHEETS),
    published("| H100 | 989 | 1,979 | 1,979 | - |", DATA_SHEETS),
    published("| B200 | 2,250 | 4,500 | 4,500 | 9,000 (fp4) |", DATA_SHEETS),
    published("| TPU v5e | 197 | 393 | - | - |", DATA_SHEETS),
    published(
        "the B300 does only 319 TOP/s in int8",
        "NVIDIA at Hot Chips 2025, as Tom's Hardware reports it",
    ),
    published(
        "in a model of 6.7 billion parameters, in only 6 of the hidden dimensions",
        "Dettmers et al. 2022 (LLM.int8()), section 1",
    ),
    published(
        "GPTQ took about four GPU hours for 175 billion parameters",
        "Frantar et al. 2022 (GPTQ), abstract",
    ),
    published("It is for 3 and 4 bits that GPTQ was made", "Frantar et al. 2022 (GPTQ), abstract"),
    published(
        "MX formats are built into the B200 and into AMD's MI355X",
        "NVIDIA, Transformer Engine: MXFP8BlockScaling; AMD 2025, Introducing AMD CDNA 4",
    ),
    published(
        "floats of 4 bits in blocks of 16, with scales in e4m3",
        "NVIDIA 2025, Introducing NVFP4 for Efficient and Accurate Low-Precision Inference",
    ),
    published("after the 4,500 of the B200", DATA_SHEETS),
    computed(
        "takes 4 + 8/64 + 32/(64 * 256) = {4.127} bits, and with scales in float32 {4.5} bits. The "
        "difference is {0.373} bits a number, which are {3.29} GB",
        DOUBLE,
        NF4,
        NF4 - DOUBLE,
        (NF4 - DOUBLE) / 8 * PARAMETERS_70B / GB,
    ),
    computed(
        "A parameter takes 2 + 2 + 4 + 8 = {16} bytes, which are {128} GB in all. In 8 bits, both "
        "moments take {2.03} bytes in place of 8, so it is {10.03} bytes a parameter, and {81} GB "
        "in all",
        2 + 2 + 4 + 8,
        16 * PARAMETERS_8B / GB,
        MOMENTS,
        8 + MOMENTS,
        (8 + MOMENTS) * PARAMETERS_8B / GB,
    ),
    published("would fill a GPU of 80 GB", "given"),
    computed(
        "In 16 bits, each GPU reads {17.6} GB, in {5.3} ms. In 4.5 bits it reads {4.96} GB, in "
        "{1.5} ms",
        2 * PARAMETERS_70B / 8 / GB,
        1e3 * 2 * PARAMETERS_70B / 8 / MEMORY,
        NF4 / 8 * PARAMETERS_70B / 8 / GB,
        1e3 * NF4 / 8 * PARAMETERS_70B / 8 / MEMORY,
    ),
)
