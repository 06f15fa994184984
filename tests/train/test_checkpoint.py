"""Checkpoints: a resumed run is the one that was never stopped, and damage never passes unseen."""

import json
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train import checkpoint, setup
from jaxpar.train.checkpoint import Checkpoints, Keeping, make_keeping
from jaxpar.train.manifest import (
    MANIFEST,
    DamagedError,
    folder_of,
    read_manifest,
    steps_in,
    write_manifest,
)
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run, begin
from jaxpar.train.termination import Terminated
from jaxpar.train.text import read_library
from tests.train.runs import SETTINGS, compile_quickly

SMALL = Settings(layers=1, d_model=8, heads=2, sequence=16)
WITH_EXPERTS = replace(SMALL, experts=4, balance="bias", capacity_factor=1.0)
TEXT = read_library()[: 16 * 36 + 1]  # epochs of 36 examples end within batches of 16
SAVED, END = 4, 8
ONE = make_recipe("dp=1")
# The layers are not in their order on the devices, and the state is sharded over dp.
MIX = make_recipe("pp=2,dp=2", schedule="interleaved", microbatches=4, zero=1)


class Measured(NamedTuple):
    """The steps of a run, and the run."""

    losses: list[float]
    norms: list[float]
    run: Run


def begun(recipe: Recipe, settings: Settings, keeping: Keeping | None) -> Run:
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        return begin(settings, recipe, mesh, TEXT, seed=3, keeping=keeping)


def measured(
    recipe: Recipe,
    settings: Settings = SETTINGS,
    keeping: Keeping | None = None,
    *,
    end: int = END,
) -> Measured:
    """A run from its beginning, or from a checkpoint, to its end."""
    run = begun(recipe, settings, keeping)
    steps = list(run.proceed(end))
    run.close()
    return Measured([step.loss for step in steps], [step.gradient_norm for step in steps], run)


def found(folder: Path, recipe: Recipe = ONE, settings: Settings = SMALL, seed: int = 3):
    """What a run that resumes would go on with."""
    keeping = Keeping(folder, resume=True)
    checkpoints = Checkpoints(keeping, settings, recipe, TEXT, seed)
    checkpoints.close()
    return checkpoints


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Measured]:
    """The checkpoints of a small run after steps 4 and 8."""
    folder = tmp_path_factory.mktemp("small") / "run"
    return folder, measured(ONE, SMALL, Keeping(folder, every=SAVED))


@pytest.fixture
def copied(small: tuple[Path, Measured], tmp_path: Path) -> Path:
    """A copy of them, to damage."""
    return Path(shutil.copytree(small[0], tmp_path / "run"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Measured]:
    """The checkpoint of a mix after step 4, and the whole run."""
    folder = tmp_path_factory.mktemp("mixed") / "run"
    whole = measured(MIX, SETTINGS, Keeping(folder, every=SAVED))
    shutil.rmtree(folder_of(folder, END))
    return folder, whole


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        (make_recipe("dp=8", clip=1.0), SMALL),
        (make_recipe("pp=2,fsdp=2,tp=2", precision="fp16", microbatches=4), SETTINGS),
        (make_recipe("ep=2"), WITH_EXPERTS),
        (make_recipe("dp=2", zero=1, precision="bf16", offload="host"), SMALL),
        (make_recipe("dp=2", sync_every=2, outer="nesterov"), SMALL),
        (make_recipe("dp=4", compress="int8"), SMALL),
        (make_recipe("dp=2", sync_every=2, outer="nesterov", compress="int4"), SMALL),
        (make_recipe("dp=2", warmup=2, decay="cosine", steps=END), SMALL),
    ],
    ids=[
        "dp",
        "mix in fp16",
        "experts with biases",
        "offload in bf16",
        "rounds",
        "int8",
        "rounds in int4",
        "a rate that falls",
    ],
)
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(
    recipe: Recipe, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keeping = Keeping(tmp_path / "run", every=SAVED)
    whole = measured(recipe, settings, keeping)
    shutil.rmtree(folder_of(keeping.folder, END))
    resumed = measured(recipe, settings, replace(keeping, resume=True))
    skipped = SAVED // (recipe.sync_every or 1)
    assert resumed.losses == whole.losses[skipped:]
    assert resumed.norms == whole.norms[skipped:]
    assert resumed.run.checkpoints and not resumed.run.checkpoints.notes


def test_a_rate_that_has_not_fallen_may_have_another_end(tmp_path: Path) -> None:
    short, long = (make_recipe("dp=1", decay="wsd", steps=steps) for steps in (END, 2 * END))
    keeping = Keeping(tmp_path / "run", every=SAVED)
    measured(short, SMALL, keeping)
    resuming = replace(keeping, resume=True)
    line = r"wsd over 8 steps there, .*; other --steps can follow a checkpoint of step 7 or before"
    with pytest.raises(ValueError, match=line):
        begun(long, SMALL, resuming)
    shutil.rmtree(folder_of(keeping.folder, END))
    resumed = measured(long, SMALL, resuming, end=2 * END)
    assert resumed.losses == measured(long, SMALL, end=2 * END).losses[SAVED:]
    with pytest.raises(ValueError, match=r"wsd over 16 steps there, .* of step 7 or before"):
        begun(short, SMALL, resuming)


def test_saving_changes_nothing(small: tuple[Path, Measured]) -> None:
    assert measured(ONE, SMALL)[:2] == small[1][:2]


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        ONE,
        make_recipe("fsdp=4,tp=2"),
        make_recipe("dp=8", zero=1),
        make_recipe("pp=4,dp=2", schedule="zb-h1", microbatches=2),
    ],
    ids=["one device", "fsdp and tp", "stage 1", "another schedule"],
)
def test_any_mesh_stage_and_schedule_goes_on(
    recipe: Recipe, mixed: tuple[Path, Measured], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(mixed[0], tmp_path / "run"))
    resumed = measured(recipe, SETTINGS, Keeping(folder, resume=True))
    assert resumed.losses == pytest.approx(mixed[1].losses[SAVED:], rel=1e-5)
    assert resumed.norms == pytest.approx(mixed[1].norms[SAVED:], rel=1e-5)


def test_layers_come_in_the_order_of_the_schedule(
    mixed: tuple[Path, Measured], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(mixed[0], tmp_path / "run"))
    resumed = measured(ONE, SETTINGS, Keeping(folder, resume=True), end=SAVED + 1)
    assert resumed.losses == pytest.approx(mixed[1].losses[SAVED : SAVED + 1], rel=1e-5)


@pytest.mark.full
def test_errors_of_compression_begin_anew_on_other_devices(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path / "run", every=SAVED)
    before = measured(make_recipe("dp=4", compress="int8"), SMALL, keeping, end=SAVED)
    resumed = measured(
        make_recipe("dp=8", compress="int8"), SMALL, replace(keeping, resume=True), end=SAVED + 1
    )
    assert before.run.checkpoints and resumed.run.checkpoints
    (note,) = resumed.run.checkpoints.notes
    assert "begins anew" in note
    assert "int8 on dp=4 with stage 0 before, int8 on dp=8 with stage 0 now" in note
    assert resumed.losses[0] < before.losses[-1] * 1.05


def test_another_batch_goes_on_with_the_next_examples(small: tuple[Path, Measured]) -> None:
    checkpoints = found(small[0], make_recipe("dp=1", batch=8))
    assert (checkpoints.step, checkpoints.examples) == (END, END * 16)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_the_data_position(path: Path) -> None:
    manifest = path.parents[0]
    while not (manifest / MANIFEST).exists():
        manifest = manifest.parent
    text = (manifest / MANIFEST).read_text()
    (manifest / MANIFEST).write_text(text.replace('"examples": 128', '"examples": 136'))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (flip, "has other bytes than were written"),
        (cut, "bytes, not"),
        (Path.unlink, "is missing"),
        (change_the_data_position, "manifest.json was changed after it was written"),
        (lambda path: cut(folder_of(path.parents[4], END) / MANIFEST), "cannot be read"),
    ],
)
def test_the_checkpoint_before_a_damaged_one_is_taken(damage, what: str, copied: Path) -> None:
    newest = folder_of(copied, END)
    damage(max(newest.rglob("ocdbt.process_0/d/*"), key=lambda path: path.stat().st_size))
    checkpoints = found(copied)
    assert checkpoints.step == SAVED
    (note,) = checkpoints.notes
    aside = f"damaged-{newest.name}"
    told = f"checkpoint of step {END} is damaged, and now in {aside}; step {SAVED} is taken: "
    assert told in note
    assert what in note
    assert steps_in(copied) == [SAVED]
    assert (copied / aside).is_dir()
    assert found(copied).notes == []


def test_every_file_is_checked(copied: Path) -> None:
    here = folder_of(copied, END)
    files = [path for path in here.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        before = path.read_bytes()
        flip(path)
        with pytest.raises(DamagedError):
            read_manifest(copied, END)
        path.write_bytes(before)
    read_manifest(copied, END)


@pytest.mark.full
def test_after_damage_the_steps_are_taken_again(small: tuple[Path, Measured], copied: Path) -> None:
    flip(folder_of(copied, END) / MANIFEST)
    resumed = measured(ONE, SMALL, Keeping(copied, resume=True))
    assert resumed.losses == small[1].losses[SAVED:]
    assert steps_in(copied) == [SAVED, END]


def test_a_half_written_checkpoint_is_none(copied: Path) -> None:
    (folder_of(copied, END) / MANIFEST).unlink()
    folder_of(copied, END + 1).mkdir()
    assert (found(copied).step, found(copied).notes) == (SAVED, [])
    assert sorted(path.name for path in copied.glob("*")) == [".lock", "step-00000004"]


def test_folders_of_others_with_our_names_are_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "step-00000100" / "model.safetensors"
    theirs.parent.mkdir()
    theirs.touch()
    with pytest.raises(ValueError, match=r"holds step-00000100/model.safetensors, which no"):
        Checkpoints(Keeping(tmp_path), SMALL, ONE, TEXT, 3)
    assert theirs.exists()


def test_without_a_whole_checkpoint_nothing_is_touched(copied: Path) -> None:
    for step in (SAVED, END):
        cut(folder_of(copied, step) / MANIFEST)
    before = sorted(copied.rglob("*"))
    with pytest.raises(ValueError, match=r"every checkpoint is damaged \(step 8: .*; step 4: .*\)"):
        found(copied)
    assert sorted(copied.rglob("*")) == before


@pytest.mark.parametrize(
    ("recipe", "settings", "seed", "line"),
    [
        (ONE, replace(SMALL, d_model=16), 3, "another run: d_model 8 there, 16 here; use the same"),
        (ONE, SMALL, 4, "seed 3 there, 4 here"),
        (make_recipe("dp=1", optimizer="sgd"), SMALL, 3, r"adamw at .* there, sgd at 0.1 here"),
        (make_recipe("dp=1", precision="bf16"), SMALL, 3, "precision fp32 there, bf16 here"),
        (
            make_recipe("dp=2", sync_every=2), SMALL, 3,
            "rounds None there, of 2 steps on dp=2, then average here",
        ),
    ],
)  # fmt: skip
def test_another_run_is_refused(
    recipe: Recipe, settings: Settings, seed: int, line: str, small: tuple[Path, Measured]
) -> None:
    before = sorted(small[0].rglob("*"))
    with pytest.raises(ValueError, match=line):
        found(small[0], recipe, settings, seed)
    assert sorted(small[0].rglob("*")) == before


def test_a_run_from_before_a_setting_existed_goes_on(copied: Path) -> None:
    """Its manifest does not name the setting, which has its default then."""
    step = steps_in(copied)[-1]
    about = read_manifest(copied, step)
    del about["run"]["began with weights"]
    for name in ("biases", "norm_epsilon", "rope_theta", "rope_scaling", "padding"):
        del about["model"][name]
    write_manifest(copied, step, about)
    assert found(copied, ONE, SMALL, 3).step == step
    with pytest.raises(ValueError, match="another run: biases none there, all here; use the same"):
        found(copied, ONE, replace(SMALL, biases="all"), 3)


def test_another_text_is_refused(small: tuple[Path, Measured]) -> None:
    with pytest.raises(ValueError, match=r"text of 577 bytes \(CRC-32 \w{8}\) there, of 300 bytes"):
        Checkpoints(Keeping(small[0], resume=True), SMALL, ONE, TEXT[:300], 3)


def test_a_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    first = Checkpoints(Keeping(tmp_path), SMALL, ONE, TEXT, 3)
    with pytest.raises(ValueError, match="is in use by another run; wait"):
        Checkpoints(Keeping(tmp_path), SMALL, ONE, TEXT, 3)
    first.close()
    Checkpoints(Keeping(tmp_path), SMALL, ONE, TEXT, 3).close()


def test_every_so_many_steps_and_the_last_are_saved_and_the_newest_are_kept(
    tmp_path: Path,
) -> None:
    run = measured(ONE, SMALL, Keeping(tmp_path / "run", every=3, keep=2), end=10).run
    assert steps_in(tmp_path / "run") == [9, 10]
    assert run.checkpoints
    assert json.loads(json.dumps(run.checkpoints.results())) == {
        "folder": str(tmp_path / "run"),
        "restored_step": None,
        "saved_steps": [3, 6, 9, 10],
        "notes": [],
    }


def test_steps_go_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    go_on = threading.Event()
    write = checkpoint.write_manifest

    def later(*arguments):
        go_on.wait(60)
        write(*arguments)

    folder = tmp_path / "run"
    with patch.object(checkpoint, "write_manifest", later):
        run = begun(ONE, SMALL, Keeping(folder, every=2))
        steps = run.proceed(4)
        taken = [next(steps) for _ in range(2)]
        held = jax.tree.map(np.array, taken[-1].params)
        next(steps)  # its arrays take the memory of those that are saved
        assert steps_in(folder) == []
        go_on.set()
        list(steps)
    run.close()
    assert steps_in(folder) == [2, 4]
    shutil.rmtree(folder_of(folder, 4))
    again = begun(ONE, SMALL, Keeping(folder, resume=True))
    assert again.checkpoints
    params, _ = again.checkpoints.restore(*_first(again))
    again.close()
    jax.tree.map(np.testing.assert_array_equal, params, held)


def _first(run: Run):
    step = next(run.steps)
    return step.params, step.state


def test_sigterm_saves_the_running_step(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run = begun(ONE, SMALL, Keeping(tmp_path / "run", every=100))
    taken = []
    with pytest.raises(Terminated):
        for step in run.proceed(100):
            taken.append(step)
            if len(taken) == 2:
                signal.raise_signal(signal.SIGTERM)
    run.close()
    assert len(taken) == 3
    assert steps_in(tmp_path / "run") == [3]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((None, 5, None, False), "--every without --checkpoint"),
        ((None, None, 5, False), "--keep without --checkpoint"),
        ((None, None, None, True), "--resume without --checkpoint"),
        ((Path("run"), 5, None, False), "--every 5 with --sync-every 2: .* use a multiple of 2"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make_keeping(make_recipe("dp=2", sync_every=2), *options)
