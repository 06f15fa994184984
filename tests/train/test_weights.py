"""Weights of Hugging Face and of our runs: logits, parts on devices, and what is refused."""

import errno
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, logits
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import begin
from jaxpar.train.saved import named, read_saved
from jaxpar.train.setup import technique_of
from jaxpar.train.step import shardings
from jaxpar.train.tensors import Tensor
from jaxpar.train.text import read_library
from jaxpar.train.weights import Weights, open_weights, read_model
from jaxpar.train.write_huggingface import write_huggingface
from tests.compile_options import QUICKLY
from tests.train.runs import compile_quickly

pytest.importorskip("safetensors")

from safetensors.numpy import load_file, save_file

from tests.train import hub

TOKENS = np.random.default_rng(7).integers(0, 97, 32)
TEXT = read_library()[:20_000]


def without_tokenizer() -> Any:
    """The random models here have no tokenizer, and nothing is asked of it."""
    return patch.object(Weights, "check_tokenizer", lambda *_: None)


def read(folder: Path) -> Any:
    with without_tokenizer():
        return read_model("x", folder)


@pytest.fixture(params=hub.CONFIGS)
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return hub.CONFIGS[request.param]


@pytest.fixture
def folder(config: dict[str, Any], tmp_path: Path) -> Path:
    return hub.write_folder(tmp_path / "model", config, hub.random_tensors(config))


def ours(settings: Settings, params: Any) -> np.ndarray:
    params = jax.tree.map(jnp.asarray, params)
    run = jax.jit(partial(logits, settings), compiler_options=QUICKLY)
    return np.asarray(run(params, jnp.asarray(TOKENS)[None])[0], np.float64)


def assert_equal_logits(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found[:, :97], expected, rtol=1e-4, atol=1e-5 * expected.max())
    assert (found[:, 97:] < -1e38).all()


def test_logits_are_those_of_the_papers(config: dict[str, Any], folder: Path) -> None:
    model = read(folder)
    assert (model.settings.vocabulary, model.settings.padding) == (128, 31)
    expected = hub.logits(config, hub.random_tensors(config), TOKENS)
    assert_equal_logits(ours(model.settings, model.params), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_16_bits_stay_and_several_files_are_one_model(
    kind: str, dtype: str, tmp_path: Path
) -> None:
    config = hub.CONFIGS[kind]
    tensors = {
        name: tensor.astype(jnp.dtype(dtype)) for name, tensor in hub.random_tensors(config).items()
    }
    model = read(hub.write_folder(tmp_path / "model", config, tensors, files=3))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(model.params)} == {dtype}
    wide = jax.tree.map(np.float32, model.params)
    assert_equal_logits(ours(model.settings, wide), hub.logits(config, tensors, TOKENS))


MESHES: dict[str, Callable[[], Recipe]] = {
    "tensor": lambda: make_recipe("dp=2,tp=4"),
    "fsdp": lambda: make_recipe("fsdp=4,tp=2", sequence_parallel=True),
    "pipeline": lambda: make_recipe("pp=2,tp=2", schedule="interleaved", microbatches=4),
}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", ["llama with biases", "gpt2"])
def test_each_device_reads_its_own_part(kind: str, mesh: str, tmp_path: Path) -> None:
    config, recipe = hub.CONFIGS[kind], MESHES[mesh]()
    tensors = hub.random_tensors(config)
    folder = hub.write_folder(tmp_path / "model", config, tensors, files=2)
    host, weights = read(folder), open_weights("x", folder)
    settings = weights.settings_for(None, 32)
    order = list(setup.layer_order(recipe.table, 4) if recipe.table else range(4))
    specs = technique_of(settings, recipe).params
    where = shardings(make_mesh(recipe.layout.mesh_sizes), specs)
    sizes: list[int] = []
    whole = Tensor.read

    def counted(self: Tensor, ranges: Any) -> np.ndarray:
        part = whole(self, ranges)
        sizes.append(part.size)
        return part

    with patch.object(Tensor, "read", counted):
        params = weights.on_devices(settings, where, order)
    host.params["layers"] = jax.tree.map(lambda leaf: leaf[np.array(order)], host.params["layers"])
    for name, leaf in named(params).items():
        np.testing.assert_array_equal(leaf, named(host.params)[name], err_msg=name)
    leaves = jax.tree.leaves(params)
    held = sum(shard.data.size for leaf in leaves for shard in leaf.addressable_shards)
    assert sum(sizes) <= held


def begun(settings: Settings, recipe: Recipe, weights: Weights, keeping: Any = None) -> Any:
    with patch.object(setup, "compile_program", compile_quickly):
        return begin(
            settings, recipe, make_mesh(recipe.layout.mesh_sizes), TEXT.clip(0, 96),
            seed=3, weights=weights, keeping=keeping,
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_a_run_begins_with_them_on_any_mesh(kind: str, tmp_path: Path) -> None:
    """Losses are those of one device, and the first is that of the weights."""
    config = hub.CONFIGS[kind]
    tensors = hub.random_tensors(config)
    folder = hub.write_folder(tmp_path / "model", config, tensors)
    weights = open_weights("x", folder)
    settings = weights.settings_for(16, 128)
    assert settings.sequence == 16
    losses = []
    gentle = {"batch": 4, "optimizer": "sgd", "learning_rate": 1e-3}
    for recipe in (
        make_recipe("dp=1", **gentle),
        make_recipe("dp=2,tp=4", **gentle),
        make_recipe("pp=2,fsdp=2,tp=2", sequence_parallel=True, microbatches=2, **gentle),
    ):
        run = begun(settings, recipe, weights)
        losses.append([next(run.steps).loss for _ in range(3)])
        assert all(one.predicted_bytes == one.by_schedule_bytes for one in run.sent)
        run.close()
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_adapters_stand_beside_layers_in_the_order_of_a_pipeline(tmp_path: Path) -> None:
    """The first loss is that of the weights, and later ones are those of one device."""
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA))
    weights = open_weights("x", folder)
    settings = replace(weights.settings_for(16, 128), adapter_rank=2)
    losses = []
    gentle = {"batch": 4, "optimizer": "sgd", "learning_rate": 1e-1}
    for recipe in (
        make_recipe("dp=1", **gentle),
        make_recipe("pp=2", schedule="interleaved", microbatches=2, **gentle),
    ):
        run = begun(settings, recipe, weights)
        losses.append([next(run.steps).loss for _ in range(3)])
        run.close()
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_begins_with_another_one(precision: str, tmp_path: Path) -> None:
    """The parameters of a pipeline of two steps, in the layouts and the order of another mesh."""
    settings = Settings(layers=4, d_model=16, heads=4, sequence=16)
    recipe = make_recipe("pp=2,fsdp=2", schedule="interleaved", microbatches=4, precision=precision)
    with patch.object(setup, "compile_program", compile_quickly):
        run = begin(
            settings, recipe, make_mesh("pp=2,fsdp=2"), TEXT,
            seed=3, keeping=Keeping(tmp_path / "run"),
        )  # fmt: skip
    assert len(list(run.proceed(2))) == 2
    run.close()
    weights = open_weights("x", tmp_path / "run")
    weights.check_tokenizer(None)
    with pytest.raises(ValueError, match=r"^x: it was trained with bytes, and not with a tok"):
        weights.check_tokenizer(SimpleNamespace(mark="with CRC-32 0", tokens=9))  # type: ignore
    other = make_recipe("fsdp=4,tp=2")
    where = shardings(make_mesh("fsdp=4,tp=2"), technique_of(settings, other).params)
    params = weights.on_devices(weights.settings_for(16, 128), where, range(4))
    saved = read_saved("x", tmp_path / "run").params
    for name, leaf in named(params).items():
        assert leaf.dtype == jnp.float32
        rounded = np.asarray(leaf).astype(named(saved)[name].dtype)
        np.testing.assert_array_equal(rounded, named(saved)[name], err_msg=name)
    exact = all((np.asarray(x) == y).all() for x, y in zip(
        jax.tree.leaves(params), jax.tree.leaves(saved), strict=True))  # fmt: skip
    assert exact == (precision == "fp32")


def test_written_tensors_are_those_that_were_read(
    config: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    model = read(folder)
    write_huggingface("x", model, tmp_path / "written", largest_bytes=4000)
    index = json.loads((tmp_path / "written" / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2
    found = {}
    for file in files:
        found |= load_file(tmp_path / "written" / file)
    base = "transformer." if config["model_type"] == "gpt2" else ""
    expected = load_file(folder / "model.safetensors")
    assert found.keys() == {f"{base}{name}" for name in expected}
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[f"{base}{name}"], tensor, err_msg=name)
    again = read(tmp_path / "written")
    assert again.settings == model.settings
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)


def test_a_decoder_of_ours_is_written(tmp_path: Path) -> None:
    """Also one like GPT-2, whose matrices have no biases: these are 0."""
    settings = Settings(
        layers=2, d_model=16, heads=4, norm="layer", positions="learned", mlp="gelu", tied=True,
        vocabulary=97,
    )  # fmt: skip
    from jaxpar.model import init
    from jaxpar.train.saved import Saved

    params = jax.tree.map(np.asarray, init(settings, jax.random.key(0)))
    write_huggingface("x", Saved(settings, params, None, 1), tmp_path / "written")
    again = read(tmp_path / "written")
    assert (again.settings.biases, again.settings.norm_epsilon) == ("all", 1e-6)
    biases = [leaf for name, leaf in named(again.params).items() if name.endswith("_bias")]
    assert len(biases) == 6 and not any(bias.any() for bias in biases)
    np.testing.assert_allclose(
        ours(again.settings, again.params)[:, :97], ours(settings, params), rtol=1e-6, atol=1e-6
    )


CHANGED: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mixtral"}, "model_type is 'mixtral'; weights are read of llama, mistral, qwe"),
    ({"model_type": None}, "model_type is None"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; this decoder has 'silu'"),
    ({"head_dim": 8}, "head_dim is 8; this decoder has hidden / heads, 4"),
    ({"quantization_config": {"bits": 4}}, r"key quantization_config, \{'bits': 4\}, is not known"),
    (
        {"model_type": "mistral", "sliding_window": 4096, "use_sliding_window": False},
        "sliding_window is 4096; this decoder has attention to all positions",
    ),
    ({"sliding_window": 4096}, "sliding_window is 4096; this decoder has attention to all"),
    ({"model_type": "mistral"}, "sliding_window is 4096; this decoder has attention to all"),
    ({"auto_map": {"AutoModel": "x"}}, "key auto_map, .* is not known here"),
    ({"layer_types": ["sliding_attention"]}, "layer_types is"),
    ({"rope_theta": "x"}, "rope_theta is 'x'; it must be a number above 0"),
    ({"rms_norm_eps": 0}, "rms_norm_eps is 0; it must be a number above 0"),
    ({"rope_theta": 10**400}, "rope_theta is 1000.*; it must be a number above 0 and at most 1e"),
    (
        {"rope_scaling": hub.SCALING | {"original_max_position_embeddings": 2**31}},
        r"original_max_position_embeddings is 2147483648.0; this decoder has fewer than 2\^31",
    ),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'; this decoder"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor is None; it must"),
    ({"rope_scaling": hub.SCALING | {"beta": 1}}, "beta is 1 beside rope_type 'llama3'"),
    ({"rope_scaling": hub.SCALING | {"low_freq_factor": 3}}, "high_freq_factor is 2.0; this dec"),
    ({"max_position_embeddings": None}, "max_position_embeddings is None; it must be"),
    ({"num_attention_heads": 3}, "heads"),
    ({"hidden_size": 12}, r"head size d_model / heads is 3"),
    ({"vocab_size": 98}, r"tensor model.embed_tokens.weight \[97, 16\]: config.json asks for \[98"),
    ({"num_hidden_layers": 3}, r"tensor model.layers.3.*: config.json describes no such part; use"),
    ({"num_hidden_layers": 5}, r"tensor model.layers.4.\S+ \[8, 16\] is missing; download or"),
    ({"attention_bias": True}, r"tensor model.layers.0.self_attn.k_proj.bias \[8\] is missing"),
    ({"tie_word_embeddings": True}, "lm_head.weight .* it is not model.embed_tokens.weight, and"),
]


@pytest.mark.parametrize(("values", "line"), CHANGED, ids=lambda one: None)
def test_another_config_is_refused(values: dict[str, Any], line: str, tmp_path: Path) -> None:
    tensors = hub.random_tensors(hub.LLAMA)
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA | values, tensors)
    with pytest.raises(ValueError, match=rf"^x: {tmp_path}.*{line}"):
        open_weights("x", folder)


@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps", "max_position_embeddings"])
def test_a_number_that_is_infinite_is_refused(key: str, tmp_path: Path) -> None:
    """JSON has no infinity, but reads 1e400 as one. The error names the file once."""
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA))
    config = folder / "config.json"
    config.write_text(json.dumps(hub.LLAMA | {key: "?"}).replace('"?"', "1e400"))
    with pytest.raises(ValueError, match=rf"^x: {config}: {key} is inf; it must be a number above"):
        open_weights("x", folder)


def test_options_are_read_as_transformers_reads_them(tmp_path: Path) -> None:
    """Old keys of rotary positions go first, and the window of Qwen2 is off unless turned on."""
    tensors = hub.random_tensors(hub.QWEN2)
    config = hub.QWEN2 | {
        "rope_scaling": hub.SCALING,
        "rope_parameters": {"rope_type": "default", "rope_theta": 300.0},
    }
    del config["use_sliding_window"]
    model = read(hub.write_folder(tmp_path / "model", config, tensors))
    assert model.settings.rope_theta == 500.0
    assert model.settings.rope_scaling and model.settings.rope_scaling.factor == 4.0
    assert_equal_logits(
        ours(model.settings, model.params),
        hub.logits({**config, "rope_parameters": None}, tensors, TOKENS),
    )


def test_one_file_goes_before_an_index(tmp_path: Path) -> None:
    tensors = hub.random_tensors(hub.LLAMA)
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA, 1), 2)
    save_file(tensors, folder / "model.safetensors")
    np.testing.assert_array_equal(
        read(folder).params["embedding"][:97], tensors["model.embed_tokens.weight"]
    )


def test_what_is_not_read_does_not_widen_the_parameters(tmp_path: Path) -> None:
    """Old files of Llama in 16 bits have the frequencies of rotary positions in 32."""
    tensors = {name: one.astype(np.float16) for name, one in hub.random_tensors(hub.LLAMA).items()}
    derived = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    model = read(hub.write_folder(tmp_path / "model", hub.LLAMA, {**tensors, **derived}))
    assert {leaf.dtype for leaf in jax.tree.leaves(model.params)} == {np.dtype(np.float16)}


def test_a_folder_that_cannot_be_looked_into_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^x: .*; give a folder that can be read"):
        open_weights("x", Path("a" * 300))


def test_a_bad_folder_is_refused(tmp_path: Path) -> None:
    tensors = hub.random_tensors(hub.LLAMA)
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, tensors, files=2)
    first, second = sorted(folder.glob("*-of-*"))
    index = folder / "model.safetensors.index.json"

    def refused(line: str) -> None:
        with pytest.raises(ValueError, match=line):
            open_weights("x", folder)

    whole = second.read_bytes()
    second.write_bytes(whole[:-8])
    refused(r"-00002-of-00002.safetensors: cannot be read: .*; download or copy it again")
    second.write_bytes(b"<html>")
    refused(r"-00002-of-00002.safetensors: cannot be read: ")
    second.write_bytes(first.read_bytes())
    refused(r"tensor \S+ \[.*\]: it is in .*-00001-of-00002.safetensors too; remove one")
    second.unlink()
    refused(r"-00002-of-00002.safetensors: there is no such file; download or copy it again")
    for name in ("../model.safetensors", "/model.safetensors", "..", ".", "", "a\0b", "\ud800"):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        refused(rf"index.json: it names {re.escape(repr(name))}, which is no file in its folder")
    for text in ("[" * 100_000, "{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}'):
        index.write_text(text)
        refused("index.json: it has no weight_map from tensors to files; download or copy it")
    index.unlink()
    refused("it has neither model.safetensors nor model.safetensors.index.json; give a folder")
    (folder / "pytorch_model.bin").write_bytes(b"")
    refused("pytorch_model.bin is a pickle, which can run any program when it is read; give a")
    one = dict(tensors) | {"model.norm.weight": np.ones(16, np.int8)}
    save_file(one, folder / "model.safetensors")
    refused(r"tensor model.norm.weight \[16\]: its dtype is I8; use a model in F32, F16, BF16")
    (folder / "config.json").write_text("{")
    refused("config.json: not JSON")
    (folder / "config.json").unlink()
    refused("config.json: cannot be read: No such file or directory; give a config.json")


def test_what_follows_from_the_config_may_be_there(tmp_path: Path) -> None:
    """Masks of GPT-2, a tied head that is the table; a model that was saved without its head."""
    tensors = hub.random_tensors(hub.GPT2)
    masks = {"h.0.attn.bias": np.ones((1, 1, 32, 32), np.uint8)}
    tied = {"lm_head.weight": tensors["wte.weight"]}
    plain = read(hub.write_folder(tmp_path / "plain", hub.GPT2, tensors))
    more = read(hub.write_folder(tmp_path / "more", hub.GPT2, tensors | masks | tied))
    jax.tree.map(np.testing.assert_array_equal, plain.params, more.params)
    assert plain.notes and "attn_pdrop, nothing" not in plain.notes[0]
    assert "resid_pdrop, embd_pdrop, attn_pdrop: nothing is dropped here" in plain.notes[0]
    config = hub.CONFIGS["llama 3.1"]
    bare = {name.removeprefix("model."): one for name, one in hub.random_tensors(config).items()}
    read(hub.write_folder(tmp_path / "bare", config, bare))


def test_a_vocabulary_needs_its_tokenizer(tmp_path: Path) -> None:
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA))
    with pytest.raises(
        ValueError, match=r"^x: a vocabulary of 97 tokens, and no tokenizer.json that makes them"
    ):
        read_model("x", folder)
    weights = open_weights("x", folder)
    pytest.importorskip("tokenizers")
    from jaxpar.train.tokenizer import read_tokenizer
    from tests.train.test_tokenizer import saved as save_tokenizer

    file = save_tokenizer(tmp_path / "tokenizer.json", 300)
    with pytest.raises(ValueError, match=r"has 300 tokens, the decoder 97; give the tokenizer"):
        weights.check_tokenizer(read_tokenizer(file))


def test_the_first_token_is_the_one_that_the_tokenizer_puts_before_a_text(tmp_path: Path) -> None:
    """As <s> of Llama; without one, a text begins with the end of another."""
    tokenizers = pytest.importorskip("tokenizers")
    from jaxpar.train.tokenizer import read_tokenizer
    from tests.train.test_tokenizer import saved as save_tokenizer

    file = save_tokenizer(tmp_path / "tokenizer.json", 300)
    made = read_tokenizer(file).made
    made.add_special_tokens(["<s>", "</s>"])
    begin, end = map(made.token_to_id, ("<s>", "</s>"))
    template = tokenizers.processors.TemplateProcessing("<s> $A", None, [("<s>", begin)])
    model = read(hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA)))
    for name, processor in {"</s>": None, "<s>": template}.items():
        if processor:
            made.post_processor = processor
        made.save(str(file))
        written = tmp_path / f"written {begin if processor else end}"
        write_huggingface("x", replace(model, tokenizer=read_tokenizer(file)), written)
        config = json.loads((written / "config.json").read_text())
        assert (config["bos_token_id"], config["eos_token_id"]) == (made.token_to_id(name), end)
        about = json.loads((written / "tokenizer_config.json").read_text())
        assert (about["bos_token"], about["eos_token"]) == (name, "</s>")


def test_a_write_that_fails_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA))
    model = read(folder)
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        patch("jaxpar.train.tensors.os.fsync", side_effect=full),
        pytest.raises(ValueError, match=r"^x: No space left on device; give a folder that can be"),
    ):
        write_huggingface("x", model, tmp_path / "written")
    write_huggingface("x", model, tmp_path / "written")


def test_positions_are_cut_but_not_made(tmp_path: Path) -> None:
    folder = hub.write_folder(tmp_path / "model", hub.GPT2, hub.random_tensors(hub.GPT2))
    weights = open_weights("x", folder)
    assert weights.settings_for(None, 128).sequence == 32
    with pytest.raises(ValueError, match=r"^x: --sequence 33: its table has 32 positions; use 32"):
        weights.settings_for(33, 128)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"experts": 4}, "4 experts: no family that is written here has any"),
        ({"mup_base": 8}, "muP from width 8"),
        ({"norm": "layer"}, "norm layer, positions rotary, mlp swiglu and 4 kv heads of 4: Llama"),
    ],
)
def test_what_no_family_has_is_not_written(
    changed: dict[str, Any], line: str, tmp_path: Path
) -> None:
    from jaxpar.model import init
    from jaxpar.train.saved import Saved

    settings = Settings(layers=1, d_model=16, heads=4, **changed)
    params = jax.eval_shape(partial(init, settings), jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), params)
    with pytest.raises(ValueError, match=rf"^x: {line}"):
        write_huggingface("x", Saved(settings, params, None, 1), tmp_path / "written")
    assert not (tmp_path / "written").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = hub.write_folder(tmp_path / "model", hub.LLAMA, hub.random_tensors(hub.LLAMA))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=r"^x: it is not empty; give a new folder, or an empty"):
        write_huggingface("x", read(folder), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
