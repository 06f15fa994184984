"""`jaxpar train --from` and `jaxpar export`: from a model of Hugging Face to one, and back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxpar.train import setup
from tests.train.runs import compile_quickly

pytest.importorskip("tokenizers")

from safetensors.numpy import load_file

from tests.train import hub
from tests.train.test_tokenizer import saved as save_tokenizer

TEXT = Path(__file__).parents[2] / "LICENSE"
CONFIG = hub.LLAMA | {"vocab_size": 300}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "compile_program", compile_quickly)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = hub.write_folder(tmp_path / "model", CONFIG, hub.random_tensors(CONFIG))
    save_tokenizer(folder / "tokenizer.json", 300)
    return folder


def train(run: Any, *options: str) -> Any:
    few = ["--batch", "4", "--sequence", "16", "--data", str(TEXT), "--json"]
    return run("train", *few, *options)


def test_a_model_is_trained_further_and_written_again(run: Any, model: Path) -> None:
    mesh = ["--mesh", "fsdp=2,tp=2", "--from", "model", "--checkpoint", "run1"]
    first = train(run, *mesh, "--steps", "2")
    assert first.code == 0
    assert train(run, *mesh, "--steps", "3", "--resume").json["checkpoint"]["restored_step"] == 2
    ended = run("export", "run1", "written", "--json")
    assert ended.json["folder"] == "written" and ended.json["notes"] == []
    before, after = (load_file(Path(one) / "model.safetensors") for one in ("model", "written"))
    moved = {name: float(np.abs(before[name] - after[name]).max()) for name in before}
    assert ended.json["parameters"] == sum(one.size for one in after.values())  # without padding
    assert before.keys() == after.keys() and all(0 < size < 0.01 for size in moved.values())
    same = (model / "tokenizer.json").read_bytes()
    assert Path("written", "tokenizer.json").read_bytes() == same
    # What is written is a model to begin with, and so is a run.
    losses = [
        train(run, "--mesh", "dp=2,tp=2", "--steps", "1", "--from", one).json["losses"]
        for one in ("written", "run1")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    options = ["--prompt", "Lic", "--tokens", "5", "--json", "--checkpoint"]
    texts = [run("generate", *options, one).json["tokens"] for one in ("written", "run1")]
    assert texts[0] == texts[1] and len(texts[0]) == 5


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", "--from", "nowhere"], "train: --from nowhere: there is no such folder; give"),
        (["train", "--from", "model", "--layers", "4"], "train: --layers 4 with --from model: the"),
        (
            ["train", "--from", "model", "--mup-base", "8"],
            "train: --mup-base 8 with --from model: the weights say what the decoder is; leave",
        ),
        (
            ["train", "--from", "model", "--mesh", "tp=3"],
            "heads: dim a (size 4) must be divisible by mesh axis tp (size 3)",
        ),
        (["export", "nowhere", "new"], "export: nowhere: there is no such folder; give one that"),
        (["export", "model", "model"], "export: model: it is not empty; give a new folder, or an"),
        (["export", "model", "model/config.json"], "export: model/config.json: "),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(
    run: Any, model: Path, arguments: list[str], line: str
) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err and ended.err.count("\n") == 1


def test_without_the_library_it_says_what_to_install(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "safetensors", None)
    ended = run("generate", "--prompt", "x", "--checkpoint", "model")
    assert ended.code == 2
    assert "safetensors is not installed; run pip install safetensors" in ended.err
