"""The clusters that a page offers."""

CLUSTERS = (
    "h100", "h200", "b200", "gb200", "a100-80gb", "a100-40gb", "v100", "rtx4090", "rtx3090",
    "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x",
)  # fmt: skip
