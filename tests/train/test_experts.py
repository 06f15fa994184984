"""Decoders with experts train on every mix of axes as on one device that groups tokens alike."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.experts import route
from jaxpar.inspector.report import Report
from jaxpar.model import Settings, is_load, mixture
from jaxpar.parallel.expert import load_balance_loss, update_expert_bias
from jaxpar.train import setup
from jaxpar.train.experts import BIAS_RATE, balanced
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.sent import sent_over_axes
from tests.train.lowered import written
from tests.train.runs import BATCH, Taken, assert_sends_what_was_predicted, trained
from tests.train.test_mixes import named

LOSS = Settings(layers=4, d_model=16, heads=8, kv_heads=2, d_ff=24, sequence=16, experts=4, top_k=2)
BIAS = replace(LOSS, balance="bias", shared_experts=1)
ALONE = replace(LOSS, balance="none", top_k=1, experts=8)
ROOM = replace(LOSS, capacity_factor=2.0)  # an expert has a row for every token
TIGHT = replace(BIAS, capacity_factor=1.0, experts=8)
MIXES = [
    (LOSS, "ep=4,dp=2", {"optimizer": "sgd"}),
    (LOSS, "ep=2,tp=2", {"sequence_parallel": True, "clip": 0.5}),
    (LOSS, "pp=2,ep=2,tp=2", {"microbatches": 2, "optimizer": "sgd"}),
    (LOSS, "pp=2,dp=2,ep=2", {"zero": 1, "microbatches": 4, "schedule": "zb-h1"}),
    (LOSS, "ep=2,cp=2,tp=2", {"zero": 3, "microbatches": 2, "remat": "full"}),
    (BIAS, "fsdp=2,ep=4", {"microbatches": 2, "optimizer": "sgd"}),
    (BIAS, "dp=2,ep=2,cp=2", {"zero": 2, "microbatches": 2, "context": "ulysses"}),
    (BIAS, "pp=2,fsdp=2,ep=2,tp=2", {"microbatches": 2, "sequence_parallel": True}),
    (BIAS, "pp=2,ep=2", {"zero": 3, "gather": "step", "microbatches": 4, "schedule": "gpipe"}),
    (BIAS, "dp=2,tp=4", {"remat": "selective", "optimizer": "sgd"}),
    (ALONE, "ep=8", {"zero": 1, "remat": "none"}),
    (ALONE, "dp=2,fsdp=2,ep=2,tp=2", {"remat": "segments", "optimizer": "sgd", "clip": 0.5}),
    (ALONE, "fsdp=2,ep=2", {"offload": "host"}),
    (ROOM, "ep=2,cp=4", {"zero": 1, "optimizer": "sgd"}),
    (ROOM, "pp=2,ep=2,tp=2", {"microbatches": 2, "remat": "segments", "sequence_parallel": True}),
    (TIGHT, "ep=4,dp=2", {"zero": 2, "microbatches": 2}),
    (TIGHT, "pp=2,fsdp=2,ep=2", {"microbatches": 2, "optimizer": "sgd"}),
    (TIGHT, "dp=2,ep=2,tp=2", {"sequence_parallel": True, "clip": 0.5}),
]  # fmt: skip
NAMES = [f"{s.balance} {s.capacity_factor} {named(*mix)}" for s, *mix in MIXES]


def drops(settings: Settings) -> bool:
    """Whether an expert has fewer rows than a device has tokens."""
    factor = settings.capacity_factor
    return factor is not None and factor * settings.top_k < settings.experts


@cache
def alike(
    settings: Settings, optimizer: str, clip: float | None, parts: int, microbatches: int
) -> Taken:
    """One device that routes tokens in groups as so many devices do, each with its microbatches.

    Capacity is for the tokens of a device, and balance for those of all devices in a microbatch.
    """
    order = None
    if drops(settings):
        microbatches *= parts
    else:
        examples = np.arange(BATCH).reshape(parts, microbatches, -1)
        order = tuple(examples.swapaxes(0, 1).ravel().tolist())
    recipe = make_recipe("dp=1", optimizer=optimizer, clip=clip, microbatches=microbatches)
    return trained(recipe, settings, steps=4, order=order)


def assert_trains_alike(recipe: Recipe, settings: Settings) -> None:
    """Compares losses, gradient norms, loads and what is dropped in float64."""
    with jax.enable_x64(True):
        taken = trained(recipe, settings, steps=4)
        parts = recipe.layout.batch_parts
        expected = alike(settings, recipe.optimizer.name, recipe.clip, parts, recipe.microbatches)
    for one, other in zip(taken[1:3], expected[1:3], strict=True):
        assert one == pytest.approx(other, rel=1e-10)
    assert taken.loads == pytest.approx(expected.loads, rel=1e-6)
    assert all(1 < load < settings.experts for load in taken.loads)
    found, wanted = ([share or 0.0 for share in run.dropped] for run in (taken, expected))
    assert found == pytest.approx(wanted, rel=1e-6)
    assert all(share > 0 for share in found) == drops(settings)


@pytest.mark.full
@pytest.mark.parametrize(("settings", "mesh", "options"), MIXES, ids=NAMES)
def test_mixes_train_as_one_device(settings: Settings, mesh: str, options: dict) -> None:
    assert_trains_alike(make_recipe(mesh, **options), settings)


@pytest.mark.parametrize(
    ("settings", "mesh", "options"),
    [mix for mix in MIXES if "offload" not in mix[2]],
    ids=[name for name in NAMES if "offload" not in name],
)
def test_mixes_send_what_was_predicted(settings: Settings, mesh: str, options: dict) -> None:
    recipe = make_recipe(mesh, **options)
    report = Report(written(recipe, settings))
    assert_sends_what_was_predicted(sent_over_axes(report, recipe, settings))


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=1", {}),
        ("dp=1", {"microbatches": 2}),
        pytest.param("ep=2,cp=2", {"microbatches": 2}, marks=pytest.mark.full),
        pytest.param("dp=2,cp=2,tp=2", {"sequence_parallel": True}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_dropped_choices_are_those_that_a_count_finds(
    mesh: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each layer, device and microbatch, in the order in which rows are given."""
    settings = replace(TIGHT, balance="none")
    found: list[np.ndarray] = []

    def noted(*given: Any, **sizes: Any) -> Any:
        routing = route(*given, **sizes)
        jax.debug.callback(lambda experts: found.append(np.asarray(experts)), routing.experts)
        return routing

    monkeypatch.setattr(mixture, "route", noted)
    recipe = make_recipe(mesh, remat="none", **options)
    taken = trained(recipe, settings, steps=1)
    jax.effects_barrier()
    assert len(found) == recipe.microbatches * settings.layers * recipe.layout.devices
    dropped = sum(map(beyond_capacity, found)) / sum(experts.size for experts in found)
    assert 0 < dropped < 1
    assert taken.dropped == pytest.approx([dropped], rel=1e-6)


def beyond_capacity(experts: np.ndarray) -> int:
    """How many of these choices find no row in an expert of `TIGHT`, counted one by one."""
    tokens, k = experts.shape
    free, dropped = [tokens * k // TIGHT.experts] * TIGHT.experts, 0
    for expert in experts.T.ravel():
        dropped += free[expert] == 0
        free[expert] = max(0, free[expert] - 1)
    return dropped


@pytest.mark.full
def test_without_a_capacity_nothing_is_told_of_drops() -> None:
    assert trained(make_recipe("ep=2"), LOSS, steps=2).dropped == [None, None]


def of_own_tokens(*given: Any, axis: Any) -> jax.Array:
    """The mean of the losses of each device, in place of the loss of all tokens."""
    return jax.lax.pmean(load_balance_loss(*given, axis=()), axis)


def attached_once_more(y: jax.Array, x: jax.Array, gradient: jax.Array) -> jax.Array:
    return RIGHT_ATTACH(y, x, 2 * gradient)


RIGHT_ATTACH = mixture.attach
MUTANTS = {
    "of own tokens": ("load_balance_loss", of_own_tokens),
    "twice": ("attach", attached_once_more),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MUTANTS)
def test_a_balance_of_another_kind_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, mistake = MUTANTS[name]
    recipe = make_recipe("ep=2,dp=2", optimizer="sgd")
    assert_trains_alike(recipe, LOSS)
    monkeypatch.setattr(mixture, function, mistake)
    with pytest.raises(AssertionError):
        assert_trains_alike(recipe, LOSS)


def test_biases_move_as_taught() -> None:
    """The trainer's optimizer, given loads in place of gradients, and `update_expert_bias`."""
    experts = jnp.array([[0, 1], [0, 2], [0, 1]])
    bias = jnp.array([0.1, -0.2, 0.3, 0.0])
    taught = update_expert_bias(bias, experts, rate=BIAS_RATE, axis=())
    load = jnp.bincount(experts.ravel(), length=4) / experts.size
    params = {"mlp": {"load_bias": bias, "router": jnp.ones(3)}}
    given = {"mlp": {"load_bias": 4 * load - 1, "router": jnp.ones(3)}}
    optimizer = balanced(optax.sgd(0.5), BIAS_RATE)
    moves, _ = optimizer.update(given, optimizer.init(params), params)
    new = optax.apply_updates(params, moves)["mlp"]
    np.testing.assert_allclose(new["load_bias"], taught, rtol=1e-6)
    np.testing.assert_allclose(new["router"], 0.5)


@pytest.mark.full
def test_only_a_bias_that_balances_moves() -> None:
    for settings in (LOSS, BIAS):
        params = trained(make_recipe("ep=2"), settings, steps=2).params
        found = [leaf for path, leaf in jax.tree.leaves_with_path(params) if is_load(path)]
        assert np.any(found[0] != 0) == (settings.balance == "bias")
        assert np.abs(found).max() <= 2 * BIAS_RATE * 1.001


@pytest.mark.full
def test_bf16_trains_too() -> None:
    taken = trained(make_recipe("ep=2,dp=2", precision="bf16"), BIAS, steps=4)
    expected = trained(make_recipe("dp=1", precision="bf16"), BIAS, steps=4)
    assert taken.losses == pytest.approx(expected.losses, rel=2e-2)


@pytest.mark.full
def test_a_device_holds_its_part_of_the_experts() -> None:
    """Of parameters and of Adam's two moments; the rest is replicated."""
    params = jax.eval_shape(lambda: setup.init(ALONE, jax.random.key(0)))
    sizes = {True: 0, False: 0}
    for path, leaf in jax.tree.leaves_with_path(params):
        sizes["experts" in jax.tree_util.keystr(path)] += leaf.size
    run = trained(make_recipe("ep=8"), ALONE, steps=1).run
    tokens = 4 * BATCH // 8 * (ALONE.sequence + 1)
    expected = 3 * 4 * (sizes[True] / 8 + sizes[False]) + tokens + 4
    assert run.report.memory.arguments_bytes == expected


@pytest.mark.parametrize(
    ("mesh", "settings", "options", "line"),
    [
        (
            "ep=2",
            Settings(),
            {},
            r"axis ep \(size 2\) without experts: .*; use --experts N, or axis",
        ),
        ("ep=4", Settings(experts=6), {}, r"e \(size 6\) must be divisible by mesh axis ep"),
        ("ep=2", LOSS, {"precision": "fp16"}, "--experts with --precision fp16: what balances"),
        ("dp=2,ep=2", LOSS, {"compress": "int8"}, "--experts with --compress: the load of experts"),
        ("dp=2,ep=2", LOSS, {"sync_every": 2}, "--experts with --sync-every: the load of experts"),
    ],
)
def test_what_does_not_go_with_experts(
    mesh: str, settings: Settings, options: dict, line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        make_recipe(mesh, **options).check(settings)
