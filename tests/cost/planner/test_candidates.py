"""The candidate layouts, against loops over all sizes."""

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import pytest

from jaxpar.cost.architecture import Architecture, Experts
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.layout import REMATS, check_layout
from jaxpar.cost.planner.candidates import Job, divisors, layouts
from jaxpar.cost.planner.plan import SIZES, pick
from jaxpar.layout import AXES, Layout

SMALL = Architecture("small", 6, 48, 12, 96, kv_heads=4, ffn=96, gated=True)
MIXED = replace(SMALL, experts=Experts(8, 2, 96))
H100 = find_cluster("h100")


def job(architecture: Architecture = SMALL, devices: int = 12) -> Job:
    return Job(architecture, H100, devices, batch=24, sequence=36)


def found(job: Job, fixed: dict[str, Any] | None = None) -> list[Layout]:
    """All layouts of a job, as single layouts instead of arrays."""
    return [
        pick(many, row) for many in layouts(job, fixed or {}, "none") for row in range(len(many.pp))
    ]


def all_sizes(job: Job) -> set[tuple[int, ...]]:
    """The sizes of every layout, by trying all: `SIZES` in order."""
    model, sizes = job.architecture, set()
    experts = model.experts.count if model.experts else 1
    for mesh in product(divisors(job.devices), repeat=len(AXES)):
        pp, dp, fsdp, ep, cp, tp = mesh
        if prod(mesh) != job.devices or job.batch % (dp * fsdp * ep) or job.sequence % cp:
            continue
        if pp > model.layers or 12 % tp or 96 % tp or 8 % tp or experts % ep:
            continue
        if 4 % tp and tp % 4:
            continue
        local = job.batch // (dp * fsdp * ep)
        for microbatch, chunks in product(divisors(local), range(1, model.layers + 1)):
            fullest = -(-model.layers // pp)
            if chunks > 1:
                if pp == 1 or pp * (chunks - 1) >= model.layers or local // microbatch % pp:
                    continue
                if chunks * -(-model.layers // (pp * chunks)) > fullest:
                    continue
            sizes.add((*mesh, chunks, microbatch))
    return sizes


@pytest.mark.parametrize("architecture", [SMALL, MIXED], ids=["dense", "experts"])
@pytest.mark.parametrize("devices", [1, 8, 12, 30])
def test_all_sizes_are_found_and_no_others(architecture: Architecture, devices: int) -> None:
    one = job(architecture, devices=devices)
    sizes = [tuple(layout.sizes.values()) for layout in found(one)]
    chunks = [(layout.chunks, layout.microbatch) for layout in found(one)]
    assert {(*mesh, *rest) for mesh, rest in zip(sizes, chunks, strict=True)} == all_sizes(one)


def test_no_layout_comes_twice_and_each_is_allowed() -> None:
    every = found(job(MIXED))
    assert len(every) == len(set(every)) > 500
    assert {layout.remat for layout in every} == {"none", "full"}
    for layout in every:
        check_layout("test", MIXED, layout, 36)
        assert layout.devices == 12
        assert 24 % (layout.batch_parts * layout.microbatch) == 0


def test_selective_is_tried_where_scores_are_kept_or_if_asked_for() -> None:
    older = job(replace(SMALL, dropout=True))
    assert {layout.remat for layout in found(older)} == set(REMATS)
    assert {layout.remat for layout in found(job(), {"remat": "selective"})} == {"selective"}


def test_gradients_stay_whole_beside_a_pipeline_unless_that_is_asked_for() -> None:
    beside = {(one.zero, one.fsdp > 1) for one in found(job()) if one.pp > 1}
    assert beside == {(0, False), (1, False), (3, True)}
    assert {one.zero for one in found(job(), {"pp": 3, "dp": 4})} == {0, 1}
    for zero in (2, 3):
        asked = found(job(), {"pp": 3, "dp": 4, "zero": zero})
        assert {(one.pp, one.zero) for one in asked} == {(3, zero)}
    alone = {(one.zero, one.fsdp > 1) for one in found(job()) if one.pp == 1}
    assert alone == {(0, False), (1, False), (2, False), (3, True)}


def test_stages_of_zero_shard_something() -> None:
    every = found(job())
    for layout in every:
        assert (layout.fsdp > 1) == (layout.zero == 3)
        assert layout.zero == 0 or layout.state_shards > 1
        assert layout.tp > 1 or not layout.sequence_parallel
    assert {layout.zero for layout in every} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "fixed",
    [
        {"tp": 4},
        {"pp": 3, "dp": 4},
        {"zero": 2, "remat": "full"},
        {"chunks": 2},
        {"microbatch": 2},
        {"sequence_parallel": True},
        {"dp": 12, "zero": 3},
        {"dp": 1, "tp": 4, "zero": 3},
        {"fsdp": 4, "zero": 1},
        {"fsdp": 1, "zero": 3},
        {"tp": 4, "pp": 3, "zero": 2, "remat": "none", "chunks": 2, "microbatch": 8},
    ],
    ids=str,
)
def test_what_is_fixed_is_kept(fixed: dict[str, Any]) -> None:
    every = found(job(), fixed)
    assert every
    for layout, (name, value) in product(every, fixed.items()):
        assert getattr(layout, name) == value


def test_a_fixed_stage_of_zero_is_over_devices_where_there_are_any() -> None:
    assert all(layout.state_shards > 1 for layout in found(job(), {"zero": 1}))
    assert all(layout.fsdp > 1 for layout in found(job(), {"zero": 3}))
    assert all(layout.tp > 1 for layout in found(job(), {"sequence_parallel": True}))
    assert found(job(devices=1), {"zero": 3})


def test_a_named_mesh_leaves_stages_of_zero_open() -> None:
    stages = {layout.zero for layout in found(job(), {"dp": 12})}
    assert stages == {0, 1, 2, 3}


def test_uneven_stages_are_allowed() -> None:
    """As BLOOM's 70 layers on 12 stages, and Llama 3's 126 in 8 chunks on 16."""
    assert {layout.chunks for layout in found(job(devices=4), {"pp": 4})} == {1, 2}
    check_layout("test", replace(SMALL, layers=126), Layout(pp=16, chunks=8), 36)
    with pytest.raises(ValueError, match=r"9 chunks; .* use at most 8 chunks"):
        check_layout("test", replace(SMALL, layers=126), Layout(pp=16, chunks=9), 36)


def test_tensor_parallelism_crosses_nodes_only_if_asked() -> None:
    wide = replace(SMALL, heads=64, kv_heads=64, hidden=128, ffn=128)
    assert max(layout.tp for layout in found(job(wide, devices=32))) == 8
    assert found(job(wide, devices=32), {"tp": 32})


@pytest.mark.parametrize(
    ("devices", "fixed", "message"),
    [
        (12, {"tp": 5}, "tp=5: it must divide heads, 12; use tp=4"),
        (12, {"pp": 12}, "pp=12: small has 6 layers, and each stage needs one; use pp=6"),
        (12, {"cp": 8}, "cp=8: it must divide the sequence, 36; use cp=9"),
        (12, {"ep": 2}, "ep=2: it must divide the experts, of which there are 1; use ep=1"),
        (12, {"dp": 8}, r"mesh dp=8 \(8 devices\) on 12 devices; .* use 8 devices"),
        (9, {"dp": 9}, "batch 24 over 9 devices; .* use a batch of 18 or 27$"),
        (97, {}, "use a batch of 97, or 96 devices"),
        (12, {"microbatch": 5}, "microbatch 5, of the .* it must divide them; use one of 1, 2, 3"),
        (12, {"pp": 2, "chunks": 4}, "chunks 4, for 6 layers"),
        (12, {"chunks": 3, "dp": 12}, "chunks 3, for 6 layers"),
        (12, {"zero": 4}, "zero is 4; use one of 0, 1, 2, 3"),
        (12, {"remat": "some"}, "remat is 'some'; use one of none, selective, alternate, full"),
        (12, {"microbatch": 0}, "microbatch is 0; use 1 or more"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(devices: int, fixed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^plan: .*{message}"):
        found(job(devices=devices), fixed)


def test_check_layout_names_who_asks() -> None:
    for layout, message in (
        (Layout(tp=5), "memory: tp=5"),
        (Layout(chunks=2), "memory: 2 chunks on one stage"),
        (Layout(pp=3, chunks=4), "memory: 3 stages of 4 chunks; .* use at most 2 chunks"),
    ):
        with pytest.raises(ValueError, match=message):
            check_layout("memory", SMALL, layout, 36)


def test_sizes_are_those_of_a_layout() -> None:
    assert set(SIZES) < set(vars(Layout()))
    assert divisors(36) == (1, 2, 3, 4, 6, 9, 12, 18, 36)


@pytest.mark.parametrize("architecture", [SMALL, MIXED], ids=["dense", "experts"])
def test_every_kind_of_context_is_tried_that_positions_and_heads_allow(
    architecture: Architecture,
) -> None:
    tried: dict[tuple[int, int], set[str]] = {}
    for layout in found(job(architecture)):
        tried.setdefault((layout.cp, layout.tp), set()).add(layout.context)
    # 36 positions, 12 heads of queries and 4 of keys.
    assert tried[1, 1] == tried[1, 4] == {"zigzag"}
    assert tried[2, 1] == tried[2, 2] == {"zigzag", "gather", "ulysses"}
    assert tried[3, 4] == {"zigzag", "gather", "ulysses"}  # one head of keys, and three of queries
    assert tried[3, 1] == {"zigzag", "gather"}
    assert tried[4, 1] == {"ring", "ulysses"}
    assert tried[12, 1] == {"ring", "ulysses"}


def test_a_fixed_kind_of_context_is_the_only_one() -> None:
    assert {layout.context for layout in found(job(), {"context": "ring"})} == {"ring"}
    ulysses = found(job(), {"context": "ulysses", "tp": 1})
    assert {layout.cp for layout in ulysses} == {1, 2, 4, 12}
    with pytest.raises(ValueError, match=r"context ulysses with cp in \{3\}: over cp"):
        found(job(), {"context": "ulysses", "cp": 3, "tp": 1})
