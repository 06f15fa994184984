"""Published figures that the claims of several lessons start from, each with its source."""

GB = 1e9

SCALING_BOOK = 'Austin et al. 2025, How to Scale Your Model, chapter "GPUs"'
LLAMA_3 = "Grattafiori et al. 2024, The Llama 3 Herd of Models"
KORTHIKANTI = "Korthikanti et al. 2022, Reducing Activation Recomputation"

# An H100, in bfloat16 and bytes in a second: its data sheet; NVIDIA, DGX BasePOD, for the cards.
PEAK, NVLINK = 989e12, 450e9
CARD, CARDS = 50e9, 8 * 50e9  # one network card, and those of a node

# Seconds of a ring's step inside a node and between nodes: NVIDIA/nccl, src/graph/tuning.cc, hwLat.
INSIDE, BETWEEN = 1.9e-6, 4e-6

# Parameters, from the sizes in table 3 of Llama 3.
PARAMETERS_8B, PARAMETERS_70B = 8_030_261_248, 70_553_706_496
LAYER_8B = 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) + 2 * 4096
