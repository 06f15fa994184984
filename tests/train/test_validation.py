"""Validation: the loss on held-out text is that of one device, and no step notices it."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import pytest

from jaxpar.collectives.leaves import STACKED
from jaxpar.inspector.program import inspect_compiled
from jaxpar.inspector.report import Report
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, loss_fn
from jaxpar.parallel.pipeline import layer_order
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.loop import Trained
from jaxpar.train.manifest import folder_of
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run, StepResult, begin, results
from jaxpar.train.termination import Terminated
from jaxpar.train.text import hold_out, read_library
from jaxpar.train.validation import Validated, Validating, Validation, make_validating
from tests.train.runs import SETTINGS, compile_quickly

TEXT = read_library()[:16_000]
EACH = Validating(1, 0.1)  # 99 examples: 6 batches of 16
WITH_EXPERTS = replace(SETTINGS, experts=4, balance="bias")
ONE = make_recipe("dp=1")
ROOT = Path(__file__).parents[2]


def begun(recipe: Recipe, settings: Settings = SETTINGS, text: Any = TEXT, **options: Any) -> Run:
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        return begin(settings, recipe, mesh, text, seed=3, **options)


def taken(run: Run, steps: int) -> list[Trained]:
    found = list(run.proceed(steps))
    run.close()
    return found


def on_one_device(recipe: Recipe, settings: Settings, params: Any) -> float:
    """The mean loss of the held-out examples, with the layers in their own order."""
    params = jax.tree.map(np.asarray, params)
    if recipe.table:
        places = np.argsort(layer_order(recipe.table, settings.layers))
        params[STACKED] = jax.tree.map(lambda leaf: leaf[places], params[STACKED])
    held_out, t = TEXT[-1600:].astype(np.int32), settings.sequence
    numbers = np.arange(96) * 99 // 96
    loss = jax.jit(loss_fn(settings))
    examples = np.stack([held_out[t * n : t * n + t + 1] for n in numbers])
    return float(loss(params, examples))


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options", "settings"),
    [
        ("pp=2,dp=2,tp=2", {"zero": 1, "microbatches": 4, "schedule": "interleaved"}, SETTINGS),
        ("dp=1", {}, SETTINGS),
        ("dp=8", {"zero": 2, "microbatches": 2}, SETTINGS),
        ("dp=2,fsdp=2,tp=2", {"sequence_parallel": True, "clip": 0.5}, SETTINGS),
        ("fsdp=4", {"gather": "step", "remat": "none", "offload": "host"}, SETTINGS),
        ("dp=2,cp=4", {"zero": 1}, SETTINGS),
        ("fsdp=2,cp=2,tp=2", {"context": "ulysses"}, SETTINGS),
        ("ep=2,dp=2", {}, WITH_EXPERTS),
        ("pp=2,fsdp=2,ep=2", {"microbatches": 2, "zero": 3}, WITH_EXPERTS),
        ("pp=4,dp=2", {"microbatches": 4, "schedule": "zb-h1", "remat": "full"}, SETTINGS),
        ("pp=2,dp=2", {"microbatches": 4, "schedule": "dualpipe-v"}, SETTINGS),
        ("pp=2,fsdp=2,cp=2", {"microbatches": 2, "remat": "segments"}, SETTINGS),
        ("dp=4,tp=2", {"sync_every": 1, "outer": "nesterov"}, SETTINGS),
        ("dp=2,fsdp=2", {"compress": "int8"}, SETTINGS),
    ],
)
def test_each_mix_finds_the_loss_of_one_device(
    mesh: str, options: dict, settings: Settings
) -> None:
    recipe = make_recipe(mesh, **options)
    for step in begun(recipe, settings, validating=EACH).proceed(2):
        assert step.validated
        expected = on_one_device(recipe, settings, step.params)
        assert step.validated.loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=2,tp=2", {"precision": "fp16", "zero": 2}),
        ("pp=2,fsdp=2", {"precision": "fp16", "microbatches": 4}),
        ("fsdp=4", {"precision": "bf16"}),
    ],
)
def test_in_16_bits_the_loss_is_nearly_that_of_one_device(mesh: str, options: dict) -> None:
    recipe = make_recipe(mesh, **options)
    for step in begun(recipe, validating=EACH).proceed(2):
        assert step.validated
        expected = on_one_device(recipe, SETTINGS, step.params)
        assert step.validated.loss == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=1", {}),
        ("dp=2", {"sync_every": 2, "outer": "nesterov"}),
        ("pp=2,dp=2", {"microbatches": 4, "precision": "fp16"}),
    ],
)
def test_steps_have_the_bits_that_they_have_without_validation(mesh: str, options: dict) -> None:
    recipe = make_recipe(mesh, **options)
    validated = taken(begun(recipe, validating=Validating(2)), 4)
    alone = taken(begun(recipe, text=hold_out(TEXT, 0.05)[0]), 4)
    assert [step[:2] for step in validated] == [step[:2] for step in alone]
    assert [step.validated for step in alone] == [None] * len(alone)


@pytest.mark.parametrize(
    ("mesh", "options", "most"),
    [("dp=4", {"zero": 2}, 0.4), ("pp=2,dp=2", {"microbatches": 4, "schedule": "zb-h1"}, 0.4)],
)
def test_what_only_gradients_need_is_left_out(mesh: str, options: dict, most: float) -> None:
    reports: list[Report] = []

    def compiled(lowered: Any, **_: Any) -> Any:
        found = compile_quickly(lowered)
        reports.append(inspect_compiled(lowered, found))
        return found

    recipe = make_recipe(mesh, **options)
    with patch.object(setup, "compile_program", compiled):
        run = begin(
            SETTINGS, recipe, make_mesh(recipe.layout.mesh_sizes), TEXT, seed=3, validating=EACH
        )
    report = reports[-1]
    assert report.flops and run.report.flops
    assert report.flops < most * run.report.flops
    summed = [one for one in report.collectives if one.kind != "permute"]
    assert [(one.kind, one.operand_bytes) for one in summed] == [("all_reduce", 4)]


def test_a_run_is_validated_every_n_steps_and_after_the_last() -> None:
    steps = taken(begun(ONE, validating=Validating(2)), 5)
    assert [step.validated and step.validated.step for step in steps] == [None, 2, None, 4, 5]
    rounds = begun(make_recipe("dp=2", sync_every=2), validating=Validating(4))
    steps = taken(rounds, 6)
    assert [step.validated and step.validated.step for step in steps] == [None, 4, 6]


def test_a_run_that_was_asked_to_end_is_not_validated_before() -> None:
    run = begun(ONE, validating=EACH)
    found = []
    with pytest.raises(Terminated):
        for step in run.proceed(5):
            found.append(step.validated and step.validated.step)
            signal.raise_signal(signal.SIGTERM)
    assert found == [1, None]


def test_a_resumed_run_is_validated_alike_and_has_the_same_split(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path / "run", every=2)
    whole = taken(begun(ONE, validating=EACH, keeping=keeping), 4)
    shutil.rmtree(folder_of(keeping.folder, 4))
    again = replace(keeping, resume=True)
    for other in (replace(EACH, fraction=0.2), None):
        with pytest.raises(ValueError, match=r"holds another run: text of 14400 bytes .* there, "):
            begun(ONE, validating=other, keeping=again)
    rarely = replace(EACH, every=2)
    resumed = taken(begun(ONE, validating=rarely, keeping=again), 4)
    assert [step.validated for step in resumed] == [None, whole[-1].validated]
    assert [step.loss for step in resumed] == [step.loss for step in whole[2:]]


def test_a_held_out_part_too_small_for_a_batch_is_refused_before_anything_compiles() -> None:
    line = r"text, held out by --validation 0\.01: 160 bytes make 9 examples of 16 bytes; a batch"
    with patch.object(jax, "jit", None), pytest.raises(ValueError, match=line):
        begun(ONE, validating=Validating(1, 0.01))


def test_a_loss_is_told_in_three_ways() -> None:
    batches: Any = [SimpleNamespace(loss=2.0), SimpleNamespace(loss=4.0)]
    validation = Validation(5, lambda _, batch: batch.loss, batches)
    assert validation.after(4, None, None, last=False) is None
    assert validation.after(5, None, None, last=False) == Validated(
        5, 3.0, math.exp(3), pytest.approx(3 / math.log(2))
    )
    of_tokens = replace(validation, token_bytes=2.0)
    assert of_tokens.after(7, None, None, last=True) == Validated(
        7, 3.0, math.exp(1.5), pytest.approx(1.5 / math.log(2))
    )
    batches[0].loss = 1e6
    diverged = validation.after(5, None, None, last=False)
    assert diverged and diverged.perplexity == math.inf
    found = results(None, [StepResult(3.0, 1.0, 0.5, validated=diverged), StepResult(3.0, 1.0, 1)])
    assert found["validation"] == [
        {"step": 5, "loss": 500002.0, "perplexity": None, "bits_per_byte": diverged.bits_per_byte}
    ]


@pytest.mark.parametrize(
    ("every", "fraction", "line"),
    [
        (None, 0.1, "--validation 0.1 without --validate-every: it says which part"),
        (
            2,
            0.0,
            "--validation is 0.0; it is the part of the text that is held out; use a number b",
        ),
        (2, 1.0, "--validation is 1.0"),
        (2, math.nan, "--validation is nan"),
        (3, None, "--validate-every 3 with --sync-every 2: a run is validated where devices"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    every: int | None, fraction: float | None, line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        make_validating(make_recipe("dp=2", sync_every=2), every, fraction)


def test_unless_it_is_said_a_twentieth_is_held_out() -> None:
    assert make_validating(ONE, None, None) is None
    assert make_validating(ONE, 3, None) == Validating(3, 0.05)


@pytest.mark.full
def test_two_processes_validate_as_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "text").write_bytes(TEXT.tobytes())
    sizes = "--steps 3 --seed 3 --sequence 16 --layers 4 --d-model 16 --heads 8"
    asked = f"--validate-every 2 --validation 0.1 --data {tmp_path}/folder --json"
    command = f"launch --processes 2 --devices 2 -- train --mesh dp=2,tp=2 {sizes} {asked}"
    launched = subprocess.run(
        [sys.executable, "-m", "jaxpar.cli", *command.split()],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"},  # compiles faster
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    two = json.loads(launched.stdout)["validation"]
    settings = replace(SETTINGS, kv_heads=None)
    one = begun(make_recipe("dp=4"), settings, validating=replace(EACH, every=2))
    expected = [step.validated for step in taken(one, 3) if step.validated]
    assert [found["step"] for found in two] == [2, 3]
    assert [found["loss"] for found in two] == pytest.approx(
        [found.loss for found in expected], rel=1e-5
    )
