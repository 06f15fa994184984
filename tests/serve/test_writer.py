"""A text is written in parts, which join to what its tokens are, and ends where a document does."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from jaxpar.model import Settings
from jaxpar.serve.sampling import Sampling
from jaxpar.serve.text import Alphabet, Bytes, Tokens
from jaxpar.serve.trained import TrainedModel
from jaxpar.serve.writer import MOST_CONTEXT, Writer
from tests.serve.decoders import params_of
from tests.train.test_tokenizer import saved

SETTINGS = Settings(layers=1, d_model=16, heads=2, sequence=64)
GREEDY = Sampling()


def counting(alphabet: Alphabet, after: dict[int, int], settings: Settings = SETTINGS):
    """A model that knows one thing: which token follows which; of all others the first."""
    params, v = params_of(settings), settings.vocabulary
    table = np.random.default_rng(0).standard_normal((v, settings.d_model)).astype(np.float32)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    head = np.zeros((settings.d_model, v), np.float32)
    for token, following in after.items():
        head[:, following] += 9 * table[token]
    quiet = {name: dict(part) for name, part in params["layers"].items()}
    quiet["attention"]["output"] = np.zeros_like(quiet["attention"]["output"])
    quiet["mlp"]["down"] = np.zeros_like(quiet["mlp"]["down"])
    known = {"embedding": table, "head": head, "layers": quiet}
    return TrainedModel(settings, params | known, alphabet, ("about",))


def chain(tokens: list[int]) -> dict[int, int]:
    return dict(pairwise(tokens))


def test_a_text_of_bytes_ends_with_its_document() -> None:
    text = list("ab\u20ac!".encode())
    writer = Writer("x", counting(Bytes(), chain([*text, 255])), "a", 50, GREEDY)
    assert "".join(writer.parts()) == "b\u20ac!"
    results = writer.results()
    assert (results["tokens"], results["ended"]) == (text[1:], "stop")
    assert (results["prompt"], results["text"]) == ("a", "b\u20ac!")
    assert results["stats"]["generated"] == 6 and results["notes"] == ["about"]
    assert writer.summary().startswith("5 tokens, ")


def test_a_character_that_is_cut_off() -> None:
    writer = Writer("x", counting(Bytes(), chain(list("ab\u20ac".encode()))), "a", 3, GREEDY)
    assert list(writer.parts()) == ["b", "", "", "\ufffd"]
    assert writer.results()["ended"] == "length"


def test_a_text_of_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer.from_file(str(saved(tmp_path / "tokenizer.json", 300)))
    words = made.encode("import \u20acdef").ids
    settings = replace(SETTINGS, vocabulary=384)
    model = counting(Tokens(made, frozenset([words[-1]])), chain(words), settings)
    prompt = made.decode(words[:1])
    writer = Writer("x", model, prompt, 50, GREEDY)
    assert prompt + "".join(writer.parts()) == made.decode(words[:-1])
    assert writer.results()["ended"] == "stop"


def test_what_is_longer_than_training_is_noted() -> None:
    writer = Writer("x", counting(Bytes(), {}), "ab", 63, GREEDY)
    assert writer.notes[1].startswith("the model was trained on 64 tokens at once, and this text")


@pytest.mark.parametrize(("prompt", "tokens"), [("", 5), ("ab", MOST_CONTEXT - 1)])
def test_too_little_and_too_much(prompt: str, tokens: int) -> None:
    says = f"x: a prompt of {len(prompt)} tokens, and {tokens} to write; .* 65536 in all"
    with pytest.raises(ValueError, match=says):
        Writer("x", counting(Bytes(), {}), prompt, tokens, GREEDY)
