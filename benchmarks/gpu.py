"""One GPU: a training step, decoding, and attention, in 16 bits, against PyTorch.

The decoder has the sizes of GPT-2's smallest, with our parts. This runs where JAX finds a GPU; then
nothing else may use it.
"""

import os

import jax

from benchmarks import Row
from benchmarks.sides.on_gpu import BATCH, EXAMPLES, HEADS, SETTINGS, SIZE
from benchmarks.train_step import PYTORCH, against
from jaxpar.train.recipe import make_recipe
from jaxpar.train.speed import seconds_at_peak

POSITIONS = 4096


def side(*arguments: str) -> list[str]:
    return ["-m", "benchmarks.sides.on_gpu", *arguments]


def rows() -> list[Row]:
    """None where there is no GPU."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # all sides share its memory
    device = jax.devices()[0]
    if device.platform != "gpu":
        return []
    tokens = BATCH * SETTINGS.sequence
    what = f"training step, {SETTINGS.parameters / 1e6:.0f} M parameters, {tokens:,} tokens"
    at_peak = seconds_at_peak(SETTINGS, make_recipe("dp=1", batch=BATCH), device.device_kind)
    reported = "reported"
    rivals = {
        f"eager {PYTORCH}": (reported, side("torch_train", "eager")),
        f"{PYTORCH} with `torch.compile`": (reported, side("torch_train", "compiled")),
        "ours with `--remat none`": (reported, side("train", "none")),
    }
    at_best = f"{what}: at the peak of the device ({device.device_kind})"
    found = [Row(at_best, reported, f"{at_peak:.3g} s")]
    found += against(what, side("train", "products"), rivals, same=0)
    for b in (1, 16, 64):
        rival = f"eager {PYTORCH} with keys and values in place"
        met = {rival: (reported, side("torch_decode", f"{b}"))}
        found += against(f"8 tokens decoded, b = {b}", side("decode", f"{b}"), met, same=0)
    what = f"10 times attention, both passes, [{EXAMPLES}, {HEADS}, {POSITIONS}, {SIZE}]"
    rivals = {
        f"{PYTORCH} `scaled_dot_product_attention`": (
            reported,
            side("torch_attend", f"{POSITIONS}"),
        ),
        "our tiles": (reported, side("tiles", f"{POSITIONS}")),
    }
    return found + against(what, side("fused", f"{POSITIONS}"), rivals, same=0)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
