"""Contracts of lesson 19: the planner."""

from __future__ import annotations

from itertools import product

import numpy as np

from jaxpar.contracts import planner_mistakes
from jaxpar.contracts.base import Contract
from jaxpar.cost.goodput import young_daly_interval
from jaxpar.cost.inference import kv_cache_bytes, max_batch_that_fits
from jaxpar.cost.planner import best_plan

Call = tuple[tuple, dict]

# Layers, heads of keys, head size: Llama 3 8B, 70B and 405B, OPT-13B, GPT-3.
_MODELS = ((32, 8, 128), (80, 8, 128), (126, 8, 128), (40, 40, 128), (96, 96, 128))
# Device, parameters in 16 bits, an example of 8192 tokens of Llama 3 8B; of 2048 of OPT-13B.
_SERVERS = (
    (80 * 10**9, 16_060_522_496, 131_072 * 8192),
    (24 * 10**9, 16_060_522_496, 131_072 * 8192),
    (40 * 10**9, 26 * 10**9, 819_200 * 2048),
    (80 * 10**9, 141_107_412_992, 327_680 * 8192),
)
# A checkpoint, and what is between failures: Llama 3's 419 in 54 days; a machine at home; Daly's
# 5 minutes and 24 hours.
_RUNS = ((34.7, 54 * 86_400 / 419), (120, 30 * 86_400), (300, 86_400))


def _any(rng: np.random.Generator, low: float, high: float) -> int:
    """Any whole number between, small ones as often as large ones."""
    return int(low * (high / low) ** rng.random())


def _caches(rng: np.random.Generator) -> list[Call]:
    """A few tokens, a token of published models, any sizes, then what is refused."""

    def call(*sizes: int, each: float = 2) -> Call:
        return sizes, {"element_bytes": each}

    calls = [call(1, 1, 32, 8, 128), call(2, 10, 3, 4, 5, each=1), call(3, 7, 2, 1, 64, each=0.5)]
    calls.append(call(5, 3, 7, 1, 3, each=0.5))  # a key ends within a byte
    calls += [call(1, 1, *model) for model in _MODELS]
    calls += [call(16, 131_072, *model) for model in _MODELS]
    for each in (0.5, 1, 2, 4, 0.5, 2):
        sizes = [_any(rng, 2, high) for high in (300, 200_000, 130, 100, 300)]
        calls.append(call(*sizes, each=each))
    right = tuple(int(n) for n in rng.integers(2, 9, 5))
    for place, wrong in product(range(5), (0, -1)):
        calls.append(call(*right[:place], wrong, *right[place + 1 :]))
    calls.append(call(-right[0], -right[1], *right[2:]))  # a product above 0
    return [*calls, call(*right, each=0), call(*right, each=-2)]


def _batches(rng: np.random.Generator) -> list[Call]:
    """A few bytes, floats, published models, what just fits or not, any, then what is refused."""
    calls = [(100, 30, 20), (100, 40, 20), (100, 101, 20), (100, 100, 20), (100, 0, 101), (0, 0, 1)]
    calls += [(10**6, 3000, 1000), (10**6, 3000, 10), (100.5, 30.25, 20.0)]
    calls += _SERVERS
    for _ in range(4):
        states, each, count = _any(rng, 1e3, 8e10), _any(rng, 1e3, 1e9), int(rng.integers(3, 300))
        full = states + count * each
        rest = int(rng.integers(2, each))
        calls += [(full, states, each), (full - 1, states, each), (full + rest, states, each)]
        calls.append((states - 1 - int(rng.integers(1, states)), states, each))
    refused = [(100, 30, 0), (100, 30, -20), (-100, 30, 20), (100, -30, 20), (-30, -100, 20)]
    return [(call, {}) for call in [*calls, *refused]]


def _intervals(rng: np.random.Generator) -> list[Call]:
    """Round numbers, published runs, any times, then what is refused."""
    calls = [(50, 10_000), (30, 54_000), (0, 3600), (30, 0), (0, 0), (90, 20), *_RUNS]
    for _ in range(8):
        checkpoint = float(rng.uniform(1, 1000))
        calls.append((checkpoint, checkpoint * float(rng.uniform(5, 5000))))
    return [(call, {}) for call in [*calls, (-50, 10_000), (50, -10_000), (-50, -10_000)]]


def _choices(rng: np.random.Generator) -> list[Call]:
    """Few plans, none that fits, none at all, ties, what just fits, then any."""

    def call(device_bytes: float, *plans: tuple[float, float]) -> Call:
        """With (seconds, bytes) of each plan."""
        names = rng.permutation(len(plans)) + 1
        rows = [
            {"mesh": f"pp={name}", "step_seconds": seconds, "memory_bytes": held}
            for name, (seconds, held) in zip(names.tolist(), plans, strict=True)
        ]
        return (rows, device_bytes), {}

    calls = [call(80, (3, 70), (2, 90), (2.5, 60)), call(50, (3, 70), (2, 90))]
    calls += [call(80, (2, 70), (2, 60), (3, 10))]
    calls += [call(80e9), call(80e9, (1.5, 80e9 + 1)), call(80e9, (1.5, 80e9))]
    calls += [
        call(0, (1.5, 1)),
        call(80, (2.001, 10), (2.0009, 20)),
        call(24 * 10**9, (1.5, 10**9), (1.499, 24 * 10**9 + 1)),
        call(80, (2, 90), (4e6, 70), (3e6, 80)),
    ]
    for _ in range(8):
        device_bytes, fastest = _any(rng, 1e9, 2e11), float(rng.uniform(0.1, 100))
        shares = (0.5, 0.4, 0.7, *rng.uniform(0.1, 0.99, 4))  # of the fastest three, and others
        slower = (1, 1, 1, *rng.uniform(1.001, 3, 4).tolist())
        plans = [
            (fastest * more, int(device_bytes * share))
            for more, share in zip(slower, shares, strict=True)
        ]
        tight, near = (fastest * 0.9, device_bytes), (fastest * 0.9999, int(0.96 * device_bytes))
        over = [(fastest * 0.5, int(device_bytes * 1.02)), (fastest * 0.3, 3 * device_bytes)]
        order = rng.permutation(4).tolist()
        mixed = [plans[3], *plans[:3], *over, *(plans[3 + place] for place in order)]
        lists = (mixed, [*mixed[1:], tight], [*mixed, near], over, mixed[::-1], over + plans)
        calls += [call(device_bytes, *chosen) for chosen in lists]
    return calls


def _as_float(*sizes: int, element_bytes: float) -> float:
    """A float, so that an answer may give one or a whole number."""
    return float(kv_cache_bytes(*sizes, element_bytes=element_bytes))


KV_CACHE_BYTES = Contract(
    id="kv_cache_bytes",
    kind="value",
    task="return the bytes of all keys and values: what each token adds, times tokens",
    reference=kv_cache_bytes,
    oracle=_as_float,
    values=_caches,
    mistakes=planner_mistakes.KV_CACHE_BYTES,
    hints=(
        "What does one token leave behind in one layer, for one head? How many such are there?",
        "A key and a value, each of head_size elements, for each head of keys, layer and token.",
        "2 * batch * sequence * layers * kv_heads * head_size * element_bytes; first raise "
        "ValueError where one of them is 0 or below.",
    ),
    minimal="Each key and each value is read again for every later token; nothing else is kept.",
    harder="Write it for layers that look back over a window only, or keep one latent vector.",
)

MAX_BATCH_THAT_FITS = Contract(
    id="max_batch_that_fits",
    kind="value",
    task="return how many examples find room beside the states; 0 if the states alone do not",
    reference=max_batch_that_fits,
    oracle=max_batch_that_fits,
    values=_batches,
    mistakes=planner_mistakes.MAX_BATCH_THAT_FITS,
    hints=(
        "What is left of the device when the states are on it? How often does an example go into "
        "that?",
        "Only whole examples count, and one that fills the memory to its last byte still fits. "
        "If the states need more than there is, what is left is negative: the answer is 0.",
        "max(0, int((device_bytes - state_bytes) // bytes_per_example)), after ValueError for "
        "bytes_per_example <= 0 and for a negative number of the other two.",
    ),
    minimal="One example more would not fit.",
    harder="With kv_cache_bytes: how many people can Llama 3 8B answer on your device, with 2,000 "
    "tokens each? How many with the cache in 8 bits?",
)

YOUNG_DALY_INTERVAL = Contract(
    id="young_daly_interval",
    kind="value",
    task="return the seconds of work between checkpoints that lose least, as Young and Daly do",
    reference=young_daly_interval,
    oracle=young_daly_interval,
    values=_intervals,
    mistakes=planner_mistakes.YOUNG_DALY_INTERVAL,
    hints=(
        "Write down the share of time that is lost, C/t + t/(2M). Where is its slope over t zero?",
        "The slope is -C/t^2 + 1/(2M). Solve for t.",
        "math.sqrt(2 * checkpoint_seconds * mtbf_seconds), after ValueError where one of the two "
        "is negative.",
    ),
    minimal="There the checkpoints cost as much as the work that failures destroy.",
    harder="Daly's complete function has restarts, and failures during checkpoints, too: lesson 19 "
    "prints it. Find its best interval by trying many; when does the square root miss it?",
)

BEST_PLAN = Contract(
    id="best_plan",
    kind="value",
    task="return the dict with least step_seconds of those that fit, or None",
    reference=best_plan,
    oracle=best_plan,
    values=_choices,
    mistakes=planner_mistakes.BEST_PLAN,
    hints=(
        "Two steps: which plans fit at all? And which of these takes least time?",
        "min takes a key, and gives the first of several that are equal. What does it do if there "
        "is nothing to choose from?",
        'min((p for p in plans if p["memory_bytes"] <= device_bytes), key=lambda p: '
        'p["step_seconds"], default=None)',
    ),
    minimal="Memory beyond what is there is no use, and memory left over none either.",
    harder="Of plans within 1% of the fastest, return the one with least memory. Why would you "
    "want that?",
)

CONTRACTS = (KV_CACHE_BYTES, MAX_BATCH_THAT_FITS, YOUNG_DALY_INTERVAL, BEST_PLAN)
