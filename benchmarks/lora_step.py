"""A training step of LoRA adapters beside a frozen base, against the same in eager PyTorch.

Both have four MLPs, whose base has no gradient and no state of the optimizer, and take turns in one
run, with the same numbers, in float32, with AdamW. In PyTorch each layer has arrays of its own; the
first row has that, too. The second one has stacked layers in a loop, as our trainer has them: it
copies each layer's matrices out of the stack, forward and backward.

On a busy host PyTorch's threads wait for each other by spinning, which counts as time of theirs:
measure on a quiet one.
"""

from benchmarks import Row
from benchmarks.sides.our_lora import LAYERS, TOKENS, D, F, R
from benchmarks.train_step import PYTORCH, against

STEP = f"training step of LoRA of rank {R} at {LAYERS} MLPs of {D} by {F}, {TOKENS:,} tokens"
TORCH = ["-m", "benchmarks.sides.torch_lora"]
TARGETS = {"list": "0.9", "scan": "reported"}


def rows() -> list[Row]:
    return [
        row
        for layers, target in TARGETS.items()
        for row in against(
            f"{STEP}, layers in a {layers}",
            ["-m", "benchmarks.sides.our_lora", layers],
            {f"eager {PYTORCH}": (target, TORCH)},
        )
    ]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
