"""Adapters train beside a base that stays as it is, on any mesh, and merge into it."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init, is_adapter, logits, loss_fn
from jaxpar.model.adapter import SCALE, merged
from jaxpar.model.few_bits import decode, encode
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run, begin
from jaxpar.train.saved import read_saved
from jaxpar.train.text import read_library
from jaxpar.train.trained import replaced, trained
from jaxpar.train.weights import Weights, open_weights
from tests.train.runs import SETTINGS, assert_trains_as_one_device, compile_quickly
from tests.train.runs import trained as taken_by

LORA = replace(SETTINGS, adapter_rank=2)
GPT = Settings(
    layers=2, d_model=16, heads=4, kv_heads=2, sequence=16, adapter_rank=3,
    norm="layer", positions="learned", mlp="gelu", tied=True, biases="all",
)  # fmt: skip
NF4 = Settings(layers=2, d_model=128, heads=4, d_ff=128, sequence=16, adapter_rank=2, base_bits=4)
INT8 = replace(NF4, base_bits=8)
MIXES = [
    (LORA, "dp=8", {"optimizer": "sgd"}),
    (LORA, "dp=4,tp=2", {"clip": 0.1, "microbatches": 2}),
    (LORA, "dp=2,tp=4", {"zero": 1, "optimizer": "sgd"}),
    (LORA, "dp=2,tp=4", {"sequence_parallel": True, "remat": "selective"}),
    (LORA, "fsdp=4,tp=2", {"microbatches": 2, "remat": "full"}),
    (LORA, "fsdp=8", {"gather": "step", "optimizer": "sgd"}),
    (LORA, "dp=2,fsdp=2,cp=2,tp=2", {"sequence_parallel": True}),
    (LORA, "dp=4", {"zero": 2, "microbatches": 2, "remat": "segments"}),
    (GPT, "dp=2,tp=2", {"remat": "none", "optimizer": "sgd"}),
    (GPT, "fsdp=2,tp=4", {"sequence_parallel": True}),
    (NF4, "fsdp=4,tp=2", {"microbatches": 2}),
    (NF4, "dp=2,tp=2", {"sequence_parallel": True, "optimizer": "sgd"}),
    (INT8, "fsdp=8", {"remat": "full"}),
    (LORA, "pp=2,dp=2,tp=2", {"microbatches": 4, "clip": 0.1}),
    (LORA, "pp=4", {"microbatches": 4, "schedule": "zb-h1", "optimizer": "sgd", "remat": "none"}),
    (LORA, "pp=2,fsdp=2,tp=2", {"microbatches": 2, "sequence_parallel": True, "remat": "full"}),
    (LORA, "pp=2,cp=2", {"microbatches": 2, "schedule": "interleaved", "remat": "segments"}),
    (GPT, "pp=2,dp=2", {"microbatches": 2, "schedule": "gpipe"}),
    (NF4, "pp=2,tp=2", {"microbatches": 2, "schedule": "1f1b"}),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "mesh", "options"),
    MIXES,
    ids=[f"{s.mlp} {s.base_bits} {mesh} {options}" for s, mesh, options in MIXES],
)
def test_adapters_train_as_on_one_device(
    settings: Settings, mesh: str, options: dict[str, Any]
) -> None:
    assert_trains_as_one_device(make_recipe(mesh, **options), settings)


@pytest.mark.parametrize("settings", [LORA, NF4], ids=["float32", "NF4"])
def test_only_adapters_change(settings: Settings) -> None:
    params = taken_by(make_recipe("fsdp=2", batch=4), settings, steps=2).params
    first = taken_by(make_recipe("fsdp=2", batch=4), settings, steps=1).params
    for (path, after), before in zip(
        jax.tree.leaves_with_path(params), jax.tree.leaves(first), strict=True
    ):
        assert np.array_equal(after, before) != is_adapter(path), path


def test_their_gradients_are_those_of_the_merged_matrix() -> None:
    """For y = x @ (w + scale a b): da = scale dw b', db = scale a' dw."""
    params = init(LORA, jax.random.key(0))
    noise = jax.random.normal
    params["layers"] = jax.tree_util.tree_map_with_path(
        lambda path, leaf: noise(jax.random.key(1), leaf.shape) / 8 if is_adapter(path) else leaf,
        params["layers"],
    )
    tokens = jax.random.randint(jax.random.key(2), (2, 17), 0, 256)
    gradients = jax.grad(loss_fn(LORA))(params, tokens)["layers"]
    settings, plain = merged(LORA, params)
    expected = jax.grad(loss_fn(settings))(plain, tokens)["layers"]
    for part, names in (("attention", ("query", "key", "output")), ("mlp", ("gate", "down"))):
        for name in names:
            adapter, dw = params["layers"][part][f"{name}_adapter"], expected[part][name]
            found = gradients[part][f"{name}_adapter"]
            of_a = SCALE * jnp.einsum("lio,lro->lir", dw, adapter["b"])
            of_b = SCALE * jnp.einsum("lir,lio->lro", adapter["a"], dw)
            np.testing.assert_allclose(found["a"], of_a, rtol=2e-3, atol=1e-5)
            np.testing.assert_allclose(found["b"], of_b, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("settings", [LORA, GPT, NF4, INT8], ids=["llama", "gpt", "NF4", "int8"])
def test_merged_weights_compute_the_same(settings: Settings) -> None:
    params = init(settings, jax.random.key(0))
    params = replaced(params, jax.tree.map(lambda leaf: leaf + 0.1, trained(params)))
    tokens = jax.random.randint(jax.random.key(2), (2, 16), 0, 256)
    plain, whole = merged(settings, params)
    assert plain == replace(settings, adapter_rank=0, base_bits=None)
    assert jax.tree.structure(whole) == jax.tree.structure(init(plain, jax.random.key(0)))
    whole = jax.tree.map(jnp.asarray, whole)
    np.testing.assert_allclose(
        logits(settings, params, tokens), logits(plain, whole, tokens), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("bits", [8, 4])
def test_matrices_are_near_their_codes(bits: int) -> None:
    layers = init(replace(NF4, adapter_rank=0, base_bits=None), jax.random.key(0))["layers"]
    again = decode(encode(layers, bits), bits)
    assert jax.tree.structure(again) == jax.tree.structure(layers)
    for before, after in zip(jax.tree.leaves(layers), jax.tree.leaves(again), strict=True):
        error = float(jnp.linalg.norm(after - before) / jnp.linalg.norm(before))
        assert error <= {8: 0.007, 4: 0.1}[bits]


def test_there_are_as_many_parameters_as_settings_say() -> None:
    for settings in (LORA, GPT):
        params = init(settings, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == settings.parameters
        count = sum(leaf.size for leaf in jax.tree.leaves(trained(params)))
        assert count == settings.adapter_parameters


def begun(
    recipe: Recipe, settings: Settings, keeping: Keeping | None, weights: Weights | None = None
) -> Run:
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        return begin(
            settings, recipe, mesh, read_library()[:20_000], seed=3, keeping=keeping,
            weights=weights,
        )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("bits", [None, 4], ids=["float32", "NF4"])
def test_adapters_are_saved_resumed_elsewhere_and_merged(tmp_path: Path, bits: int | None) -> None:
    plain = replace(NF4, adapter_rank=0, base_bits=None)
    base = begun(make_recipe("dp=2"), plain, Keeping(tmp_path / "base", every=2))
    [*base.proceed(2)]
    base.close()
    weights = open_weights("x", tmp_path / "base")
    settings = replace(plain, adapter_rank=2, base_bits=bits)
    losses = {}
    for name, meshes in {"at once": ["dp=2"], "resumed": ["dp=2", "fsdp=2,tp=2"]}.items():
        folder = tmp_path / name
        for i, mesh in enumerate(meshes):
            keeping = Keeping(folder, every=2, resume=i > 0)
            run = begun(make_recipe(mesh), settings, keeping, weights)
            losses[name] = [one.loss for one in run.proceed(4 * (i + 1) // len(meshes))]
            run.close()
    assert losses["resumed"] == pytest.approx(losses["at once"][2:], rel=1e-5)
    saved = read_saved("x", tmp_path / "resumed")
    assert saved.settings == plain
    with pytest.raises(ValueError, match="it has adapters beside its matrices; merge these"):
        open_weights("x", tmp_path / "resumed")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"mesh": "dp=2", "compress": "int8"}, "--adapter with --compress"),
        ({"mesh": "dp=2", "sync_every": 2}, "--adapter with --sync-every"),
        ({"mesh": "fsdp=2", "offload": "host"}, "--adapter with --offload"),
        ({"mesh": "dp=2", "average": 0.9}, "--adapter with --average"),
        ({"mesh": "dp=2", "remat": "none"}, "--base-bits 4 with --remat none"),
        ({"mesh": "tp=4"}, r"of the 128 columns of a matrix a device has 32 \(tp=4\)"),
    ],
)
def test_what_adapters_do_not_go_with_is_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make_recipe(**options).check(NF4)


def test_numbers_in_few_bits_are_not_trained() -> None:
    with pytest.raises(ValueError, match="--base-bits 4 without --adapter"):
        make_recipe("dp=2").check(replace(NF4, adapter_rank=0))


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ({"adapter_rank": -1}, "adapter_rank is -1; use 0 or more"),
        ({"adapter_rank": 4, "experts": 4}, "adapter_rank is 4 with 4 experts"),
        ({"adapter_rank": 4, "base_bits": 3}, "base_bits is 3; use 8 or 4"),
    ],
)
def test_impossible_settings_are_refused(sizes: dict[str, int], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Settings(**sizes)
