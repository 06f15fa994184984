"""Logits against the library transformers, both ways, where it is installed."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxpar.model import Settings, init
from jaxpar.train.saved import Saved
from jaxpar.train.tokenizer import read_tokenizer
from jaxpar.train.write_huggingface import write_huggingface
from tests.train import hub
from tests.train.test_weights import TOKENS, ours, read

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# transformers warns about what it will change in itself.
pytestmark = pytest.mark.filterwarnings("ignore")


def theirs(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model.eval()(torch.tensor(TOKENS)[None]).logits[0].numpy()


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("kind", hub.CONFIGS)
def test_logits_are_equal_both_ways(kind: str, tmp_path: Path) -> None:
    """Of a folder as it is, as transformers saves it again, and as we write it."""
    config = hub.CONFIGS[kind]
    folder = hub.write_folder(tmp_path / "model", config, hub.random_tensors(config))
    model = loaded(folder)
    expected = theirs(model)
    model.save_pretrained(tmp_path / "again")
    for one in (folder, tmp_path / "again"):
        found = read(one)
        got = ours(found.settings, found.params)[:, :97]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
    write_huggingface("x", found, tmp_path / "written")
    np.testing.assert_allclose(theirs(loaded(tmp_path / "written")), expected, rtol=0, atol=1e-6)


def test_a_decoder_and_a_tokenizer_of_ours_are_loaded(tmp_path: Path) -> None:
    from tests.train.test_tokenizer import STRING
    from tests.train.test_tokenizer import saved as save_tokenizer

    read_by_us = read_tokenizer(save_tokenizer(tmp_path / "tokenizer.json", 300))
    settings = Settings(vocabulary=384, layers=2, d_model=32, heads=4, kv_heads=2, sequence=64)
    params = jax.tree.map(np.asarray, init(settings, jax.random.key(1)))
    write_huggingface("x", Saved(settings, params, read_by_us, 3), tmp_path / "written")
    expected = theirs(loaded(tmp_path / "written"))
    np.testing.assert_allclose(ours(settings, params), expected, rtol=0, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "written")
    text = STRING[:2000]
    assert tokenizer(text)["input_ids"] == read_by_us.made.encode(text).ids
