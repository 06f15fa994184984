"""A model of Hugging Face writes what it says, on one device and on several."""

from pathlib import Path
from unittest.mock import patch

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.serve.engine import Engine, Request, Sizes
from jaxpar.serve.trained import from_checkpoint
from jaxpar.train.weights import Weights
from tests.serve.decoders import answers
from tests.serve.quickly import compile_all_quickly
from tests.train import hub

PROMPT = (5, 17, 3, 44, 9)


@pytest.mark.parametrize("kind", ["llama with biases", "qwen2", "gpt2"])
def test_texts_are_those_of_the_papers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over tp=4 there are more devices than kv heads of Llama."""
    compile_all_quickly(monkeypatch)
    config = hub.CONFIGS[kind]
    tensors = hub.random_tensors(config)
    folder = hub.write_folder(tmp_path / "model", config, tensors)
    with patch.object(Weights, "check_tokenizer", lambda *_: None):
        model = from_checkpoint("x", folder)
    assert model.notes[-1] == f"{folder}: {model.settings.parameters:,} parameters"
    text = list(PROMPT)
    for _ in range(6):
        text.append(int(np.argmax(hub.logits(config, tensors, np.array(text))[-1])))
    sizes = Sizes(slots=1, context=16, chunk=4, page_size=4)
    for mesh in (None, make_mesh("tp=4")):
        engine = Engine(model.settings, model.params, sizes, mesh=mesh)
        assert answers(engine, [Request("one", PROMPT, 6)])["one"] == text[len(PROMPT) :]
    jax.clear_caches()
