"""`jaxpar generate`: what it writes, and what it refuses."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, logits
from jaxpar.serve import writer as writing
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import make_recipe
from jaxpar.train.run import begin
from jaxpar.train.saved import read_saved
from jaxpar.train.text import read_library
from tests.serve.quickly import compile_all_quickly
from tests.train.runs import compile_quickly

SETTINGS = Settings(layers=4, d_model=16, heads=4, sequence=32)
TEXT = read_library()[:5_000]
PROMPT = "def f"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all_quickly(monkeypatch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a pipeline and ZeRO, which is read on other meshes."""
    folder = tmp_path_factory.mktemp("generate") / "run"
    recipe = make_recipe("pp=2,dp=2", schedule="interleaved", microbatches=4, zero=1)
    with patch.object(setup, "compile_program", compile_quickly):
        run = begin(
            SETTINGS, recipe, make_mesh("pp=2,dp=2"), TEXT,
            seed=3, keeping=Keeping(folder),
        )  # fmt: skip
    for _ in run.proceed(4):
        pass
    run.close()
    return folder


def expected(folder: Path, count: int) -> list[int]:
    """The most likely bytes after the prompt, without a cache."""
    params = jax.tree.map(jnp.asarray, read_saved("x", folder).params)
    forward = jax.jit(partial(logits, SETTINGS))
    text = [*PROMPT.encode(), *[0] * count]
    for at in range(len(PROMPT), len(text)):
        text[at] = int(np.argmax(forward(params, jnp.asarray([text]))[0, at - 1]))
    return text[len(PROMPT) :]


def test_it_writes_what_the_model_says(run: Any, saved: Path) -> None:
    options = ["--prompt", PROMPT, "--checkpoint", str(saved), "--tokens", "9"]
    right = expected(saved, 9)
    ended = run("generate", *options, "--json")
    assert ended.code == 0
    assert (ended.json["tokens"], ended.json["ended"]) == (right, "length")
    assert ended.json["text"] == bytes(right).decode("utf-8", "replace")
    assert ended.json["notes"] == [f"{saved}, step 4: {SETTINGS.parameters:,} parameters"]
    faster = run("generate", *options, "--json", "--mesh", "tp=2", "--speculate", f"{saved}:2")
    assert faster.json["tokens"] == right
    assert faster.json["stats"]["accepted"] == 2 + 2 + 1


def test_the_text_comes_after_the_prompt(run: Any, saved: Path) -> None:
    options = ["--prompt", PROMPT, "--checkpoint", str(saved), "--tokens", "40"]
    warm = [*options, "--temperature", "1", "--seed", "4"]
    ended = run("generate", *warm)
    assert ended.code == 0
    assert ended.out.startswith(PROMPT) and ended.out.endswith("\n")
    about, note, summary = ended.err.splitlines()
    assert "parameters" in about
    assert note.startswith("the model was trained on 32 tokens at once, and this text may have 45")
    assert summary.startswith("40 tokens, ")
    assert run("generate", *warm).out == ended.out
    assert run("generate", *options, "--temperature", "1", "--seed", "5").out != ended.out


def test_ctrl_c_ends_with_130(run: Any, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(_: writing.Writer) -> Iterator[str]:
        yield "abc"
        raise KeyboardInterrupt

    monkeypatch.setattr(writing.Writer, "parts", parts)
    ended = run("generate", "--prompt", PROMPT, "--checkpoint", str(saved))
    assert (ended.code, ended.out) == (130, f"{PROMPT}abc")


def test_without_a_checkpoint_it_trains_first(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxpar.serve import trained

    monkeypatch.setattr(trained, "Settings", lambda: SETTINGS)
    (tmp_path / "text.txt").write_bytes(TEXT.tobytes())
    options = ["--data", str(tmp_path / "text.txt"), "--steps", "3", "--tokens", "5"]
    ended = run("generate", "--prompt", PROMPT, *options, "--json")
    assert len(ended.json["tokens"]) == 5
    assert ended.json["notes"][0].startswith("trained 3 steps: ")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--checkpoint", "nowhere"], "generate: --checkpoint nowhere: there is no such folder"),
        (["--checkpoint", "."], "generate: --checkpoint .: it has no checkpoint of a training run"),
        (["--checkpoint", ".", "--steps", "3"], "generate: --steps with --checkpoint: it is for"),
        (["--checkpoint", ".", "--data", "x"], "generate: --data with --checkpoint: it is for"),
        (["--mesh", "dp=2"], "generate: --mesh dp=2 has axis dp; in inference devices split each"),
        (["--mesh", "tp"], "write axis=size"),
        (["--mesh", "tp=99"], "generate: --mesh tp=99 needs 99 devices; there are "),
        (["--top-p", "0"], "generate: top_p is 0.0; use a number above 0"),
        (["--temperature", "inf"], "generate: temperature is inf; use 0 or more"),
        (["--speculate", "ngram"], "generate: --speculate ngram: write what guesses"),
        (["--speculate", "ngram:0"], "generate: --speculate ngram:0: write what guesses"),
        (["--speculate", "no:2"], "generate: --speculate no: there is no such folder"),
        (["--data", "nowhere"], "text: nowhere: No such file or directory"),
        (["--tokenizer", "nowhere"], "--tokenizer nowhere: "),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("generate", "--prompt", PROMPT, *options)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("prompt", "options", "line"),
    [
        ("", [], "generate: a prompt of 0 tokens, and 100 to write"),
        ("x" * 70_000, [], "a prompt of 70000 tokens, and 100 to write; there is at least one of"),
        (PROMPT, ["--cache", "int3"], "generate: --cache is 'int3'; use one of model, int8"),
        (PROMPT, ["--mesh", "tp=3"], "generate: heads: dim a (size 4) must be divisible by"),
    ],
)
def test_what_the_model_cannot_do(
    run: Any, saved: Path, prompt: str, options: list[str], line: str
) -> None:
    ended = run("generate", "--prompt", prompt, "--checkpoint", str(saved), *options)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
