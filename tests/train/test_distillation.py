"""A teacher gives every mesh the loss of one device, and no gradient goes to it."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import nn
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init, logits
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import make_recipe
from jaxpar.train.run import begin
from jaxpar.train.saved import read_saved
from jaxpar.train.text import batches, read_library
from tests.train.runs import (
    BATCH,
    SETTINGS,
    Taken,
    assert_sends_what_was_predicted,
    trained,
)
from tests.train.test_checkpoint import begun, measured

STUDENT = replace(SETTINGS, layers=2)
TEACHER = replace(SETTINGS, layers=4, d_model=32)
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher that has learned a little."""
    found = tmp_path_factory.mktemp("teacher") / "run"
    run = begun(make_recipe("dp=1"), TEACHER, Keeping(found, every=8))
    list(run.proceed(8))
    run.close()
    return found


def taught(folder: Path, mesh: str = "dp=1", student: Settings = STUDENT, **options: Any) -> Taken:
    recipe = make_recipe(mesh, distill=folder, **options)
    return trained(recipe, student, steps=STEPS)


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=4", {"zero": 1, "microbatches": 2}),
        ("dp=2,tp=2", {"sequence_parallel": True}),
        ("fsdp=2,tp=2", {"microbatches": 2}),
        ("fsdp=4", {"gather": "step", "optimizer": "adam8bit"}),
        ("fsdp=4", {"gather": "step", "microbatches": 2}),
        ("cp=2,dp=2", {}),
        ("cp=2,tp=2", {"context": "gather", "remat": "full"}),
        ("cp=2,fsdp=2", {"context": "ulysses"}),
        ("dp=2", {"offload": "host"}),
    ],
)
def test_it_trains_as_one_device(folder: Path, mesh: str, options: dict[str, Any]) -> None:
    one = taught(folder, optimizer=options.get("optimizer", "adamw"))
    many = taught(folder, mesh, **options)
    assert many.losses == pytest.approx(one.losses, rel=1e-5)
    assert many.norms[:3] == pytest.approx(one.norms[:3], rel=1e-5)
    assert_sends_what_was_predicted(many.run.sent)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=2,ep=2", {"microbatches": 2}),
        ("fsdp=2,ep=2,tp=2", {"sequence_parallel": True, "capacity_factor": 4.0}),
    ],
)
def test_a_teacher_may_have_experts(mesh: str, options: dict[str, Any], tmp_path: Path) -> None:
    capacity = options.pop("capacity_factor", None)
    sizes = replace(SETTINGS, layers=2, experts=4, top_k=2)
    keeping = Keeping(tmp_path / "run", every=1)
    run = begun(make_recipe("dp=1"), replace(sizes, capacity_factor=capacity), keeping)
    list(run.proceed(1))
    run.close()
    student = replace(sizes, d_model=32)
    one = taught(keeping.folder, student=student)
    many = taught(keeping.folder, mesh, student, **options)
    # A token between two experts may go to the other one after a step.
    assert many.losses == pytest.approx(one.losses, rel=1e-3)
    assert_sends_what_was_predicted(many.run.sent)


def test_sgd_shows_that_the_scale_is_right(folder: Path) -> None:
    one, many = (
        taught(folder, mesh, optimizer="sgd", distill_weight=1.0, temperature=3.0)
        for mesh in ("dp=1", "dp=2,tp=2")
    )
    # The divergence of two decoders that know little is small beside the logits it is made of.
    assert many.losses == pytest.approx(one.losses, rel=1e-5, abs=1e-6)


def test_the_loss_is_that_of_the_formula(folder: Path) -> None:
    saved = read_saved("test", folder)
    assert saved.settings == TEACHER
    params = init(STUDENT, jax.random.key(3))
    sharding = jax.NamedSharding(make_mesh("dp=1"), jax.P())
    tokens = next(batches(read_library(), sharding, batch=BATCH, sequence=16, seed=3))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    student = logits(STUDENT, params, inputs)
    teacher = logits(TEACHER, jax.tree.map(jnp.asarray, saved.params), inputs)
    hard = nn.cross_entropy(student, targets).mean()
    soft = nn.distillation_loss(student, teacher, temperature=4.0).mean()
    found = taught(folder, distill_weight=0.3, temperature=4.0)
    assert found.losses[0] == pytest.approx(float(0.7 * hard + 0.3 * soft), rel=1e-5)


def test_bf16_fp16_and_compression_go_with_it(folder: Path) -> None:
    one = taught(folder)
    for options in ({"precision": "bf16"}, {"precision": "fp16"}, {"compress": "int8"}):
        assert taught(folder, "dp=2", **options).losses == pytest.approx(one.losses, rel=2e-2)


def test_a_run_that_is_taught_is_resumed_and_validated_without_its_teacher(
    folder: Path, tmp_path: Path
) -> None:
    recipe = make_recipe("dp=2", distill=folder)
    keeping = Keeping(tmp_path / "run", every=4)
    whole = measured(recipe, STUDENT, keeping, end=4)
    resumed = measured(recipe, STUDENT, replace(keeping, resume=True), end=6)
    assert len(whole.losses) == 4 and len(resumed.losses) == 2
    with pytest.raises(ValueError, match=r"distilled from run, 0\.5 at temperature 2 there, None"):
        measured(make_recipe("dp=2"), STUDENT, replace(keeping, resume=True), end=8)


@pytest.mark.parametrize(
    ("mesh", "options", "line"),
    [
        ("pp=2", {"microbatches": 2}, "the last stage of a pipeline"),
        ("dp=2", {"sync_every": 2}, "a round takes the batches"),
        ("dp=2", {"distill_weight": 0.0}, "above 0, at most 1"),
        ("dp=2", {"temperature": 0.0}, "use a number above 0"),
        ("dp=2", {"temperature": 2.0, "distill": None}, "--temperature without --distill"),
        ("dp=2", {"distill_weight": 0.5, "distill": None}, "--distill-weight without --distill"),
    ],
)
def test_what_does_not_go_with_it_is_refused(mesh: str, options: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make_recipe(mesh, **{"distill": Path("run"), **options})


def test_a_teacher_reads_the_same_tokens(folder: Path, tmp_path: Path) -> None:
    start = partial(begin, mesh=make_mesh("dp=1"), text=read_library(), seed=0)
    with pytest.raises(ValueError, match=r"it has a vocabulary of 256, and the student one of 300"):
        start(replace(STUDENT, vocabulary=300), make_recipe("dp=1", distill=folder))
    with pytest.raises(ValueError, match="there is no such folder"):
        start(STUDENT, make_recipe("dp=1", distill=tmp_path / "none"))
    assert np.isfinite(taught(folder).losses).all()


def test_a_teacher_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    """And so is one that has not learned all positions; one without experts teaches over ep."""
    for name, sizes in {"few heads": {"heads": 2}, "short": {"positions": "learned"}}.items():
        run = begun(make_recipe("dp=1"), replace(STUDENT, **sizes), Keeping(tmp_path / name, 1))
        list(run.proceed(1))
        run.close()
    with pytest.raises(ValueError, match="heads: it is split as the student is: Split: heads"):
        taught(tmp_path / "few heads", "tp=4")
    with pytest.raises(ValueError, match=r"learned 16 positions, .* reads 32; use --sequence 16"):
        taught(tmp_path / "short", student=replace(STUDENT, sequence=32))
    many = taught(tmp_path / "few heads", "ep=2", replace(STUDENT, experts=2))
    assert_sends_what_was_predicted(many.run.sent)
