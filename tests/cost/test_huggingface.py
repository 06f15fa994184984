"""Configurations of Hugging Face, against what transformers builds from them.

Those in configs/ are as transformers 4.57.3 writes them for the sizes of models.toml. Counts in
random.jsonl are of its models on the meta device: 4 random configurations of each type, with
missing keys and nulls.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jaxpar.cost.huggingface import read_config
from jaxpar.cost.models import MODELS

CONFIGS = Path(__file__).parent / "configs"
FILES = sorted(CONFIGS.glob("*.json"))
RANDOM = [json.loads(line) for line in (CONFIGS / "random.jsonl").read_text().splitlines()]
ONE_OF_EACH_FORM = ("deepseek-v3", "falcon-40b", "gpt2", "llama3-8b", "opt-13b", "qwen2-57b-a14b")
LLAMA = json.loads((CONFIGS / "llama2-70b.json").read_text())


def read(folder: Path, values: Any) -> Any:
    (folder / "config.json").write_text(json.dumps(values))
    return read_config(folder)


def error(folder: Path, text: str | bytes) -> str:
    file = folder / "config.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as raised:
        read_config(file)
    message = str(raised.value)
    assert message.startswith(str(file)) and len(message) < len(str(file)) + 400
    return message.removeprefix(f"{file}: ")


def llama_error(folder: Path, **values: Any) -> str:
    return error(folder, json.dumps(LLAMA | values))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_published_model_is_its_preset(file: Path) -> None:
    preset, ours = MODELS[file.stem].architecture, read_config(file)
    assert ours.parameters == preset.parameters
    assert ours.active_parameters == preset.active_parameters
    assert ours.outer_parts == preset.outer_parts
    for experts in (False, True) if preset.experts else (False,):
        if experts or preset.dense_layers:  # else the size of an MLP means nothing
            assert ours.layer_parts(experts=experts) == preset.layer_parts(experts=experts)
    assert (ours.name, ours.heads, ours.key_heads, ours.d_head) == (
        *(file.stem, preset.heads, preset.key_heads, preset.d_head),
    )


@pytest.mark.parametrize("row", range(len(RANDOM)))
def test_a_random_model_has_as_many_parameters_as_in_transformers(row: int, tmp_path: Path) -> None:
    count, values = RANDOM[row]
    assert read(tmp_path, values).parameters == count


def test_every_type_is_tried(tmp_path: Path) -> None:
    known = error(tmp_path, '{"model_type": "x"}').partition("one of ")[2].partition(", or give")[0]
    tried = {values["model_type"] for _, values in RANDOM}
    assert set(known.split(", ")) == tried | {"kimi_k2"}  # DeepSeek-V3 by another name


def test_the_model_is_named_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my.model-1b"
    folder.mkdir()
    ours = read(folder, LLAMA)
    assert ours.name == "my.model-1b"
    assert ours == replace(read_config(CONFIGS / "llama2-70b.json"), name="my.model-1b")


def test_dropout_is_that_of_training(tmp_path: Path) -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 9}
    assert read(tmp_path, gpt2).dropout
    assert not read(tmp_path, gpt2 | {"resid_pdrop": 0}).dropout
    wrong = error(tmp_path, json.dumps(gpt2 | {"resid_pdrop": "much"}))
    assert wrong == "resid_pdrop is 'much'; it must be from 0 to below 1"


def test_a_file_that_is_no_config_is_refused(tmp_path: Path) -> None:
    for text in ("", "{", "not json", b"\xff\xfe\x00", "[" * 100_000, '{"a": NaN}', "1" * 10_000):
        assert error(tmp_path, text).startswith("not JSON: ")
    assert error(tmp_path, "[1, 2]").startswith("JSON, but not an object")
    assert error(tmp_path, '"' + "a" * 2_000_000 + '"').startswith("more than 1,000,000 bytes")
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_config(tmp_path / "absent.json")
    with pytest.raises(ValueError, match=r"config\.json: cannot be read"):
        empty = tmp_path / "empty"
        empty.mkdir()
        read_config(empty)


def test_a_wrong_value_is_named(tmp_path: Path) -> None:
    assert error(tmp_path, "{}").startswith("model_type is None; use a model of one of bloom, ")
    assert llama_error(tmp_path, model_type=["llama"]).startswith("model_type is ['llama']")
    for value in ("8192", 8192.0, True, None, [1], {"a": 1}):
        expected = f"hidden_size is {value!r}; it must be a whole number"
        assert llama_error(tmp_path, hidden_size=value) == expected
    assert llama_error(tmp_path, attention_bias=1).startswith("attention_bias is 1; it must be tru")
    for value in (0, -5, 10**12):
        assert f"hidden is {value}; use a whole number from 1 to" in llama_error(
            tmp_path, hidden_size=value
        )
    assert "kv_heads is 7, which does not divide heads, 64; the nearest that does is 8" in (
        llama_error(tmp_path, num_key_value_heads=7)
    )
    assert llama_error(tmp_path, mlp_bias=True).endswith("a bias in the MLP alone is not known")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "intermediate_size"])
def test_a_missing_size_is_named(key: str, tmp_path: Path) -> None:
    values = {name: value for name, value in LLAMA.items() if name != key}
    assert error(tmp_path, json.dumps(values)).startswith(f"key {key}")


def test_what_no_field_stands_for_is_refused(tmp_path: Path) -> None:
    opt = json.loads((CONFIGS / "opt-13b.json").read_text())
    for key, value in (("word_embed_proj_dim", 512), ("do_layer_norm_before", False)):
        assert error(tmp_path, json.dumps(opt | {key: value})).startswith(f"{key} is {value}; ")
    moe = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text())
    for values in ({"decoder_sparse_step": 0}, {"mlp_only_layers": "all"}):
        wrong = error(tmp_path, json.dumps(moe | values))
        assert "the first must be 1 or more, the second a list" in wrong
    assert "use 128 at most" in error(tmp_path, json.dumps(moe | {"num_experts_per_tok": 129}))


def test_any_value_of_any_key_gives_sizes_or_an_error_of_ours(tmp_path: Path) -> None:
    """No file, whoever wrote it, raises another error or runs forever."""
    strange = (None, True, 0, -1, 3, 10**18, "x", [None], {"a": []})
    for file in (CONFIGS / f"{name}.json" for name in ONE_OF_EACH_FORM):
        values = json.loads(file.read_text())
        for key in values:
            for value in strange:
                try:
                    assert read(tmp_path, values | {key: value}).parameters > 0
                except ValueError as raised:
                    assert str(raised).startswith(str(tmp_path))
