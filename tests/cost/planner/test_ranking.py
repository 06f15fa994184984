"""Sets of measured runs, and how well their layouts are ranked."""

from dataclasses import replace
from statistics import median

import pytest

from jaxpar.cost.planner.published import Run
from jaxpar.cost.planner.ranking import Ranking, ranked_runs, rankings

SETS = {one.title: one for one in rankings()}


def test_the_runs_of_a_set_differ_in_their_layout_alone() -> None:
    assert len(SETS) == 28 and sum(len(one.runs) for one in SETS.values()) == 318
    for title, one in SETS.items():
        same = {(run.architecture.name, run.cluster.name, run.sequence) for run in one.runs}
        assert len(same) == 1, title
        assert "tp alone" in title or len({run.layout.devices for run in one.runs}) == 1, title
        assert all(run.source and not run.must for run in one.runs)


def test_figures_are_those_that_were_printed() -> None:
    """Parameters, tokens in a second, memory, and the utilization that Hagemann et al. print."""
    runs = SETS["Ultra-Scale Playbook, nanotron, 1.3b, 8 devices"].runs
    assert round(runs[0].architecture.parameters / 1e9, 2) == 1.34
    assert runs[0].batch * runs[0].sequence / runs[0].seconds == pytest.approx(321_200)
    assert runs[0].peak_bytes == 50.2 * 2**30
    tensor = SETS["Ultra-Scale Playbook, nanotron, 3.6b, tp alone"].runs
    each = [run.batch * run.sequence / run.seconds / run.layout.devices for run in tensor]
    assert each == pytest.approx([14167.25, 13460.16, 10888.53, 6159.3, 3609.73], rel=1e-4)
    first = SETS["Hagemann et al. 2023, 13B on 32 devices, sequence parallelism, fused norm"].runs[
        0
    ]
    model, tokens = first.architecture, first.batch * first.sequence
    flops = 6 * model.parameters + 12 * model.layers * model.hidden * first.sequence
    peak = first.layout.devices * first.cluster.device.peak_flops["bf16"]
    assert flops * tokens / first.seconds / peak == pytest.approx(0.6966, rel=0.005)


def test_sets_whose_norms_are_several_kernels_are_told_apart() -> None:
    """As one kernel, they would be predicted to be a tenth faster than they were."""
    of = "Hagemann et al. 2023, 65B on 128 devices"
    several, one = SETS[of], SETS[f"{of}, fused norm"]
    assert not any(run.architecture.fused_norms for run in several.runs)
    assert all(run.architecture.fused_norms for run in one.runs)
    fused = [replace(run.architecture, fused_norms=True) for run in several.runs]
    pairs = zip(several.runs, fused, strict=True)
    wrong = Ranking("", tuple(replace(run, architecture=model) for run, model in pairs))
    assert wrong.error > 2 * several.error and wrong.correlation < several.correlation


def of_speeds(*seconds: float) -> Ranking:
    """A set in which the layouts are predicted to be slower and slower."""
    runs = sorted(SETS["Hagemann et al. 2023, 13B on 64 devices"].runs, key=Run.predicted_seconds)
    pairs = zip(runs, seconds, strict=False)
    return Ranking("", tuple(replace(run, seconds=time) for run, time in pairs))


def test_orders_are_compared() -> None:
    same, opposite, last_two = of_speeds(1, 2, 3), of_speeds(3, 2, 1), of_speeds(1, 3, 2)
    assert [one.correlation for one in (same, opposite, last_two)] == pytest.approx([1, -1, 0.5])
    assert [one.loss for one in (same, opposite, last_two)] == pytest.approx([0, 2, 0])


def test_runs_outside_are_the_pipelines_of_nanotron_and_its_sets_of_many_nodes() -> None:
    runs = ranked_runs()
    assert len(runs) == 599
    for run in runs:
        nanotron = "nanotron" in run.title
        sizes = run.layout.pp > 1 or run.layout.devices >= 128
        assert run.outside == (nanotron and sizes), run.title


def test_rankings_do_not_get_worse() -> None:
    assert median(one.correlation for one in SETS.values()) >= 0.9
    assert median(one.loss for one in SETS.values()) == 0
    assert sum(one.loss > 0.1 for one in SETS.values()) <= 2
    assert median(one.error for one in SETS.values()) <= 0.065
