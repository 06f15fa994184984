"""A training step of LoRA adapters beside a frozen base, against the same in eager PyTorch.

Both have four MLPs, whose base has no gradient and no state of the optimizer, and take turns in one
run, with the same numbers, in float32, with AdamW.
"""

from benchmarks import Row
from benchmarks.sides.our_lora import LAYERS, TOKENS, D, F, R
from benchmarks.train_step import PYTORCH, against

STEP = f"training step of LoRA of rank {R} at {LAYERS} MLPs of {D} by {F}, {TOKENS:,} tokens"
RIVALS = {f"eager {PYTORCH}": ("0.9", ["-m", "benchmarks.sides.torch_lora"])}


def rows() -> list[Row]:
    return against(STEP, ["-m", "benchmarks.sides.our_lora"], RIVALS)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
