"""Memory of training against published figures, a simulator, and counts stage by stage."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from jaxpar.cost.architecture import Architecture, Experts, Latent, Part
from jaxpar.cost.kept import layer_arrays
from jaxpar.cost.memory import host_memory, microbatches_in_flight, training_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.terms import Term, total
from jaxpar.cost.zero import States, training_states
from jaxpar.layout import Layout
from jaxpar.schedules import make_table
from jaxpar.schedules.simulator import simulate

GIB = 2**30
STATES = ("parameters", "gradients", "optimizer")
MEGATRON = States(2, 4, 12)  # its gradients are in float32


def by_name(terms: list[Term]) -> dict[str, Any]:
    return {term.name: term.value for term in terms}


def gpt(layers: int, hidden: int, heads: int, **others: Any) -> Architecture:
    return Architecture("GPT", layers, hidden, heads, 51200, norm="layer", dropout=True, **others)


# --- activations: Korthikanti et al. 2022

# Layers, hidden, heads, t, p, v, and microbatch of table 3; GiB of figure 1, as digitised in
# calculon-ai/calculon, calculon/llm/validation.py: parameters and optimizer, activations by
# tensor parallelism alone, with sequence parallelism and selective recomputation, too.
FIGURE_1 = {
    "22B": ((48, 6144, 64), (8, 1, 1, 4), (45.5625, 59.25, 9.5625)),
    "175B": ((96, 12288, 96), (8, 8, 3, 1), (45.5625, 66.84375, 12.3515625)),
    "530B": ((105, 20480, 128), (8, 35, 3, 1), (31.640625, 114.0234375, 23.076171875)),
    "1T": ((128, 25600, 160), (8, 64, 1, 1), (32.958984375, 131.25, 26.5625)),
}
# Percent of tensor parallelism alone: sequence parallel, selective, both, full.
FIGURE_7 = {
    "22B": (66.84, 49.42, 16.18, 7.64),
    "175B": (62.04, 56.53, 18.49, 8.71),
    "530B": (58.31, 62.04, 20.27, 9.42),
    "1T": (58.31, 62.04, 20.27, 9.42),
}


@pytest.mark.parametrize("name", FIGURE_1)
def test_figures_1_and_7(name: str) -> None:
    sizes, (t, p, v, b), printed = FIGURE_1[name]
    # Their parameters are those of the layers' matrices.
    model = replace(gpt(*sizes), norm="plain")
    layout = Layout(tp=t, pp=p, chunks=v, microbatch=b)

    def memory(sequence_parallel: bool, remat: str) -> dict[str, Term]:
        way = replace(layout, sequence_parallel=sequence_parallel, remat=remat)
        return {
            term.name: term for term in training_memory(model, way, sequence=2048, each=MEGATRON)
        }

    split, both = memory(False, "none"), memory(True, "selective")
    numbers = split["parameters"].numbers
    of_layers = MEGATRON.total * numbers["layers"] * numbers["layer"]
    activations = split["activations"].value, both["activations"].value
    assert (of_layers / GIB, *(one / GIB for one in activations)) == printed

    ways = ((True, "none"), (False, "selective"), (True, "selective"), (False, "full"))
    percent = [100 * memory(*way)["activations"].value / activations[0] for way in ways]
    assert percent == pytest.approx(FIGURE_7[name], abs=0.2)  # read off a figure


def test_what_is_kept_outside_of_layers() -> None:
    """Section 4.3: embedding's mask sbhp/t; for one stage 4sbh/t(1 + v/h) after the layers."""
    s, b, t, h, vocab = 2048, 4, 8, 6144, 51200
    model, layout = gpt(48, h, 64), Layout(tp=t, microbatch=b, sequence_parallel=True)
    terms = by_name(training_memory(model, layout, sequence=s))
    logits_alone = terms["logits"] / 2  # the other half is their gradient
    expected = s * b * h / t * (1 + 4 * (1 + vocab / h))
    assert terms["outside"] + logits_alone == pytest.approx(expected, rel=1e-12)
    deep = replace(layout, pp=8)
    outside = by_name(training_memory(model, deep, sequence=s))["outside"]
    assert outside == s * b * h * 8 / t


def test_outputs_of_stages_that_are_released() -> None:
    """Appendix B: 2.73 GB of 530B are what they would take, as large as the stages' inputs."""
    model = find_model("mt-nlg-530b")
    layout = Layout(pp=35, remat="full")
    (one,) = layer_arrays(model, layout, sequence=2048, experts=False)
    assert f"{microbatches_in_flight(layout, 0) * one.value / GIB:.2f}" == "2.73"


@pytest.mark.parametrize(
    ("layers", "hidden", "pp", "took"), [(72, 14336, 12, (29, 69)), (80, 14400, 10, (35, 76))]
)
def test_what_more_examples_took(layers: int, hidden: int, pp: int, took: tuple[int, int]) -> None:
    """GB on an A100 with microbatches of 1 and of 8, measured by BigScience before BLOOM.

    bigscience, train/tr11-176B-ml/chronicles-prequel.md; both figures are whole GB.
    """
    model = replace(gpt(layers, hidden, 64), vocab=250880, tied=True, embedding_norm=True)
    one, eight = (Layout(tp=8, pp=pp, dp=4, zero=1, remat="full", microbatch=b) for b in (1, 8))
    less, more = (training_memory(model, way, sequence=2048, batch=2048) for way in (one, eight))
    assert (total(more) - total(less)) / 1e9 == pytest.approx(took[1] - took[0], abs=1)


# --- states


def test_stages_of_deepseek_v3() -> None:
    """Zhang and Su 2025, Memory Analysis on the Training Course of DeepSeek Models: 86 GB.

    That is of stages 1 to 14 of 16, in 16 bits; the first has three layers without experts.
    """
    held = by_name(training_memory(find_model("deepseek-v3"), Layout(pp=16), sequence=1))
    assert round(held["parameters"] / GIB) == 86


MIXED = Experts(8, 2, 24, shared=16, dense_layers=3)
MODELS = [
    Architecture("GQA", 13, 32, 8, 96, kv_heads=2, gated=True, tied=True),
    Architecture("GPT", 8, 32, 4, 64, positions=16, norm="layer", biases="all", dropout=True),
    Architecture("MoE", 13, 32, 8, 64, kv_heads=4, gated=True, experts=MIXED),
    Architecture("MLA", 9, 32, 4, 64, head_size=8, experts=MIXED, latent=Latent(16, 8, 4, 8)),
]


def parts_on(model: Architecture, layout: Layout, stage: int) -> list[Part]:
    """All parts that are on a stage: layer after layer goes to chunk after chunk."""
    last = layout.pp - 1
    per_chunk = math.ceil(model.layers / (layout.pp * layout.chunks))
    homes = [layer // per_chunk % layout.pp for layer in range(model.layers)]
    parts = [
        part
        for layer, home in enumerate(homes)
        for part in model.layer_parts(experts=layer >= model.dense_layers)
        if home == stage
    ]
    for part in model.outer_parts:
        homes = {0 if part.name in ("embedding", "positions", "embedding norm") else last}
        if model.tied and part.name == "embedding":
            homes.add(last)
        parts += [part] * (stage in homes)
    return parts


def states_on(model: Architecture, layout: Layout, each: States, stage: int) -> list[float]:
    """Parameters, gradients and the optimizer's state on a device of a stage."""
    parts = {"tp": layout.tp, "ep": layout.ep * layout.tp, "none": 1}
    parts["kv"] = min(layout.tp, model.key_heads)
    found = []
    for part in parts_on(model, layout, stage):
        n = layout.expert_shards if part.split == "ep" else layout.state_shards
        here = training_states(part.count / parts[part.split], each, n, layout.zero)
        found.append((here.params, here.gradients, here.optimizer))
    return [sum(column) for column in zip(*found, strict=True)]


LAYOUTS = [
    Layout(tp=4),
    Layout(pp=2, tp=2, dp=4, zero=1),
    Layout(pp=4, ep=2, dp=2, zero=2),
    Layout(pp=2, chunks=2, ep=4, tp=2, cp=2, zero=3),
    Layout(pp=3, fsdp=4, dp=2, ep=2, zero=3, remat="full"),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.mesh)
def test_states_of_the_fullest_stage(model: Architecture, layout: Layout) -> None:
    each = States(2, 2, 10**9)  # so large that activations do not matter
    stages = [states_on(model, layout, each, stage) for stage in range(layout.pp)]
    held = by_name(training_memory(model, layout, sequence=1, each=each))
    assert [held[name] for name in STATES] == pytest.approx(max(stages, key=sum), rel=1e-12)

    on_host = replace(layout, offload="optimizer")
    (moved,) = host_memory(model, on_host, each=each)
    assert (moved.name, moved.value) == ("optimizer", held["optimizer"])
    left = by_name(training_memory(model, on_host, sequence=1, each=each))
    assert "optimizer" not in left
    assert [term.name for term in host_memory(model, replace(layout, offload="all"))] == [*STATES]
    assert host_memory(model, layout) == []


def test_every_parameter_is_on_one_stage() -> None:
    for model, layout in itertools.product(MODELS, LAYOUTS):
        held = [part for stage in range(layout.pp) for part in parts_on(model, layout, stage)]
        copied = model.vocab * model.hidden if model.tied and layout.pp > 1 else 0
        assert sum(part.count for part in held) == model.parameters + copied


def test_what_is_whole_for_a_while() -> None:
    """ZeRO holds parameters of two layers and gradients of one in full; tables count as a layer."""
    model = MODELS[1]
    layer = sum(part.count for part in model.layer_parts(experts=False))
    tables = sum(part.count for part in model.outer_parts)
    largest = max(layer, tables)
    for layout, expected in (
        (Layout(dp=4, zero=3), 2 * (layer + largest) + 2 * largest),
        (Layout(dp=4, zero=2), 2 * largest),
        (Layout(dp=4, zero=1), 0),
        (Layout(offload="all"), 2 * (layer + largest) + 2 * largest),
        (Layout(zero=3), 0),
    ):
        held = by_name(training_memory(model, layout, sequence=16))
        assert held.get("gathered", 0) == expected


# --- microbatches in flight


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 2), (4, 8), (4, 3), (8, 16)])
def test_in_flight_by_1f1b(p: int, m: int) -> None:
    layout = Layout(pp=p, dp=2, microbatch=3)
    got = [microbatches_in_flight(layout, stage, batch=6 * m) for stage in range(p)]
    assert got == list(simulate(make_table("1f1b", p, m)).peak_in_flight)
    assert [microbatches_in_flight(layout, stage) for stage in range(p)] == list(range(p, 0, -1))


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (2, 4, 2), (4, 12, 3), (8, 16, 4), (4, 4, 2)])
def test_in_flight_interleaved(p: int, m: int, v: int) -> None:
    layout = Layout(pp=p, chunks=v)
    chunks = [v * microbatches_in_flight(layout, stage, batch=m) for stage in range(p)]
    table = make_table("interleaved", p, m, v)
    assert chunks == list(simulate(table).peak_in_flight)


# --- the fullest stage, and the fullest layer


def test_the_fullest_stage_is_the_one_with_the_logits_if_these_are_large() -> None:
    few_layers = gpt(4, 64, 4)
    layout = Layout(pp=4, microbatch=8)
    held = by_name(training_memory(few_layers, layout, sequence=256))
    assert held["logits"] == 8 * 8 * 256 * 51200
    assert "logits" not in by_name(training_memory(gpt(400, 64, 4), layout, sequence=256))


def test_recomputing_takes_one_layer() -> None:
    model, layout = gpt(8, 64, 4), Layout(microbatch=2, remat="full")
    held = by_name(training_memory(model, layout, sequence=16))
    elements = 2 * 16 * 64
    assert held["activations"] == 8 * 2 * elements
    assert held["recomputed"] == (34 - 2) * elements


def test_where_keys_are_gathered_those_of_all_positions_are_held() -> None:
    model = gpt(8, 64, 4)
    held = by_name(training_memory(model, Layout(cp=4, tp=2, context="gather"), sequence=16))
    assert held["context"] == 2 * 16 * (2 * 64 // 2) * 2  # keys and values, and their gradients
    for layout in (Layout(cp=4, tp=2), Layout(tp=2, context="gather")):
        assert "context" not in by_name(training_memory(model, layout, sequence=16))
