"""Tokens in place of bytes: a tokenizer from a file, and runs with it."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run, begin, start
from jaxpar.train.text import hold_out, read_library
from jaxpar.train.tokenizer import Tokenizer, read_tokenizer
from jaxpar.train.validation import Validating
from tests.train.runs import SETTINGS, compile_quickly

tokenizers = pytest.importorskip("tokenizers")

TEXT = read_library()[:20_000]
STRING = TEXT.tobytes().decode()
VALIDATING = Validating(2, 0.2)
ONE = make_recipe("dp=1")


def saved(path: Path, size: int) -> Path:
    """The file of a tokenizer of bytes and of pairs of them, which is trained here."""
    levels = tokenizers.pre_tokenizers.ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = levels(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=levels.alphabet(), show_progress=False
    )
    made.train_from_iterator([STRING], trainer)
    made.save(str(path))
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json", 300)


@pytest.fixture
def tokenizer(file: Path) -> Tokenizer:
    return read_tokenizer(file)


def begun(recipe: Recipe, tokenizer: Tokenizer, keeping: Keeping | None = None) -> Run:
    settings = replace(SETTINGS, vocabulary=tokenizer.vocabulary)
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        return begin(
            settings, recipe, mesh, TEXT,
            seed=3, keeping=keeping, validating=VALIDATING, tokenizer=tokenizer,
        )  # fmt: skip


def test_tokens_are_those_of_the_library(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(TEXT)
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == tokenizer.made.encode(STRING).ids
    assert len(tokens) < len(TEXT) / 1.2
    assert tokenizer.made.decode(tokens.tolist()) == STRING
    assert tokenizer.vocabulary == 384  # 300 tokens, and the next multiple of 128


def test_nothing_is_cut_or_added_whatever_the_file_says(file: Path, tmp_path: Path) -> None:
    made = tokenizers.Tokenizer.from_file(str(file))
    expected = made.encode(STRING).ids
    made.add_special_tokens(["<s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 300)]
    )
    made.enable_truncation(16)
    made.enable_padding(length=32)
    made.save(str(tmp_path / "file"))
    other = read_tokenizer(tmp_path / "file")
    assert other.encode(TEXT).tolist() == expected
    assert other.mark != read_tokenizer(file).mark


def test_a_text_may_end_within_a_character(tokenizer: Tokenizer) -> None:
    text = np.frombuffer("a\u00e9\u20ac".encode(), np.uint8)
    assert tokenizer.made.decode(tokenizer.encode(text[:-1]).tolist()) == "a\u00e9"
    for fraction in (0.2, 0.4, 0.6, 0.8):
        for part in hold_out(text, fraction):
            part.tobytes().decode()
    with pytest.raises(
        ValueError, match=r"text: x: byte 2 is not UTF-8, which tokenizers read; gi"
    ):
        tokenizer.encode(np.array([97, 98, 0xFE, 97], np.uint8), "text: x")


def test_what_is_no_tokenizer_is_named_with_the_reason(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "binary").write_bytes(b"\xff\xff")
    for name, reason in (
        ("nowhere", "No such file or directory"),
        ("", "Is a directory"),
        ("empty.json", "Model missing"),
        ("binary", "invalid start byte"),
    ):
        line = rf"train: --tokenizer {tmp_path / name}: .*{reason}.*; give a tokenizer.json"
        with pytest.raises(ValueError, match=line):
            read_tokenizer(tmp_path / name)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"tokenizers is not installed; run pip install token"):
        read_tokenizer(file)


def test_a_tokenizer_that_does_not_know_a_word_says_so(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="none"))
    made.save(str(tmp_path / "words"))
    with pytest.raises(ValueError, match=r"--tokenizer .*/words: WordLevel error.*; give one that"):
        read_tokenizer(tmp_path / "words").encode(TEXT)


@pytest.mark.parametrize(
    ("mesh", "options"),
    [("pp=2,dp=2,tp=2", {"microbatches": 4}), ("fsdp=4", {}), ("cp=2,tp=2", {})],
)
def test_a_run_on_tokens_is_that_of_one_device(
    mesh: str, options: dict, tokenizer: Tokenizer
) -> None:
    found, expected = (
        list(begun(recipe, tokenizer).proceed(2)) for recipe in (make_recipe(mesh, **options), ONE)
    )
    assert [step.loss for step in found] == pytest.approx([one.loss for one in expected], rel=1e-5)
    assert expected[0].loss == pytest.approx(math.log(384), rel=0.05)
    one, other = found[-1].validated, expected[-1].validated
    assert one and other
    assert one.loss == pytest.approx(other.loss, rel=1e-5)


def test_bits_are_those_of_a_byte_of_text(tokenizer: Tokenizer) -> None:
    run = begun(ONE, tokenizer)
    *_, last = run.proceed(2)
    assert run.unit == "tokens"
    held_out = hold_out(TEXT, 0.2)[1]
    of_byte = last.validated.loss * len(tokenizer.encode(held_out)) / len(held_out)
    assert last.validated.bits_per_byte == pytest.approx(of_byte / math.log(2))
    assert last.validated.perplexity == pytest.approx(math.exp(of_byte))


def test_a_checkpoint_refuses_another_tokenizer(
    file: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    keeping = Keeping(tmp_path / "run", every=2)
    run = begun(ONE, tokenizer, keeping)
    whole = list(run.proceed(4))
    run.close()
    # The same tokens, but another file.
    (tmp_path / "other.json").write_text(json.dumps(json.loads(file.read_text()), indent=3))
    resuming = replace(keeping, resume=True)
    with pytest.raises(ValueError, match=r"holds another run: tokenizer with CRC-32 \w+ there, w"):
        begun(ONE, read_tokenizer(tmp_path / "other.json"), resuming)
    resumed = begun(ONE, tokenizer, resuming)
    steps = list(resumed.proceed(6))
    resumed.close()
    assert steps[0].loss < whole[0].loss


def test_the_vocabulary_is_that_of_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(TEXT[:300])
    line = rf"text: {tmp_path}/text: \d+ tokens make \d+ examples of 16 tokens; a batch has 16; use"
    with pytest.raises(ValueError, match=line):
        start(
            SETTINGS, ONE, None,
            data=tmp_path / "text", tokenizer=file, seed=0, timeout_seconds=1,
        )  # fmt: skip
    with patch.object(setup, "compile_program", compile_quickly):
        run = start(
            SETTINGS, make_recipe("tp=2"), None,
            data=file, tokenizer=file, seed=0, timeout_seconds=1,
        )  # fmt: skip
    assert next(run.steps).params["embedding"].shape == (384, 16)
