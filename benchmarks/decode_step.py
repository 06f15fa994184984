"""Decoding by our engine, float32, the default decoder: against PyTorch, and pages against slots.

A step generates 8 tokens of each request; all sides generate the same tokens. A prompt is compared
with the forward pass of training over as many tokens.
"""

from benchmarks import Row
from benchmarks.sides import our_decode
from benchmarks.sides.our_requests import OUTPUT, PREFILLED, PROMPT
from benchmarks.train_step import PYTORCH, against

# Requests at once, with the targets.
BATCHES = {1: "1.0", 16: "0.6", 64: "0.6"}
GENERATED = 16
# The tokens of a request when it begins, of a context of so many.
CONTEXT = 1024
BEGUN = {"at full context": (848, "1.8"), "at a quarter of it": (176, "0.8")}
PAGE = 16


def engine(b: int, length: int, context: int, page_size: int = 0) -> list[str]:
    """The command that decodes by our engine, in slots unless a size of pages is given."""
    sizes = b, page_size, length, context
    return ["-m", "benchmarks.sides.our_decode", *map(str, sizes)]


def requests(way: str, *numbers: int) -> list[str]:
    """The command that answers whole requests in one of the ways."""
    return ["-m", "benchmarks.sides.our_requests", way, *map(str, numbers)]


def rows() -> list[Row]:
    return [*_against_torch(), *_pages_against_slots(), *_prefill()]


def _against_torch() -> list[Row]:
    found = []
    for b, target in BATCHES.items():
        rival = f"eager {PYTORCH} with keys and values in place"
        side = ["-m", "benchmarks.sides.torch_decode", str(b)]
        ours = engine(b, our_decode.PROMPT, our_decode.CONTEXT)
        found += against(f"decoding, b = {b}", ours, {rival: (target, side)})
    rival = f"`generate` of transformers in {PYTORCH}"
    side = ["-m", "benchmarks.sides.torch_generate", str(GENERATED)]
    what = f"{GENERATED} requests, {PROMPT} tokens of a prompt and {OUTPUT} generated"
    return found + against(what, requests("alike", GENERATED), {rival: ("0.5", side)})


def _pages_against_slots() -> list[Row]:
    found = []
    for when, (length, target) in BEGUN.items():
        what = f"decoding, b = 16, pages of {PAGE} tokens {when} ({CONTEXT:,})"
        pages, slots = (engine(16, length, CONTEXT, page_size) for page_size in (PAGE, 0))
        found += against(what, pages, {"slots": (target, slots)})
    return found


def _prefill() -> list[Row]:
    rival = {"training's forward pass": ("1.1", requests("forward"))}
    found = []
    for name, page_size in (("slots", 0), (f"pages of {PAGE} tokens", PAGE)):
        what = f"a prompt of {PREFILLED} tokens in one chunk, cache in {name}"
        found += against(what, requests("prefill", page_size), rival, same=0)
    return found


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
