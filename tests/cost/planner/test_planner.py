"""The planner, against loops over single layouts; what it says, draws and refuses."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.candidates import Job, layouts
from jaxpar.cost.planner.fastest import MOST_LARGER, STRATEGIES, explore
from jaxpar.cost.planner.page import page
from jaxpar.cost.planner.plan import RESERVE, Plan, memory_terms, pick, time_terms
from jaxpar.cost.planner.report import GROUPS, heading, spent, strategies, summary, to_dict
from jaxpar.cost.terms import total
from jaxpar.layout import Layout, describe

GPT2, LLAMA = find_model("gpt2"), find_model("llama3-8b")
H100, HOME = find_cluster("h100"), find_cluster("rtx4090")
SMALL = Job(GPT2, H100, 8, 16, 256)
FLAT = {"pp": 1, "cp": 1, "tp": 1}
NODES = Job(LLAMA, H100, 64, 256, 8192)


def plans(job: Job, top: int = 10, **fixed: Any) -> list[Plan]:
    return explore(job, fixed, top=top).plans


def one_by_one(job: Job) -> list[Layout]:
    return [pick(many, row) for many in layouts(job, {}, "none") for row in range(len(many.pp))]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "deepseek-v3"])
def test_many_layouts_at_once_cost_what_each_costs(name: str, overlap: bool) -> None:
    job = replace(SMALL, architecture=find_model(name), devices=32, batch=32)
    draw = np.random.default_rng(0)
    for many in layouts(job, {}, "none"):
        memory = np.broadcast_to(total(memory_terms(job, many)), many.pp.shape)
        seconds = np.broadcast_to(total(time_terms(job, many, overlap)), many.pp.shape)
        for row in draw.integers(len(many.pp), size=3).tolist():
            one = pick(many, row)
            assert total(memory_terms(job, one)) == pytest.approx(memory[row], rel=1e-12)
            assert total(time_terms(job, one, overlap)) == pytest.approx(seconds[row], rel=1e-12)


@pytest.mark.full
def test_the_first_plan_is_the_fastest_of_all() -> None:
    seconds = {layout: total(time_terms(SMALL, layout, False)) for layout in one_by_one(SMALL)}
    best = plans(SMALL)[0]
    assert best.step_seconds == pytest.approx(min(seconds.values()), rel=1e-12)
    assert seconds[best.layout] == best.step_seconds


def test_plans_are_sorted_fit_and_are_the_best_of_their_mesh() -> None:
    found = plans(NODES, top=1000)
    times = [plan.step_seconds for plan in found]
    assert times == sorted(times)
    assert len({plan.layout.mesh for plan in found}) == len(found) > 30
    for plan in found:
        assert plan.memory_bytes <= (1 - RESERVE) * 80e9
        assert plan.microbatches * plan.layout.microbatch * plan.layout.batch_parts == 256
    last = found[-1]
    again = plans(NODES, 10_000, **last.layout.sizes)
    assert next(plan for plan in again if not plan.tight).layout == last.layout


def test_a_search_repeats_itself() -> None:
    first, second = ([plan.layout for plan in plans(NODES)] for _ in range(2))
    assert first == second


def test_of_equally_fast_plans_the_smallest_is_first() -> None:
    found = plans(SMALL, top=10_000, dp=8)
    keys = [(plan.step_seconds, plan.memory_bytes) for plan in found]
    assert keys == sorted(keys)


def test_a_layout_that_is_fixed_is_evaluated() -> None:
    fixed = {"pp": 8, "dp": 24, "tp": 8, "remat": "full", "chunks": 2, "microbatch": 1}
    job = Job(find_model("gpt3-175b"), find_cluster("a100"), 1536, 2304, 2048)
    every = plans(job, **fixed, zero=1, sequence_parallel=False)
    (plan,) = every
    assert plan.layout == Layout(**fixed, zero=1)
    assert plan.microbatches == 96


def test_terms_add_up() -> None:
    plan = plans(NODES)[0]
    assert sum(spent(plan).values()) == pytest.approx(plan.step_seconds)
    assert set(spent(plan)) <= set(GROUPS)
    # The fraction of the peak that the model's operations take; none that is computed again.
    tokens = 256 * 8192
    flops = 6 * (LLAMA.parameters - 128256 * 4096) + 12 * 32 * 4096 * 8192
    assert plan.mfu == pytest.approx(tokens * flops / plan.step_seconds / 64 / 989e12, rel=0.01)


def test_recomputing_is_not_counted_as_use() -> None:
    fixed = {"dp": 8, "tp": 8, "zero": 1, "microbatch": 1, "sequence_parallel": True}
    job = replace(NODES, architecture=find_model("gpt3-13b"), sequence=2048)
    none, some, full = (plans(job, **fixed, remat=it)[0] for it in ("none", "selective", "full"))
    assert none.step_seconds < some.step_seconds < full.step_seconds
    assert none.mfu > some.mfu > full.mfu
    assert none.memory_bytes > some.memory_bytes > full.memory_bytes
    assert spent(full)["recomputation"] > spent(some)["recomputation"]
    assert "recomputation" not in spent(none)


def test_states_go_to_the_host_only_if_nothing_fits_without() -> None:
    assert {plan.layout.offload for plan in plans(NODES, top=1000)} == {"none"}
    home = Job(LLAMA, HOME, 4, 16, 2048)
    assert {plan.layout.offload for plan in plans(home)} == {"optimizer"}
    assert plans(home)[0].host
    assert plans(home, pp=4, offload="optimizer")[0].layout.offload == "optimizer"
    with pytest.raises(ValueError, match="short; use --offload optimizer: mesh pp=4, ZeRO 0"):
        plans(home, pp=4)
    assert plans(replace(home, architecture=find_model("qwen2.5-3b"), devices=1))[0].host
    assert any("on the host" in line for line in summary(explore(home, {})))


def test_a_plan_that_leaves_little_is_taken_if_no_other_fits() -> None:
    leanest = min(plan.memory_bytes for plan in plans(SMALL, top=10_000, dp=8, zero=0))
    device = replace(H100.device, memory_bytes=leanest * 1.05)
    found = explore(
        replace(SMALL, cluster=replace(H100, device=device)), {"zero": 0, "tp": 1, "pp": 1, "cp": 1}
    )
    assert all(plan.tight and plan.memory_bytes <= leanest * 1.05 for plan in found.plans)
    assert any(line.startswith("Tight") for line in summary(found))


def test_a_named_mesh_may_use_all_memory() -> None:
    named = [plan for plan in plans(NODES, 1000, dp=8, tp=8) if plan.fits]
    assert any(plan.tight for plan in named)
    assert all(plan.memory_bytes <= H100.device.memory_bytes for plan in named)
    assert not any(plan.tight for plan in plans(NODES, 1000))


def test_a_named_mesh_has_what_would_be_faster_with_a_little_more_memory() -> None:
    """Llama 3's 405B as published, which needs 82.3 GB by these formulas, behind all that fit."""
    job = Job(find_model("llama3-405b"), H100, 16_384, 2048, 8192)
    found = plans(job, pp=16, dp=128, tp=8)
    fitting = [plan for plan in found if plan.fits]
    larger = found[len(fitting) :]
    assert [plan.layout.remat for plan in larger] == ["none"] * MOST_LARGER
    capacity = H100.device.memory_bytes
    assert all(capacity < plan.memory_bytes <= (1 + RESERVE) * capacity for plan in larger)
    assert all(plan.step_seconds < fitting[0].step_seconds for plan in larger)
    assert [plan.step_seconds for plan in larger] == sorted(plan.step_seconds for plan in larger)
    assert (
        len(plans(job, 2, pp=16, dp=128, tp=8)) == 2 and plans(job, 1, pp=16, dp=128, tp=8)[0].fits
    )
    assert "advice" not in to_dict(larger[0]) and to_dict(larger[0])["fits"] is False


def test_too_little_memory_says_how_many_devices_would_do() -> None:
    cluster = replace(HOME, host_bytes=1e9)
    with pytest.raises(ValueError, match=r"GB short; use --devices \d+, with all") as refused:
        plans(Job(LLAMA, cluster, 1, 16, 2048))
    message = str(refused.value)
    assert re.match(r"plan: llama3-8b on 1 x rtx4090: the layout that needs least", message)
    devices = int(re.findall(r"--devices (\d+)", message)[0])
    assert plans(Job(LLAMA, cluster, devices, 16, 2048))
    with pytest.raises(ValueError, match="short"):
        plans(Job(LLAMA, cluster, devices // 2, 16, 2048))


@pytest.mark.parametrize(
    ("sequence", "fixed", "advice"),
    [
        (8192, {"remat": "none", "microbatch": 4, **FLAT}, "another remat than none: mesh fsdp=64"),
        (8192, {"zero": 0, "dp": 64}, "use another zero than 0: mesh dp=64, ZeRO"),
        (8192, {"microbatch": 64, "tp": 8, "pp": 8}, "use another microbatch than 64: "),
        (
            65_536,
            {"zero": 0, "remat": "none", **FLAT},
            "use another mesh .*: mesh pp=2,cp=4,tp=8, ZeRO 0",
        ),
    ],
    ids=str,
)
def test_too_little_memory_names_the_smallest_change(
    sequence: int, fixed: dict[str, Any], advice: str
) -> None:
    cluster = replace(H100, host_bytes=0)
    with pytest.raises(ValueError, match=advice):
        plans(Job(LLAMA, cluster, 64, 512, sequence), **fixed)


def test_a_mesh_and_remat_that_are_named_are_shown_if_nothing_fits() -> None:
    """Llama 3's 405B: as published, and 2.3 GB more than an H100 has."""
    job = Job(find_model("llama3-405b"), H100, 16_384, 2048, 8192)
    mesh = {"pp": 16, "dp": 128, "tp": 8}
    found = explore(job, {**mesh, "remat": "none"})
    first = found.plans[0]
    assert not any(plan.fits for plan in found.plans)
    assert abs(first.step_seconds / 6.72 - 1) < 0.2
    assert to_dict(first)["fits"] is False and to_dict(first)["advice"] == first.advice
    over = (first.memory_bytes - 80e9) / 1e9
    (said,) = (line for line in summary(found) if line.startswith("It does not fit"))
    assert f"{over:.1f} GB too much" in said and "use another remat than none" in said
    assert "remat full" in first.advice
    least = min(plan.memory_bytes for plan in found.plans)
    assert all(plan.memory_bytes <= 1.1 * least for plan in found.plans)
    # Left open, `remat` is what fits.
    assert {plan.layout.remat for plan in plans(job, **mesh) if plan.fits} == {"full"}


def test_a_host_that_is_too_small_is_named() -> None:
    job = Job(LLAMA, replace(HOME, host_bytes=1e9), 1, 8, 2048)
    found = explore(job, {"dp": 1, "remat": "full", "offload": "all"})
    assert not found.plans[0].fits
    assert any("a device's host's 1.0 GB" in line for line in summary(found))


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gpt2 has positions for 1,024 tokens; use 1,024 or"):
        plans(replace(SMALL, sequence=2048))


def test_what_overlaps_is_a_switch() -> None:
    waiting, hidden = (explore(NODES, {"dp": 64}, overlap=on).plans[0] for on in (False, True))
    assert hidden.step_seconds < waiting.step_seconds
    assert any("--overlap" in line for line in summary(explore(NODES, {"dp": 64})))


def test_strategies_are_compared_in_words() -> None:
    """What people with home machines ask: ZeRO-3 or not, 3D or not, and why."""
    found = explore(Job(find_model("gpt2-xl"), HOME, 4, 64, 1024), {})
    said = {name: words for name, _, words in strategies(found)}
    assert "links" in said["ZeRO-3, FSDP"] and "GB a step from a device" in said["ZeRO-3, FSDP"]
    assert "a node has one device" in said["3D"]
    assert "the first plan" in said.values()
    assert set(said) <= set(STRATEGIES)
    for strategy in found.strategies:
        if strategy.fits:
            assert strategy.plan.step_seconds >= found.plans[0].step_seconds


def test_many_nodes_of_eight_a100s_keep_tensor_parallelism_inside() -> None:
    job = Job(find_model("gpt3-175b"), find_cluster("a100"), 1024, 1536, 2048)
    first = plans(job)[0].layout
    assert first.pp > 1 and 1 < first.tp <= 8
    across = plans(job, tp=16)[0]
    assert across.step_seconds > plans(job)[0].step_seconds
    assert "on 1,024 x a100-80gb (128 nodes of 8)" in heading(across)


def test_json_has_the_names_that_were_promised() -> None:
    plan = plans(NODES)[0]
    data = to_dict(plan)
    promised = ["mesh", "zero", "remat", "microbatches", "chunks", "step_seconds", "mfu"]
    assert set(data) >= {*promised, "memory_bytes", "terms"}
    assert Layout(**data["mesh"]).devices == 64 and min(data["mesh"].values()) > 1
    assert sum(data["terms"]["memory_bytes"].values()) == pytest.approx(data["memory_bytes"])
    assert sum(data["terms"]["step_seconds"].values()) == pytest.approx(data["step_seconds"])
    explained = to_dict(plan, explain=True)["terms"]["memory_bytes"]["parameters"]
    assert explained["formula"] and explained["numbers"] and explained["value"] > 0


def test_the_page_is_whole_safe_and_alone() -> None:
    job = replace(NODES, architecture=replace(LLAMA, name="<script>alert(1)</script>"))
    search = explore(job, {}, top=3)
    found = search.plans
    text, tags = page(search, found), []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

    Tags().feed(text)
    assert "script" not in tags and "link" not in tags
    assert tags.count("svg") == 2 and tags.count("details") == 3
    assert text.isascii() and "url(" not in text
    assert "First of " in text and "ZeRO-3, FSDP" in text and "how it compares" in text
    for plan in found:
        assert describe(plan.layout) in text
        assert all(term.filled.split("*")[0] in text for term in plan.memory)


def test_failures_are_of_all_devices() -> None:
    plan = plans(NODES)[0]
    assert plan.failures.mtbf_seconds == pytest.approx(DEVICE_MTBF_HOURS * 3600 / 64)
