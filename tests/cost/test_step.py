"""How long a step takes: terms by hand, many layouts at once, and what must follow from what."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Link
from jaxpar.cost.flops import head_flops, layer_flops, step_flops
from jaxpar.cost.hardware import Accelerator, Cluster, Efficiency, find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.step import layout_step_seconds, peak_flops, step_terms
from jaxpar.cost.terms import total
from jaxpar.layout import Layout

LLAMA = find_model("llama3-8b")
GPT = find_model("gpt3-175b")
H100 = find_cluster("h100")
# Round figures, and all of them reached, so that terms can be computed by hand.
IDEAL = Cluster(
    name="ideal",
    device=Accelerator("ideal", {"bf16": 1e15}, 80e9, 1e12),
    devices_per_node=8,
    inside=Link(0, 100e9),
    between=Link(0, 10e9),
    host=Link(0, 20e9),
    host_bytes=1e12,
    efficiency=Efficiency(
        "ideal", products=1, attention=1, memory=1, links=1, network=1, overlap=1
    ),
)
SCORES = ("scores", "attended")
# What layers of models without dropout compute, with nothing more computed again.
WORK = ("products", "attention", "attention again", "memory traffic")
SIZES = {"batch": 64, "sequence": 4096}


def seconds(layout: Layout, model: Architecture = LLAMA, cluster: Cluster = IDEAL, **how: Any):
    """The terms by name; what is sent twice under one name is added up."""
    by_name: dict[str, Any] = {}
    for term in step_terms(model, layout, cluster, **{**SIZES, **how}):
        by_name[term.name] = by_name.get(term.name, 0) + term.value
    return by_name


def test_by_hand_on_one_device() -> None:
    terms = seconds(Layout(microbatch=2), batch=2)
    products = total(layer_flops(LLAMA, 2, 4096))
    scores = sum(its.value for its in layer_flops(LLAMA, 2, 4096) if its.name in SCORES)
    # What the three products of each matrix write is a third of what they read and write.
    held = 32 * sum(part.count for part in LLAMA.layer_parts(experts=False) if part.split != "none")
    widths = 32 * (4 * 4096 + 2 * 14336 + 2 * (32 + 8) * 128)
    written = 2 * (held + 2 * 4096 * widths) / 1e12
    assert terms["products"] == pytest.approx(
        3 * 32 * (products - scores) / 1e15 + written, rel=1e-3
    )
    assert terms["attention"] == pytest.approx(3 * 32 * scores / 1e15)
    # Two norms and two sums of 4096, queries, keys and values of 48 heads of 128, 14336 gated.
    moved = (2 * 4 + 2 * 6) * 4096 + 4 * 48 * 128 + 6 * 14336
    assert terms["memory traffic"] == pytest.approx(2.5 * 32 * 2 * 4096 * moved / 1e12)
    head = 3 * head_flops(LLAMA, 2, 4096).value / 1e15 + 16 * 2 * 4096 * 128256 / 1e12
    assert terms["head"] == pytest.approx(head)
    assert terms["optimizer"] == pytest.approx(28 * LLAMA.parameters / 1e12)
    # Attention is one kernel, which computes scores again, and keeps them from memory.
    assert terms["attention again"] == pytest.approx(terms["attention"] / 3)
    assert terms["memory traffic again"] == terms["bubble"] == 0
    assert len(terms) == 8


def test_norms_of_several_kernels_by_hand() -> None:
    split = Layout(tp=2, sequence_parallel=True)
    for layout, forward in ((split, 1), (replace(split, remat="full"), 2)):
        apart = seconds(layout, replace(LLAMA, fused_norms=False), batch=1)
        fused = seconds(layout, batch=1)
        more = sum(apart.values()) - sum(fused.values())
        # 36 bytes forward and 92 backward in place of 4 and 1.5 times 4, of two norms a layer.
        moved = forward * (36 - 4) + 92 - 6
        assert more == pytest.approx(32 * 2 * 4096 * 4096 / 2 * moved / 1e12)


def test_full_recomputation_repeats_the_forward_pass_and_selective_attention() -> None:
    full, selective = (seconds(Layout(remat=remat)) for remat in ("full", "selective"))
    assert full["products again"] == pytest.approx(full["products"] / 3)
    assert full["memory traffic again"] == pytest.approx(full["memory traffic"] / 2.5)
    assert selective["attention again"] == pytest.approx(selective["attention"] / 3)
    assert "products again" not in selective
    assert selective["memory traffic again"] == 0
    # Of older programs scores, their shares and masks go through memory once more.
    older = seconds(Layout(remat="selective"), GPT)
    scores = 13 * GPT.heads * 4096 * 64 * 4096 * GPT.layers
    assert older["memory traffic again"] == pytest.approx(scores / 1e12)


def test_half_of_the_products_again() -> None:
    none, alternate = (seconds(Layout(remat=remat)) for remat in ("none", "alternate"))
    matrices = 4096 * (8 * 128 + 14336)  # of keys, and into the MLP beside the gate
    again = 2 * 64 * 4096 * 32 * matrices / 1e15
    assert alternate["products again"] == pytest.approx(again)
    assert alternate["attention again"] == none["attention again"]
    assert alternate["memory traffic again"] == pytest.approx(none["memory traffic"] / 2.5)


def test_fused_attention_takes_the_same_time_with_none_as_with_selective() -> None:
    assert seconds(Layout(remat="none")) == seconds(Layout(remat="selective"))
    none, selective = (seconds(Layout(remat=remat), GPT) for remat in ("none", "selective"))
    assert sum(none.values()) < sum(selective.values())
    assert not any(name.endswith("again") for name in none)


def test_scores_go_through_memory_if_there_is_dropout() -> None:
    def moved(remat: str, *, dropout: bool) -> float:
        terms = seconds(Layout(remat=remat), replace(GPT, dropout=dropout))
        return terms["memory traffic"] * 1e12 / (2.5 * 64 * 4096 * GPT.layers)

    fused = moved("selective", dropout=False)
    scores, masks = GPT.heads * 4096, 2 * GPT.hidden
    for remat in ("none", "selective", "full"):
        assert moved(remat, dropout=False) == pytest.approx(fused)
        assert moved(remat, dropout=True) == pytest.approx(fused + 13 * scores + masks)


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_bubble_of_the_pipeline(chunks: int) -> None:
    terms = seconds(Layout(pp=8, chunks=chunks))
    sent = ("stage outputs", "gradients of stage inputs")
    stage = sum(terms[name] for name in (*WORK, *sent))
    assert terms["bubble"] == pytest.approx(7 / (64 * chunks) * stage)
    # Each chunk's result crosses, of a microbatch of one example, in both directions.
    crossing = 64 * chunks * 4096 * 4096 * 2 / 100e9
    assert terms["stage outputs"] == terms["gradients of stage inputs"] == pytest.approx(crossing)


def test_the_last_stage_has_the_head_and_a_layer_less_if_there_is_one() -> None:
    deep = find_model("llama3-405b")
    even, uneven = (seconds(Layout(pp=16, chunks=8), replace(deep, layers=n)) for n in (128, 126))
    assert even["head"] > 0
    layer = sum(uneven[name] for name in WORK) / 8
    assert uneven["head"] == pytest.approx(max(0, even["head"] - layer))


def test_tensor_parallel_collectives_with_and_without_sequence_parallelism() -> None:
    plain = seconds(Layout(tp=8))
    parallel = seconds(Layout(tp=8, sequence_parallel=True))
    x = 64 * 4096 * 4096 * 2
    assert plain["layer outputs"] == pytest.approx(32 * 2 * x * 2 * 7 / 8 / 100e9)
    both = parallel["layer inputs"] + parallel["layer outputs"]
    assert both == pytest.approx(plain["layer outputs"])
    assert parallel["memory traffic"] < plain["memory traffic"]


def test_few_rows_take_as_long_as_reading_their_matrices() -> None:
    few = seconds(Layout(cp=64, microbatch=1), batch=1)
    assert few["products"] > 2 * seconds(Layout(microbatch=1), batch=1)["products"] / 64
    parameters = LLAMA.parameters - 2 * 128256 * 4096 - 4096
    assert few["products"] >= 3 * 2 * parameters / 1e12


def test_offloaded_states_cross_to_the_host() -> None:
    terms = seconds(Layout(offload="optimizer"))
    assert terms["gradients to host"] == pytest.approx(2 * LLAMA.parameters / 20e9)
    assert terms["parameters from host"] == terms["gradients to host"]
    often = seconds(Layout(offload="all"))["parameters from host"]
    assert often == pytest.approx(2 * 64 * terms["parameters from host"])


LAYOUTS = [
    Layout(dp=8),
    Layout(fsdp=8, zero=3),
    Layout(pp=4, dp=2, tp=8, chunks=2, zero=1, remat="full"),
    Layout(pp=2, dp=4, cp=2, tp=4, sequence_parallel=True, remat="selective"),
    Layout(dp=4, offload="optimizer", zero=2),
    Layout(pp=2, cp=2, chunks=4),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.mesh)
def test_overlap_hides_and_never_adds(layout: Layout) -> None:
    alone, beside = (seconds(layout, cluster=H100, overlap=on) for on in (False, True))
    assert alone.keys() == beside.keys()
    assert all(beside[name] <= alone[name] for name in alone)
    assert sum(beside.values()) < sum(alone.values())
    computed = (*WORK, "head", "optimizer")
    assert all(beside[name] == alone[name] for name in computed)


def test_overlap_hides_no_more_than_there_is_computation() -> None:
    slow = replace(IDEAL, between=Link(0, 1e6))
    alone, beside = (
        seconds(Layout(fsdp=64, zero=3), cluster=slow, overlap=on) for on in (False, True)
    )
    work = sum(alone[name] for name in WORK)
    hidden = sum(alone.values()) - sum(beside.values())
    assert 0 < hidden <= work * (1 + 1e-9)


def test_no_overlap_without_communication() -> None:
    assert seconds(Layout(), overlap=True) == seconds(Layout())


@pytest.mark.parametrize("cluster", ["v100", "a100", "rtx4090", "gb200", "tpu-v5e"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.mesh)
def test_no_step_is_faster_than_its_products(layout: Layout, cluster: str) -> None:
    its = find_cluster(cluster)
    flops = total(step_flops(LLAMA, **SIZES))
    fastest = flops / (layout.devices * peak_flops(its.device) * its.efficiency.products)
    assert sum(seconds(layout, cluster=its, overlap=True).values()) >= fastest


def test_slower_hardware_takes_longer() -> None:
    layout = Layout(pp=2, dp=2, cp=2, tp=8)
    usual = sum(seconds(layout, cluster=H100).values())
    slower = [
        replace(H100, inside=Link(3e-6, 45e9)),
        replace(H100, between=Link(9e-6, 5e9)),
        replace(H100, device=replace(H100.device, memory_bytes_per_second=1e12)),
        replace(H100, device=replace(H100.device, peak_flops={"bf16": 1e14})),
    ]
    assert all(sum(seconds(layout, cluster=its).values()) > usual for its in slower)


def test_a_step_from_a_few_figures() -> None:
    """Forward 4 seconds, backward 8 or 12, sent 1: a microbatch takes 13 or 17."""
    figures = {"pp": 4, "tp": 3, "flops_per_second": 10.0, "tp_seconds": 1.0}
    counts = {"microbatches": 5, "chunks": 2}
    step = partial(layout_step_seconds, 60, 4, **figures, **counts)
    assert step(recompute=False, gradient_seconds=0) == 6.5 * 13
    assert step(recompute=False, gradient_seconds=8) == 6.5 * 13
    assert step(recompute=False, gradient_seconds=11) == 6.5 * 13 + 3
    assert step(recompute=True, gradient_seconds=11) == 6.5 * 17
    with pytest.raises(ValueError, match="gradient_seconds is -1; use 0 or more"):
        step(recompute=False, gradient_seconds=-1)
    with pytest.raises(ValueError, match="chunks is 0; use a number above 0"):
        step(recompute=False, gradient_seconds=0, chunks=0)


def test_a_device_waits_for_a_host_that_launches_each_kernel() -> None:
    reached = replace(IDEAL.efficiency, eager_layer_seconds=5e-3)
    eager = replace(IDEAL, efficiency=reached, eager=True)
    small, large = Layout(tp=8, sequence_parallel=True), Layout(microbatch=8)
    # 64 microbatches of 32 layers: where layers take far less than 5 ms, only the host counts.
    quick = seconds(small, replace(LLAMA, hidden=512, ffn=512, heads=8, kv_heads=8), eager)
    assert sum(quick.values()) == pytest.approx(64 * 32 * 5e-3, rel=0.05)
    again = seconds(replace(small, remat="full"), LLAMA, eager)
    assert again["waiting for the host"] > seconds(small, LLAMA, eager)["waiting for the host"]
    waits = seconds(large, LLAMA, eager)["waiting for the host"]
    assert 0 < waits < 0.01 * sum(seconds(large).values())
    assert "waiting for the host" not in seconds(small)


@pytest.mark.parametrize(
    ("layout", "times"),
    [
        (Layout(remat="full"), 1.5),
        (Layout(cp=2, context="zigzag"), 1.4),
        (Layout(cp=2, context="ulysses"), 1),
        (Layout(fsdp=2, zero=3), 1.4),
    ],
)
def test_what_a_host_launches_more(layout: Layout, times: float) -> None:
    reached = replace(IDEAL.efficiency, eager_layer_seconds=1)
    terms = seconds(layout, LLAMA, replace(IDEAL, efficiency=reached, eager=True), batch=2)
    microbatches = layout.microbatches(2)
    waits = terms["waiting for the host"]
    assert waits == pytest.approx(times * 32 * microbatches, rel=0.1)


def test_hosts_lengthen_the_bubble_too() -> None:
    reached = replace(IDEAL.efficiency, eager_layer_seconds=5e-3)
    eager = replace(IDEAL, efficiency=reached, eager=True)
    staged = Layout(pp=4)
    terms, before = seconds(staged, LLAMA, eager), seconds(staged)
    assert terms["bubble"] - before["bubble"] == pytest.approx(
        3 / 64 * terms["waiting for the host"]
    )


def test_a_message_to_one_device_reaches_as_much_of_a_network_as_of_a_link() -> None:
    part = replace(IDEAL, efficiency=replace(IDEAL.efficiency, links=0.8, network=0.5))
    # Stages of 8 devices are on nodes of their own.
    whole, reached = (
        seconds(Layout(pp=2, tp=8), LLAMA, on)["stage outputs"] for on in (IDEAL, part)
    )
    assert reached == pytest.approx(whole / 0.8)
    whole, reached = (seconds(Layout(dp=2, tp=8), LLAMA, on)["gradients"] for on in (IDEAL, part))
    assert reached == pytest.approx(whole / 0.5)
