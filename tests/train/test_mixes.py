"""Every mix of axes trains as one device does, and holds and sends what it should."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import lax

from jaxpar.collectives import leaves
from jaxpar.mesh import vary, varying_axes
from jaxpar.model import Settings
from jaxpar.parallel import hybrid
from jaxpar.train import gradients, setup, step
from jaxpar.train.optimizer import decaying_leaves
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run
from tests.train.runs import BATCH, ENDS, PARAMETERS, assert_trains_as_one_device, trained
from tests.train.runs import SETTINGS as LLAMA

GPT = Settings(
    layers=4, d_model=16, heads=4, kv_heads=2, sequence=16,
    norm="layer", positions="learned", mlp="gelu", tied=True,
)  # fmt: skip
BIASED = replace(GPT, biases="all")
DOCUMENTS = replace(LLAMA, document_end=ord(" "))  # as if each word was a document
MIXES = [
    (LLAMA, "pp=2,dp=2,fsdp=2,tp=2", {"zero": 3, "microbatches": 4, "clip": 0.5}),
    (GPT, "pp=2,dp=2,fsdp=2,tp=2", {"zero": 3, "gather": "step", "sequence_parallel": True}),
    (LLAMA, "pp=2,dp=2,fsdp=2,tp=2", {"zero": 1, "optimizer": "sgd", "microbatches": 2}),
    (LLAMA, "pp=2,dp=2,tp=4", {"zero": 1, "schedule": "zb-h1", "microbatches": 4}),
    (LLAMA, "pp=2,dp=2,tp=4", {"sequence_parallel": True, "microbatches": 2, "remat": "full"}),
    (LLAMA, "pp=2,dp=2,cp=2,tp=2", {"zero": 1, "schedule": "interleaved", "microbatches": 2}),
    (LLAMA, "pp=2,cp=4", {"context": "ulysses", "schedule": "zb-h1", "microbatches": 4}),
    (LLAMA, "fsdp=2,cp=2,tp=2", {"context": "ulysses", "sequence_parallel": True}),
    (LLAMA, "dp=2,cp=4", {"context": "ring", "zero": 1, "microbatches": 2}),
    (GPT, "dp=2,cp=4", {"context": "gather", "remat": "full", "optimizer": "sgd"}),
    (
        LLAMA,
        "pp=2,fsdp=2,cp=2,tp=2",
        {"sequence_parallel": True, "microbatches": 4, "remat": "segments"},
    ),
    (GPT, "pp=2,dp=2,fsdp=2", {"schedule": "dualpipe-v", "microbatches": 4, "optimizer": "sgd"}),
    (LLAMA, "pp=4,dp=2,tp=2", {"zero": 1, "microbatches": 4, "schedule": "gpipe", "remat": "none"}),
    (LLAMA, "dp=2,fsdp=2,tp=2", {"optimizer": "sgd", "clip": 0.5}),
    (LLAMA, "dp=2,fsdp=2,tp=4", {"sequence_parallel": True, "remat": "full", "microbatches": 2}),
    (LLAMA, "dp=2,fsdp=2,tp=2", {"zero": 2, "microbatches": 2, "sequence_parallel": True}),
    (LLAMA, "dp=2,fsdp=2,cp=2,tp=2", {"microbatches": 2, "sequence_parallel": True}),
    (GPT, "dp=2,cp=2,tp=2", {"zero": 2, "microbatches": 2, "remat": "selective"}),
    (LLAMA, "dp=2,cp=4,tp=2", {"zero": 3, "gather": "step", "remat": "none", "clip": 1.0}),
    (LLAMA, "fsdp=2,cp=2,tp=2", {"offload": "host", "clip": 0.5}),
    (BIASED, "fsdp=4,tp=2", {"remat": "selective", "optimizer": "sgd"}),
    (BIASED, "fsdp=8", {"remat": "segments"}),
    (DOCUMENTS, "dp=2,fsdp=2,tp=2", {"sequence_parallel": True, "optimizer": "sgd"}),
    (DOCUMENTS, "fsdp=2,cp=2,tp=2", {"context": "gather", "remat": "full", "clip": 0.5}),
    (DOCUMENTS, "dp=2,cp=4", {"context": "gather", "zero": 2, "microbatches": 2}),
    (DOCUMENTS, "dp=2,tp=4", {"attention": "flash", "remat": "selective"}),
]


def named(mesh: str, options: dict[str, Any]) -> str:
    return " ".join([mesh, *(f"{name}={value}" for name, value in options.items())])


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "mesh", "options"),
    MIXES,
    ids=[
        named(*mix) + " documents" * (settings is DOCUMENTS) + " biases" * (settings is BIASED)
        for settings, *mix in MIXES
    ],
)
def test_mixes_train_as_one_device(settings: Settings, mesh: str, options: dict) -> None:
    assert_trains_as_one_device(make_recipe(mesh, **options), settings)


def drawn_mixes(count: int) -> list[tuple[str, dict[str, Any]]]:
    """Different mixes of up to 16 devices, with what else a recipe says, all of which fit."""
    rng, mixes = np.random.default_rng(18), {}
    while len(mixes) < count:
        sizes = {
            axis: int(rng.choice((1, 1, 2, 2, 4))) for axis in ("pp", "dp", "fsdp", "cp", "tp")
        }
        options = {
            "zero": int(rng.integers(4)),
            "remat": str(rng.choice(("none", "full", "selective", "products", "segments"))),
            "gather": rng.choice((None, "use", "step")),
            "sequence_parallel": bool(rng.integers(2)),
            "microbatches": int(rng.choice((2, 4))),
            "schedule": str(rng.choice(("gpipe", "1f1b", "interleaved", "zb-h1"))),
            "optimizer": str(rng.choice(("adamw", "sgd"))),
            "clip": rng.choice((None, 0.5)),
            "context": str(rng.choice(("zigzag", "ring", "gather", "ulysses"))),
        }
        mesh = ",".join(f"{axis}={n}" for axis, n in sizes.items() if n > 1)
        if sizes["pp"] == 1:
            del options["schedule"]
        if sizes["cp"] == 1:
            del options["context"]
        if np.prod(list(sizes.values())) > 16 or sum(n > 1 for n in sizes.values()) < 2:
            continue
        try:
            make_recipe(mesh, batch=BATCH, **options).check(LLAMA)
        except ValueError:
            continue
        mixes[named(mesh, options)] = mesh, options
    return list(mixes.values())


DRAWN = drawn_mixes(40)


@pytest.mark.full
@pytest.mark.parametrize(("mesh", "options"), DRAWN, ids=[named(*mix) for mix in DRAWN])
def test_in_float64_drawn_mixes_are_exact(mesh: str, options: dict) -> None:
    with jax.enable_x64(True):
        assert_trains_as_one_device(make_recipe(mesh, **options), rel=1e-10, steps=4)


RIGHT_NORM = hybrid.global_norm


def four_times(found: Any) -> Any:
    return jax.tree.map(lambda leaf: 4 * leaf, found)


def summed_twice_over_dp(grads: Any, specs: Any) -> Any:
    return lax.psum(leaves.sum_gradients(grads, specs), "dp")


def gains_summed_twice_over_tp(grads: Any, specs: Any) -> Any:
    def once_more(path: Any, leaf: jax.Array) -> jax.Array:
        gain = "norm" in jax.tree_util.keystr(path) and "tp" not in varying_axes(leaf)
        return lax.psum(leaf, "tp") if gain else leaf

    return jax.tree_util.tree_map_with_path(once_more, leaves.sum_gradients(grads, specs))


def copies_counted(grads: Any) -> jax.Array:
    squares = sum(jax.numpy.sum(leaf**2) for leaf in jax.tree.leaves(grads))
    everywhere = ("dp", "fsdp", "tp")
    return jax.numpy.sqrt(lax.psum(vary(squares, everywhere), everywhere))


def norms_added(grads: Any) -> jax.Array:
    return sum(map(RIGHT_NORM, jax.tree.leaves(grads)), jax.numpy.zeros(()))


MUTANTS = {
    "gradients summed, not averaged": (
        gradients, "sum_gradients", lambda g, specs: four_times(leaves.sum_gradients(g, specs))
    ),
    "summed over dp twice": (gradients, "sum_gradients", summed_twice_over_dp),
    "gains summed over tp once more": (gradients, "sum_gradients", gains_summed_twice_over_tp),
    "copies counted in the norm": (hybrid, "global_norm", copies_counted),
    "norms of leaves added": (hybrid, "global_norm", norms_added),
    "clipped by nothing": (
        step, "clip_gradients", lambda grads, max_norm: (grads, RIGHT_NORM(grads))
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_what_a_loss_under_adam_does_not_show_is_seen(
    name: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these mistakes has been in a framework that people use."""
    module, function, mistake = MUTANTS[name]
    recipe = make_recipe("dp=2,fsdp=2,tp=2", clip=0.5, optimizer=optimizer)
    assert_trains_as_one_device(recipe, steps=3)
    monkeypatch.setattr(module, function, mistake)
    with pytest.raises(AssertionError):
        assert_trains_as_one_device(recipe, steps=3)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("pp=2,fsdp=2,tp=2", {"zero": 1, "microbatches": 2}),
        ("dp=2,fsdp=2,tp=2", {"zero": 2, "microbatches": 2, "sequence_parallel": True}),
        ("pp=2,fsdp=2,tp=2", {"zero": 3, "microbatches": 2, "sequence_parallel": True}),
        ("pp=2,dp=2,fsdp=2,tp=2", {"zero": 3, "gather": "step"}),
    ],
)
def test_what_a_mask_leaves_out_does_not_decay(
    mesh: str, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gains and biases end as on one device, and not as where they decay.

    With its usual `eps`, Adam would magnify how sums over many devices are rounded.
    """

    def last_params(recipe: Recipe, mask: Any) -> Any:
        optimizer = optax.adamw(1e-3, eps=1e-2, weight_decay=10.0, mask=mask)
        monkeypatch.setattr(setup, "make_optimizer", lambda _: optimizer)
        return trained(recipe, GPT, steps=5).params

    recipe = make_recipe(mesh, **options)
    masked, unmasked = (last_params(make_recipe("dp=1"), mask) for mask in (decaying_leaves, None))
    close = partial(np.allclose, rtol=1e-4, atol=1e-6)
    found = last_params(recipe, decaying_leaves)
    assert all(jax.tree.leaves(jax.tree.map(close, found, masked)))
    differ = jax.tree.map(lambda a, b: not close(a, b), found, unmasked)
    norms = jax.tree.map(lambda decay: not decay, decaying_leaves(found))
    assert all(jax.tree.leaves(jax.tree.map(lambda n, d: d or not n, norms, differ)))


def bytes_sent(run: Run, kind: str, axis: str) -> float:
    """The bytes that a step sends over an axis by one kind of collective, without scalars."""
    return sum(
        one.times * one.wire_bytes
        for one in run.report.collectives
        if one.kind == kind and one.axes == (axis,) and one.operand_bytes > 4
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=8", zero=1, microbatches=2),
        make_recipe("dp=8", zero=2, microbatches=2),
        make_recipe("dp=8", zero=3),
        make_recipe("dp=2,fsdp=4", zero=2),
        make_recipe("dp=2,fsdp=4", zero=3, remat="full"),
    ],
    ids=lambda recipe: f"{recipe.layout.mesh} zero={recipe.layout.zero}",
)
def test_stages_of_zero_hold_and_send_their_shards(recipe: Recipe) -> None:
    run = assert_trains_as_one_device(recipe)

    n = recipe.layout.sizes[recipe.layout.state_axis]
    whole, batch_bytes = 4 * PARAMETERS, 4 * BATCH // recipe.layout.devices * 17
    params = whole / n if recipe.layout.zero == 3 else whole
    assert run.report.memory.arguments_bytes == params + 2 * whole / n + batch_bytes + 4

    axis, part = recipe.layout.state_axis, whole * (n - 1) / n
    layers = part - 4 * (n - 1) / n * ENDS
    gathered = part + layers if recipe.layout.zero == 3 else part
    scattered = part * recipe.microbatches if recipe.layout.zero == 2 else part
    assert bytes_sent(run, "reduce_scatter", axis) == pytest.approx(scattered)
    assert bytes_sent(run, "all_gather", axis) == pytest.approx(gathered)
    assert bytes_sent(run, "all_reduce", axis) == 0
    if len(recipe.layout.batch_axes) > 1:
        assert bytes_sent(run, "all_reduce", "dp") == pytest.approx(whole / n)


@pytest.mark.full
def test_what_does_not_divide_is_shared_by_fewer() -> None:
    odd = Settings(layers=1, d_model=18, heads=3, d_ff=22, vocabulary=256, sequence=16)
    assert_trains_as_one_device(make_recipe("fsdp=8"), odd)
    assert_trains_as_one_device(make_recipe("fsdp=2,cp=4", zero=1), odd)


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=2,tp=4", microbatches=2),
        make_recipe("tp=8", sequence_parallel=True),
        make_recipe("dp=2,tp=2", sequence_parallel=True, remat="full"),
    ],
    ids=lambda recipe: f"{recipe.layout.mesh} {recipe.layout.remat}",
)
def test_split_layers_hold_and_send_their_parts(recipe: Recipe) -> None:
    run = assert_trains_as_one_device(recipe)
    n, d = recipe.layout.tp, LLAMA.d_model
    whole = d * (2 * LLAMA.layers + 1)  # norms
    if n > LLAMA.key_heads:
        whole += 2 * LLAMA.layers * d * LLAMA.key_heads * LLAMA.d_head
    params = (PARAMETERS - whole) / n + whole
    batch_bytes = 4 * BATCH // recipe.layout.batch_parts * 17
    assert run.report.memory.arguments_bytes == 3 * 4 * params + batch_bytes + 4
    # With sequence parallelism, what tp holds alike is summed over dp and tp at once.
    alone = params - whole if recipe.layout.sequence_parallel else params
    assert bytes_sent(run, "all_reduce", "dp") == pytest.approx(4 * alone if n < 8 else 0)
