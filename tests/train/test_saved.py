"""What a run has saved is read as it was, whatever the run was like."""

import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.manifest import (
    MANIFEST,
    TOKENIZER,
    folder_of,
    read_manifest,
    strangers_in,
    write_manifest,
)
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import begin
from jaxpar.train.saved import read_saved
from jaxpar.train.text import read_library
from jaxpar.train.tokenizer import read_tokenizer
from tests.train.runs import SETTINGS, compile_quickly
from tests.train.test_tokenizer import saved as save_tokenizer

TEXT = read_library()[:20_000]
SMALL = Settings(layers=1, d_model=8, heads=2, sequence=16)


def trained(folder: Path, recipe: Recipe, settings: Settings, tokenizer: Path | None = None):
    """Trains two steps, saves both, and returns the last parameters."""
    read = read_tokenizer(tokenizer) if tokenizer else None
    settings = replace(settings, vocabulary=read.vocabulary) if read else settings
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        run = begin(
            settings, recipe, mesh, TEXT,
            seed=3, keeping=Keeping(folder, every=1), tokenizer=read,
        )  # fmt: skip
    for _ in run.proceed(2):
        pass
    run.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    trained(folder, make_recipe("dp=1"), SMALL)
    return folder


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "run"))


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("pp=2,dp=2", schedule="interleaved", microbatches=4, zero=1),
        make_recipe("fsdp=2,tp=2", precision="bf16"),
    ],
    ids=["pipeline", "fsdp in bf16"],
)
def test_parameters_are_those_of_the_last_step(recipe: Recipe, tmp_path: Path) -> None:
    """A run that resumes on one device, and takes no step, has the same ones."""
    trained(tmp_path / "run", recipe, SETTINGS)
    found = read_saved("x", tmp_path / "run")
    assert (found.step, found.settings, found.tokenizer) == (2, SETTINGS, None)
    one = make_recipe("dp=1", precision=recipe.precision)
    with patch.object(setup, "compile_program", compile_quickly):
        run = begin(
            SETTINGS, one, make_mesh("dp=1"), TEXT,
            seed=3, keeping=Keeping(tmp_path / "run", resume=True),
        )  # fmt: skip
    expected = run.steps.gi_frame.f_locals["params"]
    jax.tree.map(np.testing.assert_array_equal, found.params, jax.tree.map(np.asarray, expected))
    run.close()
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(found.params)}
    assert dtypes == {"bfloat16" if recipe.precision == "bf16" else "float32"}


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("fsdp=2", precision="bf16", average=0.5, skip_spikes=10.0),
        make_recipe("pp=2", schedule="interleaved", microbatches=4, average=0.5),
    ],
    ids=["fsdp in bf16", "pipeline"],
)
def test_an_average_is_read_in_place_of_the_parameters(recipe: Recipe, tmp_path: Path) -> None:
    """That of two steps, from the parameters that were saved after each."""
    trained(tmp_path / "run", recipe, SETTINGS)
    found = read_saved("x", tmp_path / "run").params
    # Read where the weights in float32 are, or else the parameters.
    with patch("jaxpar.train.saved.AVERAGE", ".master." if recipe.precision == "bf16" else "ms."):
        last = read_saved("x", tmp_path / "run").params
        shutil.rmtree(folder_of(tmp_path / "run", 2))
        first = read_saved("x", tmp_path / "run").params
    for one, two, average in zip(*map(jax.tree.leaves, (first, last, found)), strict=True):
        assert average.dtype == two.dtype
        expected = (one.astype(np.float32) + 2 * two.astype(np.float32)) / 3
        tolerance = 0.01 if recipe.precision == "bf16" else 1e-5
        np.testing.assert_allclose(average.astype(np.float32), expected, rtol=tolerance, atol=1e-3)
        assert np.abs(average.astype(np.float32) - two.astype(np.float32)).max() > 0


def test_the_newest_whole_checkpoint_is_read(copied: Path) -> None:
    assert read_saved("x", copied).step == 2
    file = next((folder_of(copied, 2) / "arrays").rglob("d/*"))
    file.write_bytes(b"other")
    found = read_saved("x", copied)
    assert found.step == 1
    assert found.notes == ("step 2 is damaged; step 1 is taken",)
    (folder_of(copied, 1) / MANIFEST).write_text("{")
    with pytest.raises(ValueError, match=r"^x: every checkpoint in it is damaged \(steps 1, 2\)"):
        read_saved("x", copied)


def test_what_is_no_run_is_refused(tmp_path: Path, copied: Path) -> None:
    with pytest.raises(ValueError, match=r"^x: there is no such folder; give one that `train` has"):
        read_saved("x", tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").write_bytes(b"0")
    with pytest.raises(
        ValueError, match=r"^x: it has no checkpoint of a training run; give a fold"
    ):
        read_saved("x", tmp_path / "other")
    about = read_manifest(copied, 2)
    write_manifest(copied, 2, about | {"run": about["run"] | {"format": 99}})
    with pytest.raises(ValueError, match=r"^x: it was saved in format 99, and this is format 1"):
        read_saved("x", copied)


def test_a_run_keeps_a_copy_of_its_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    file, other = (save_tokenizer(tmp_path / f"{size}.json", size) for size in (300, 310))
    folder = tmp_path / "run"
    trained(folder, make_recipe("dp=1"), SMALL, file)
    assert (folder / TOKENIZER).read_bytes() == file.read_bytes()
    assert strangers_in(folder) == []
    found = read_saved("x", folder)
    assert found.tokenizer and found.tokenizer.made.get_vocab_size() == 300
    assert found.settings.vocabulary == 384
    with pytest.raises(
        ValueError, match=r"^x: it was trained with a tokenizer with CRC-32 \w+, an"
    ):
        read_saved("x", folder, other)
    (folder / TOKENIZER).unlink()
    with pytest.raises(ValueError, match="of which it has no copy; give the file with --tokenizer"):
        read_saved("x", folder)
    assert read_saved("x", folder, file).tokenizer


def test_a_tokenizer_for_bytes_is_refused(copied: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    file = save_tokenizer(tmp_path / "tokenizer.json", 300)
    with pytest.raises(
        ValueError, match=r"^x: it was trained with bytes, .*; leave --tokenizer out"
    ):
        read_saved("x", copied, file)
