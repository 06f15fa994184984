"""Contracts of lesson 04: costs."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np

from jaxpar.contracts import costs_flops_mistakes, costs_mistakes, costs_time_mistakes
from jaxpar.contracts.base import Contract
from jaxpar.cost.communication import all_reduce_seconds, hierarchical_all_reduce_seconds
from jaxpar.cost.flops import model_flops_utilization, transformer_step_flops
from jaxpar.cost.layout import REMATS
from jaxpar.cost.zero import STAGES, training_state_bytes

Call = tuple[tuple, dict]

# Parameters, devices, stage: table 1 of the ZeRO paper.
_TABLE_1 = tuple(product((75 * 10**8, 128 * 10**9, 10**12), (1, 4, 16, 64, 256, 1024), (1, 2, 3)))
# Batch, sequence, layers, hidden, vocab: 1.7B, 175B, 1T of PTD-P; 22B, 175B of Korthikanti et al.
_MODELS = (
    (512, 2048, 24, 2304, 51200),
    (1536, 2048, 96, 12288, 51200),
    (3072, 2048, 128, 25600, 51200),
    (4, 2048, 48, 6144, 51200),
    (64, 2048, 96, 12288, 51200),
)
# Tokens per second, FLOPs per token, devices, peak: PaLM 540B; 22B in steps of 1.1 s.
_RUNS = (
    (238.3e3, 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048, 6144, 275e12),
    (4 * 2048 / 1.1, 72 * 48 * 6144 * (6144 + 2048 / 6) + 6 * 6144 * 51200, 8, 312e12),
)
_NVLINK, _NDR, _ETHERNET = (2e-6, 450e9), (10e-6, 50e9), (5e-5, 1.25e9)


def _any(rng: np.random.Generator, low: float, high: float) -> float:
    """Any number between, small ones as often as large ones."""
    return float(low * (high / low) ** rng.random())


def _states(rng: np.random.Generator) -> list[Call]:
    """A few parameters, the paper's table, any numbers, then what is refused."""

    def call(parameters: int, devices: int, zero: int, each: tuple = (2, 2, 12)) -> Call:
        param_bytes, grad_bytes, state_bytes = each
        how = {"devices": devices, "zero": zero, "param_bytes": param_bytes}
        return (parameters,), how | {"grad_bytes": grad_bytes, "state_bytes": state_bytes}

    calls = [call(1000, 4, stage) for stage in (1, 2, 3)]
    calls += [call(*row) for row in _TABLE_1]
    for stage in (*STAGES, *STAGES, *STAGES):
        parameters, devices = int(_any(rng, 1e2, 1e12)), int(rng.integers(2, 4000))
        each = (int(rng.integers(1, 5)), int(rng.integers(2, 9)), float(rng.integers(1, 32)) / 2)
        calls.append(call(parameters, devices, stage, each))
    refused = ((1000, 4, 4), (1000, 4, -1), (1000, 0, 1), (1000, -4, 0))
    return [*calls, *(call(*row) for row in refused)]


def _steps(rng: np.random.Generator) -> list[Call]:
    """A small model, published ones, any sizes, then what is refused."""
    small, odd = (1, 4, 2, 8, 16), tuple(int(n) for n in rng.integers(2, 9, 5))
    models = [small, *_MODELS]
    for _ in range(4):
        b, s, layers, h, v = (int(_any(rng, 2, high)) for high in (512, 9000, 100, 9000, 2e5))
        models.append((b, s, layers, h, v))
    calls = [(model, {"remat": remat}) for model in models for remat in REMATS]
    refused = [(odd, {"remat": "half"})]
    for place, size in product(range(5), (0, -1)):
        refused.append(((*odd[:place], size, *odd[place + 1 :]), {"remat": "none"}))
    refused.append(((*odd[:3], -odd[3], -odd[4]), {"remat": "full"}))  # a product above 0
    return [*calls, *refused]


def _by_equation_8(*sizes: int, remat: str) -> float:
    """As Korthikanti et al. print it: selective computes attention's products three times more."""
    flops = float(transformer_step_flops(*sizes, remat=remat))
    batch, sequence, layers, hidden, _ = sizes
    once = 4.0 * batch * sequence**2 * layers * hidden
    return flops + 2 * once if remat == "selective" else flops


def _runs(rng: np.random.Generator) -> list[Call]:
    """A round number, published runs, any run, then what is refused."""
    runs = [(1000, 6 * 10**9, 8, 10**13), *_RUNS, (9000, 10**9, 1, 10**13)]
    for most in (1, 7, 2e4, 2e4, 2e4, 2e4):
        flops, devices, peak = _any(rng, 1e8, 1e13), int(_any(rng, 1, most)), _any(rng, 1e13, 3e15)
        share = float(rng.uniform(0.05, 0.7))
        runs.append((share * devices * peak / flops, flops, devices, peak))
    signs = [tuple(0 if i == place else 1 for i in range(4)) for place in range(4)]
    signs += [tuple(-1 if i == place else 1 for i in range(4)) for place in range(4)]
    signs += [(1, 1, -1, -1), (-1, 1, -1, 1)]  # a share above 0
    refused = [tuple(map(operator.mul, runs[0], of)) for of in signs]
    return [(run, {}) for run in [*runs, *refused]]


def _links(rng: np.random.Generator) -> tuple[float, float]:
    return _any(rng, 1e-6, 1e-4), _any(rng, 1e9, 1e12)


def _all_reduces(rng: np.random.Generator) -> list[Call]:
    """Few bytes and many, on links of all kinds, on one device; then what is refused."""

    def call(num_bytes: float, n: int, link: tuple[float, float]) -> Call:
        return (num_bytes, n), {"latency_seconds": link[0], "bytes_per_second": link[1]}

    calls = [call(1000, 4, (1, 100)), call(1000, 2, (0, 100)), call(1000, 1, (1, 100))]
    calls += [call(4096, 8, _NVLINK), call(2 * 4096 * 65536, 8, _NVLINK), call(1e9, 3, _ETHERNET)]
    calls += [call(1e9, 1, _NDR), call(0, 5, _NDR), call(3 * 10**8, 6, (0.0, 25e9))]
    for _ in range(8):
        calls.append(call(int(_any(rng, 1, 1e11)), int(_any(rng, 2, 5e3)), _links(rng)))
    refused = ((8, 0, (1, 100)), (8, -2, _NDR), (-8, 2, _NDR), (8, 2, (1e-6, 0)))
    refused = (*refused, (8, 2, (-1e-6, 1e9)), (8, 2, (1e-6, -1e9)), (8, 1, (1e-6, 0)))
    return [*calls, *(call(*row) for row in refused)]


def _hierarchies(rng: np.random.Generator) -> list[Call]:
    """Nodes of a data centre, two machines at home, any nodes; then what is refused."""

    def call(num_bytes: float, inner: int, outer: int, *links: tuple[float, float]) -> Call:
        inside, between = links
        sizes = {"inner": inner, "outer": outer}
        return (num_bytes,), sizes | {"inner_link": inside, "outer_link": between}

    fast, slow = (1, 8), (3, 4)
    calls = [call(80, *sizes, fast, slow) for sizes in ((2, 5), (2, 1), (1, 5))]
    calls += [call(10**9, 8, 4, _NVLINK, _NDR), call(4096, 2, 3, (5e-6, 32e9), _ETHERNET)]
    calls += [call(10**9, *sizes, _NVLINK, _NDR) for sizes in ((8, 1), (1, 8), (1, 1), (6, 7))]
    calls += [call(0, 2, 5, fast, slow), call(80, 2, 5, (0, 8), (0, 4))]
    for _ in range(8):
        sizes = int(rng.integers(2, 73)), int(_any(rng, 2, 2000))
        calls.append(call(int(_any(rng, 1, 1e11)), *sizes, _links(rng), _links(rng)))
    sizes = ((0, 5), (2, -1), (2, 0), (-2, 5), (-2, -5))
    refused = [call(-8, 2, 5, fast, slow), *(call(8, *both, fast, slow) for both in sizes)]
    refused += [call(8, 1, 5, (1, 0), slow), call(8, 2, 1, fast, (1, 0))]
    for link in ((-1, 8), (1, -8), (-1, -8)):
        refused += [call(8, 2, 5, link, slow), call(8, 2, 5, fast, link)]
    return [*calls, *refused]


TRAINING_STATE_BYTES = Contract(
    id="training_state_bytes",
    kind="value",
    task="return the bytes of states that one device holds, by figure 1 of the ZeRO paper",
    reference=training_state_bytes,
    oracle=training_state_bytes,
    values=_states,
    mistakes=costs_mistakes.TRAINING_STATE_BYTES,
    hints=(
        "Write down parameters, gradients and optimizer states apart: bytes of one parameter times "
        "parameters. Which of the three is divided by the number of devices, in each stage?",
        "A stage shares what the stage before it shares, and one thing more: with zero >= 1 the "
        "optimizer states are divided, with zero >= 2 the gradients, with zero >= 3 parameters.",
        "parameters * (param_bytes / (devices if zero >= 3 else 1) + ...), after ValueError for "
        "devices < 1 and for zero not in (0, 1, 2, 3).",
    ),
    minimal="What is divided is held once in all. Only what every device must have whole stays.",
    harder="Find the stage that fits into a given memory, and sends least.",
)

TRANSFORMER_STEP_FLOPS = Contract(
    id="transformer_step_flops",
    kind="value",
    task="return the FLOPs of one training step: of all products, forward, backward, and again",
    reference=transformer_step_flops,
    oracle=lambda *sizes, remat: float(transformer_step_flops(*sizes, remat=remat)),
    also_right=(_by_equation_8,),
    values=_steps,
    mistakes=costs_flops_mistakes.TRANSFORMER_STEP_FLOPS,
    hints=(
        "A product of [m, k] by [k, n] takes 2*m*k*n. List those of one layer's forward pass: "
        "queries, keys, values, scores, what they make of the values, the output, two of the MLP.",
        "For each token a layer has 12h^2 elements of matrices, 24h^2 FLOPs. Scores and what they "
        "make of the values take 2*B*s*s*h each. The head takes 2*B*s*h*V, once.",
        "3 * (layers * (24*B*s*h*h + 4*B*s*s*h) + 2*B*s*h*V), and again: for selective "
        "layers * 4*B*s*s*h, for full the forward pass of all layers.",
    ),
    minimal="It is arithmetic on shapes: no other products are in the model.",
    harder="Write it for grouped queries and a gated MLP of any width, and for experts.",
)

MODEL_FLOPS_UTILIZATION = Contract(
    id="model_flops_utilization",
    kind="value",
    task="return the FLOPs that the model takes in a second, as a share of what devices could do",
    reference=model_flops_utilization,
    oracle=model_flops_utilization,
    values=_runs,
    mistakes=costs_mistakes.MODEL_FLOPS_UTILIZATION,
    hints=(
        "Both sides are FLOPs in a second: those that the model took, and those that the devices "
        "could have done.",
        "The model took tokens_per_second * flops_per_token. Each device could have done "
        "peak_flops.",
        "tokens_per_second * flops_per_token / (devices * peak_flops)",
    ),
    minimal="It needs no profile: a clock, and the model's sizes.",
    harder="From a step's seconds and remat, compute HFU: what share of the peak did the devices "
    "really do?",
)

ALL_REDUCE_SECONDS = Contract(
    id="all_reduce_seconds",
    kind="value",
    task="return the seconds of a ring all-reduce: steps, the bytes of each, and the link's time",
    reference=all_reduce_seconds,
    oracle=all_reduce_seconds,
    values=_all_reduces,
    mistakes=costs_time_mistakes.ALL_REDUCE_SECONDS,
    hints=(
        "How many steps has a ring reduce-scatter, and how many an all-gather? How many bytes "
        "does a device send in each?",
        "n - 1 steps for each of the two, and in each step one of n parts: num_bytes / n.",
        "2 * (n - 1) * (latency_seconds + num_bytes / n / bytes_per_second); first raise "
        "ValueError where n < 1, bytes_per_second <= 0, or another number is below 0.",
    ),
    minimal="Each element must travel 2(n - 1) times, and the n devices share that (lesson 03).",
    harder="Write it for a tree. Below how many bytes is it faster, for n of your choice?",
)

HIERARCHICAL_ALL_REDUCE_SECONDS = Contract(
    id="hierarchical_all_reduce_seconds",
    kind="value",
    task="return the seconds of three parts: inside nodes, between them, and inside again",
    reference=hierarchical_all_reduce_seconds,
    oracle=hierarchical_all_reduce_seconds,
    values=_hierarchies,
    mistakes=costs_time_mistakes.HIERARCHICAL_ALL_REDUCE_SECONDS,
    hints=(
        "After the reduce-scatter inside its node, how many bytes does a device hold? That is what "
        "its all-reduce between nodes is of.",
        "A reduce-scatter and an all-gather inside a node take together what an all-reduce takes "
        "there. Between nodes there is an all-reduce of num_bytes / inner, on `outer` devices.",
        "Write a ring's 2 * (n - 1) * (latency + size / n / bandwidth) as a function; add it up "
        "for (num_bytes, inner, inner_link) and (num_bytes / inner, outer, outer_link).",
    ),
    minimal="What crosses the slow links is the least that can, shared by all devices of a node.",
    harder="A node's devices share one network card. What do its bytes per second become for each, "
    "and where does a hierarchy still gain?",
)

CONTRACTS = (
    TRAINING_STATE_BYTES,
    TRANSFORMER_STEP_FLOPS,
    MODEL_FLOPS_UTILIZATION,
    ALL_REDUCE_SECONDS,
    HIERARCHICAL_ALL_REDUCE_SECONDS,
)
