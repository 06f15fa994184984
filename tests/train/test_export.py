"""The command that runs a plan: `jaxpar train` takes it as it is printed, and runs that layout."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jaxpar import cli
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner import Job, explore
from jaxpar.cost.planner.plan import Plan
from jaxpar.model import Settings
from jaxpar.train import run as training
from jaxpar.train.export import context_note, model_note, train_command
from jaxpar.train.recipe import Recipe

ROOT = Path(__file__).parents[2]
TINY = replace(Settings(layers=4, d_model=32, heads=4, sequence=16).architecture, name="tiny")


def first_plan(model: Architecture, devices: int, batch: int, **fixed: Any) -> Plan:
    sequence = min(2048, model.positions or 2048) if model is not TINY else 16
    job = Job(model, find_cluster("h100"), devices, batch, sequence)
    return explore(job, fixed).plans[0]


def parsed(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Settings, Recipe]:
    """What `jaxpar train` would begin."""
    begun: list[Any] = []

    def start(settings: Settings, recipe: Recipe, *_: Any, **__: Any) -> None:
        begun.extend((settings, recipe))
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "start", start)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit):
        cli.main()
    settings, recipe = begun
    return settings, recipe


@pytest.mark.parametrize(
    ("model", "devices", "batch", "fixed"),
    [
        ("llama3-8b", 64, 256, {}),
        ("llama3-8b", 64, 256, {"zero": 3, "remat": "full"}),
        ("llama3-8b", 8, 64, {"fsdp": 8, "zero": 2}),
        ("llama3-8b", 64, 256, {"pp": 4, "tp": 4, "chunks": 4}),
        ("llama3-70b", 256, 256, {}),
        ("gpt3-175b", 1024, 1536, {"pp": 8, "dp": 16, "tp": 8, "chunks": 3}),
        ("gpt3-175b", 512, 512, {"pp": 8, "fsdp": 8, "tp": 8, "zero": 3, "remat": "selective"}),
        ("gpt2-xl", 8, 64, {"dp": 8, "zero": 1, "offload": "optimizer"}),
        ("llama3-8b", 64, 64, {"fsdp": 16, "cp": 4, "zero": 3}),
    ],
)
def test_train_takes_the_command_and_makes_the_layout(
    model: str, devices: int, batch: int, fixed: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(find_model(model), devices, batch, **fixed)
    settings, recipe = parsed(train_command(plan), monkeypatch)
    wanted = plan.layout
    if wanted.remat == "none" and plan.job.architecture.fused_attention:
        wanted = replace(wanted, remat="selective")
    if wanted.pp > 1 and wanted.cp > 1:
        wanted = replace(wanted, context="gather")
    assert recipe.layout == wanted
    assert (recipe.batch, recipe.gather) == (batch, "use")
    assert recipe.microbatches == plan.microbatches
    assert (settings.layers, settings.d_model) == (
        find_model(model).layers,
        find_model(model).hidden,
    )


def test_beside_a_pipeline_the_command_gathers_which_sends_as_much() -> None:
    plan = first_plan(find_model("llama3-8b"), 64, 64, pp=4, cp=2, dp=8)
    assert plan.layout.context == "zigzag"
    assert "--context gather" in train_command(plan)
    assert context_note(plan).startswith("The plan counts zigzag, which `train` cannot run beside")
    gathers = replace(plan, layout=replace(plan.layout, context="gather"))
    assert gathers.sent_bytes == plan.sent_bytes
    assert context_note(gathers) == ""


@pytest.mark.full
def test_a_command_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = first_plan(TINY, 16, 16, pp=2, fsdp=2, dp=2, tp=2, zero=3, remat="full")
    command = f"{train_command(plan)} --steps 2 --json"
    assert model_note(plan) == ""
    ended = subprocess.run(
        [sys.executable, "-m", "jaxpar.cli", *shlex.split(command)[1:]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = json.loads(ended.stdout)
    assert len(result["losses"]) == 2
    for one in result["bytes_by_axis"]:
        assert one["predicted_bytes"] == one["by_schedule_bytes"]


def test_a_model_with_experts_trains_with_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = first_plan(find_model("mixtral-8x7b"), 64, 256, ep=8)
    settings, recipe = parsed(train_command(plan), monkeypatch)
    assert (settings.experts, settings.top_k, settings.capacity_factor) == (8, 2, 1.0)
    assert recipe.layout.ep == 8
    assert "the width, the query heads and the numbers of experts of mixtral" in model_note(plan)


def test_what_differs_from_the_model_is_told() -> None:
    note = model_note(first_plan(find_model("llama3-8b"), 8, 64))
    assert note.startswith("The decoder has the layers, the width and the query heads of llama3-8b")
    assert "6,428,037,120 parameters, not 8,030,261,248" in note


@pytest.mark.parametrize(
    ("model", "devices", "fixed", "line"),
    [
        (
            find_model("llama3-8b"),
            8,
            {"pp": 4, "dp": 2, "zero": 2},
            "train: --zero 2 with --mesh pp",
        ),
        (find_model("llama3-8b"), 8, {"dp": 8, "offload": "all"}, "train: --offload is 'all'; use"),
        (replace(TINY, layers=3), 2, {"pp": 2}, "3 layers"),
        (replace(TINY, dropout=True), 2, {"fsdp": 2, "remat": "none"}, "train: --remat none with"),
    ],
)
def test_what_train_cannot_run_is_refused(
    model: Architecture, devices: int, fixed: dict, line: str
) -> None:
    with pytest.raises(ValueError, match="plan: --export jaxpar: ") as refused:
        train_command(first_plan(model, devices, 64, **fixed))
    assert line in str(refused.value)
