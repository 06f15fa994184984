"""A small run as a whole: the same losses on every mesh, and its reported results."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train.launch import FOLLOWS
from jaxpar.train.recipe import make_recipe
from jaxpar.train.run import Run, StepResult, begin, results, start
from jaxpar.train.text import read_library

SETTINGS = Settings(layers=1, d_model=16, heads=2, sequence=16)
STEPS = 6
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs() -> dict[int, tuple[Run, list[StepResult]]]:
    """Steps of a run on one device, and on eight."""
    text, found = read_library(), {}
    for devices in (1, 8):
        recipe = make_recipe(f"dp={devices}", batch=8)
        run = begin(SETTINGS, recipe, make_mesh(recipe.layout.mesh_sizes), text, seed=3)
        taken = [StepResult(*step[:3]) for step in itertools.islice(run.steps, STEPS)]
        found[devices] = run, taken
    return found


def test_one_device_and_eight_give_the_same_losses(runs) -> None:
    one, eight = ([step.loss for step in runs[devices][1]] for devices in (1, 8))
    assert one == pytest.approx(eight, rel=1e-5)
    assert one[0] == pytest.approx(math.log(256), rel=0.05)
    assert one[-1] < one[0] - 0.02


@pytest.mark.full
def test_two_processes_give_the_losses_and_the_report_of_one(runs) -> None:
    mesh = "--processes 2 --devices 4 -- train --mesh dp=8 --json"
    sizes = f"--steps {STEPS} --seed 3 --batch 8 --sequence 16 --layers 1 --d-model 16 --heads 2"
    launched = subprocess.run(
        [sys.executable, "-m", "jaxpar.cli", "launch", *mesh.split(), *sizes.split()],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"},  # compiles faster
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    two = json.loads(launched.stdout)
    one = json.loads(json.dumps(results(*runs[8])))
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert two["gradient_norms"] == pytest.approx(one["gradient_norms"], rel=1e-5)
    assert two["collectives"] == one["collectives"]
    assert two["memory"]["arguments_bytes"] == one["memory"]["arguments_bytes"]


def test_the_results_are_plain_data_per_device(runs) -> None:
    run, taken = runs[8]
    found = json.loads(json.dumps(results(run, taken), allow_nan=False))
    assert list(found) == [
        "losses", "gradient_norms", "largest_loads", "dropped", "skipped_steps", "validation",
        "step_seconds", "tokens_per_second", "mfu", "memory", "bytes_by_axis", "collectives",
        "moved", "profile", "profile_parts", "checkpoint",
    ]  # fmt: skip
    columns = ("losses", "gradient_norms", "step_seconds")
    assert [len(found[name]) for name in columns] == [STEPS] * 3
    after_first = (STEPS - 1) * 8 * 16 / sum(found["step_seconds"][1:])
    assert found["tokens_per_second"] == pytest.approx(after_first)
    only = results(run, taken[:1])
    assert only["tokens_per_second"] == 8 * 16 / only["step_seconds"][0]
    gradients_bytes = 4 * SETTINGS.parameters
    batch_bytes, count_bytes = 4 * 17, 4
    assert found["memory"]["arguments_bytes"] == 3 * gradients_bytes + batch_bytes + count_bytes
    assert found["memory"]["temp_bytes"] > 0
    assert {one["kind"] for one in found["collectives"]} == {"all_reduce"}
    assert sum(one["operand_bytes"] for one in found["collectives"]) == gradients_bytes + 4
    (sent,) = found["bytes_by_axis"]
    assert sent["axes"] == ["dp"]
    every = {sent[f"{name}_bytes"] for name in ("predicted", "by_schedule", "at_most")}
    # The gradients, and the loss.
    assert every == {2 * 7 / 8 * (gradients_bytes + 4)}
    assert runs[1][0].report.collectives == ()


def test_a_run_cut_short_has_results_too(runs) -> None:
    assert results(None, []) == {
        "losses": [],
        "gradient_norms": [],
        "largest_loads": [],
        "dropped": [],
        "skipped_steps": [],
        "validation": [],
        "step_seconds": [],
        "tokens_per_second": None,
        "mfu": None,
        "memory": None,
        "bytes_by_axis": [],
        "collectives": [],
        "moved": None,
        "profile": [],
        "profile_parts": [],
        "checkpoint": None,
    }
    run, _ = runs[8]
    assert results(run, [])["tokens_per_second"] is None
    overflown = results(run, [StepResult(math.nan, math.inf, 0.5, math.nan)])
    columns = ("losses", "gradient_norms", "largest_loads")
    assert [overflown[name] for name in columns] == [[None]] * 3


@pytest.mark.parametrize(
    ("mesh", "batch", "line"),
    [
        (
            "dp=8",
            12,
            r"b \(size 12\) must be divisible by mesh axis dp \(size 8\); pad b to 16",
        ),
        ("dp=32", 32, "needs 32 devices; there are 16 .cpu, processes: 1.; use 16 in all, or sim"),
    ],
)
def test_what_cannot_be_split_is_refused_before_anything_compiles(
    mesh: str, batch: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "jit", None)
    with pytest.raises(ValueError, match=line):
        recipe = make_recipe(mesh, batch=batch)
        start(SETTINGS, recipe, None, data=None, seed=0, timeout_seconds=1)


def test_under_launch_the_advice_is_for_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLLOWS, "1")
    recipe = make_recipe("dp=32", batch=32)
    with pytest.raises(ValueError, match=r"there are 16 .* or start others: --proc"):
        start(SETTINGS, recipe, None, data=None, seed=0, timeout_seconds=1)


def test_a_text_too_short_is_refused_before_anything_compiles(tmp_path, monkeypatch) -> None:
    path = tmp_path / "text"
    np.zeros(100, np.uint8).tofile(path)
    monkeypatch.setattr(jax, "jit", None)
    line = f"text: {path}: 100 bytes make 6 examples of 16 bytes; a batch has 8"
    recipe = make_recipe("dp=1", batch=8)
    with pytest.raises(ValueError, match=re.escape(line)):
        start(SETTINGS, recipe, None, data=path, seed=0, timeout_seconds=1)
