"""Norms, clipping, masked means and tied tables on meshes of several axes, as on one device."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.parallel import hybrid
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

P = jax.P
SIZES = "pp=2,dp=2,tp=2"
GRADIENTS = {
    "whole": [random(5), random()],
    "one": random(6, 4),
    "two": (random(8, 3), random(2, 8)),
    "three": random(4, 3, 4),
    "other": random(4, 2),
}
GRADIENTS = jax.tree.map(jnp.asarray, GRADIENTS)
SPECS = {
    "whole": [P(), P()],
    "one": P("dp"),
    "two": (P(("tp", "dp")), P("dp", "tp")),
    "three": P("pp", None, ("dp", "tp")),
    "other": P("tp"),
}
SETS = 4  # of axes over which a leaf is split: dp, dp and tp, all three, tp
NORM = float(optax.tree.norm(GRADIENTS))


def on_devices(function: Callable, specs: Any, gives: Any, sizes: str = SIZES) -> Any:
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(specs,), out_specs=gives))


def clip(max_norm: float) -> Callable:
    return lambda grads: hybrid.clip_gradients(grads, max_norm=max_norm)


@pytest.mark.parametrize("sizes", ["pp=1,dp=1,tp=1", SIZES, "pp=2,dp=1,tp=4"])
def test_the_norm_is_that_of_one_device(sizes: str) -> None:
    """Whatever splits a leaf; one that is replicated, over all axes or over some, counts once."""
    norm = on_devices(hybrid.global_norm, SPECS, P(), sizes)(GRADIENTS)
    np.testing.assert_allclose(norm, NORM, rtol=1e-6)
    assert norm.dtype == jnp.float32


@pytest.mark.parametrize("name", GRADIENTS)
def test_each_leaf_counts_once(name: str) -> None:
    """A leaf of ones alone: the square of the norm is the number of its elements."""
    ones = jax.tree.map(jnp.ones_like, GRADIENTS[name])
    norm = on_devices(hybrid.global_norm, SPECS[name], P())(ones)
    np.testing.assert_allclose(norm**2, sum(leaf.size for leaf in jax.tree.leaves(ones)), rtol=1e-6)


def test_a_number_is_sent_for_each_set_of_axes() -> None:
    lowered = on_devices(hybrid.global_norm, SPECS, P()).lower(GRADIENTS)
    sent = read_module(lowered.compiler_ir("stablehlo"))
    assert {(one.kind, one.operand_bytes) for one in sent} == {("all_reduce", 4)}
    axes = [("dp",), ("dp", "tp"), ("pp", "dp", "tp"), ("tp",)]
    assert sorted(one.axes for one in sent) == axes
    assert len(sent) == SETS


def test_the_norm_of_nothing_is_zero() -> None:
    assert on_devices(hybrid.global_norm, {}, P())({}) == 0


@pytest.mark.parametrize("max_norm", [NORM / 3, NORM / 1.001])
def test_too_large_gradients_are_scaled_as_on_one_device(max_norm: float) -> None:
    clipped, norm = on_devices(clip(max_norm), SPECS, (SPECS, P()))(GRADIENTS)
    expected, _ = optax.clip_by_global_norm(max_norm).update(GRADIENTS, optax.EmptyState())
    np.testing.assert_allclose(norm, NORM, rtol=1e-6)
    check = lambda got, right: np.testing.assert_allclose(got, right, rtol=1e-5)  # noqa: E731
    jax.tree.map(check, clipped, expected)


@pytest.mark.parametrize("factor", [1, 0])
def test_gradients_below_the_norm_are_left_as_they_are(factor: float) -> None:
    """Also gradients of nothing but zeros, by whose norm nothing can be divided."""
    gradients = jax.tree.map(lambda leaf: leaf * factor, GRADIENTS)
    clipped, norm = on_devices(clip(NORM * 1.001), SPECS, (SPECS, P()))(gradients)
    jax.tree.map(np.testing.assert_array_equal, clipped, gradients)
    np.testing.assert_allclose(norm, factor * NORM, rtol=1e-6)


def test_bfloat16_is_summed_in_float32_and_kept() -> None:
    """Neither the squares nor a sum of 4099 of them are bfloat16."""
    value = 1 + 2**-7
    low = partial(jnp.full, fill_value=value, dtype=jnp.bfloat16)
    gradients, specs = {"split": low(4098), "whole": low(1)}, {"split": P("dp"), "whole": P()}
    clipped, norm = on_devices(clip(1.0), specs, (specs, P()))(gradients)
    assert norm.dtype == jnp.float32
    np.testing.assert_allclose(norm, value * np.sqrt(4099), rtol=1e-6)
    assert {leaf.dtype for leaf in jax.tree.leaves(clipped)} == {jnp.dtype(jnp.bfloat16)}
    for leaf in jax.tree.leaves(clipped):
        np.testing.assert_allclose(leaf.astype(jnp.float32), 1 / np.sqrt(4099), rtol=2**-8)


def test_float64_is_kept() -> None:
    """Beside float32 leaves, over the same axes and over others."""
    with jax.enable_x64(True):
        wide = np.random.default_rng(0).standard_normal((8, 3))
        gradients = {"wide": jnp.asarray(wide), "narrow": GRADIENTS["one"], "whole": jnp.ones(2)}
        specs = {"wide": P("dp"), "narrow": P("dp"), "whole": P()}
        clipped, norm = on_devices(clip(1.0), specs, (specs, P()))(gradients)
        assert norm.dtype == jnp.float64
        narrow = np.float64(GRADIENTS["one"])
        expected = np.sqrt((wide**2).sum() + np.float32(narrow**2).sum(dtype=float) + 2)
        np.testing.assert_allclose(norm, expected, rtol=1e-7)
        np.testing.assert_allclose(clipped["wide"], wide / norm, rtol=1e-12)
        assert clipped["narrow"].dtype == jnp.float32
        alone = on_devices(hybrid.global_norm, P("dp"), P())(gradients["wide"])
        np.testing.assert_allclose(alone, np.linalg.norm(wide), rtol=1e-14)


MICROBATCHES, EXAMPLES, TOKENS = 3, 8, 4
PARAMS = {"w": random(5, 6), "gain": random(6)}
BATCHES = {
    "x": random(MICROBATCHES, EXAMPLES, TOKENS, 5),
    "y": random(MICROBATCHES, EXAMPLES, TOKENS, 6),
}
# From none to all of the tokens of an example are real; the first half of a microbatch has none.
MASKS = np.random.default_rng(7).random((MICROBATCHES, EXAMPLES, TOKENS)) < np.linspace(
    0, 1, EXAMPLES
).reshape(1, -1, 1)
MASKS[1, : EXAMPLES // 2] = False
BATCHES["y"][~MASKS] = 1e6  # a derivative that would be seen
BATCHES["added"] = np.where(MASKS, 0, np.nan).astype(np.float32)


def losses_of_tokens(params: Any, batch: Any) -> jax.Array:
    y = jnp.tanh(batch["x"] @ params["w"]) * params["gain"][None, None]
    return jnp.mean((y - batch["y"]) ** 2, axis=-1) + batch["added"]


def masked(*axes: str) -> Call:
    """The call of `masked_gradients` on examples that are split over these axes."""

    def per_device(params: Any, batches: Any, masks: Any) -> Any:
        return hybrid.masked_gradients(losses_of_tokens, params, batches, masks, axes=axes)

    of_batch, args = P(None, axes), (PARAMS, BATCHES, MASKS)
    return Call(hybrid.masked_gradients, per_device, args, (P(), of_batch, of_batch), P(), 1)


def of_all_real_tokens(params: Any, batches: Any, masks: Any) -> Any:
    """The mean over one batch of all examples, and its gradient."""

    def mean(params: Any) -> jax.Array:
        batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batches)
        losses = losses_of_tokens(params, batch)
        return jnp.mean(losses, where=masks.reshape(losses.shape))

    return jax.value_and_grad(mean)(params)


@pytest.mark.parametrize(
    ("sizes", "axes"),
    [
        ("dp=1", ("dp",)),
        ("dp=4,tp=2", ("dp",)),
        ("pp=2,dp=2,cp=2", ("dp", "cp")),
        ("dp=2,fsdp=2,cp=2", ("dp", "fsdp", "cp")),
    ],
)
def test_every_real_token_counts_alike(sizes: str, axes: tuple[str, ...]) -> None:
    """Also where a device has no real token in some microbatch, or none at all."""
    assert_equal_one_device(masked(*axes), of_all_real_tokens, sizes)


def test_low_precision_counts_every_token() -> None:
    """The number of tokens and their losses are added up in float32: bfloat16 ends at 256."""
    ones, factor = jnp.ones((3, 8, 171), jnp.bfloat16), jnp.asarray(1 + 2**-7, jnp.bfloat16)

    def per_device(factor: jax.Array, batches: jax.Array) -> Any:
        masks = batches > 0
        return hybrid.masked_gradients(jnp.multiply, factor, batches, masks, axes=("dp",))

    call = Call(hybrid.masked_gradients, per_device, (factor, ones), (P(), P(None, "dp")), P())
    loss, gradient = call.program("dp=4,tp=2", differentiate=False)(*call.args)
    assert (loss.dtype, gradient.dtype) == (jnp.float32, jnp.bfloat16)
    np.testing.assert_allclose(loss, float(factor), rtol=1e-6)
    np.testing.assert_allclose(float(gradient), 1, rtol=2**-7)


V, D = 12, 5


def tied(stages: int, shards: int, axis: str) -> Call:
    """A call of `tied_table_gradient`, [stages, shards, ...]; what has no use is NaN."""
    embedding, head = random(stages, shards, V, D), random(stages, shards, D, V)
    embedding[1:] = np.nan
    head[:-1] = np.nan

    def per_device(embedding_grad: jax.Array, head_grad: jax.Array) -> jax.Array:
        own = embedding_grad[0, 0], head_grad[0, 0]
        return hybrid.tied_table_gradient(*own, pipeline_axis="pp", shard_axis=axis)

    return Call(
        hybrid.tied_table_gradient, per_device, (embedding, head),
        (P("pp", axis), P("pp", axis)), P(axis), names={"v": V, "d": D},
    )  # fmt: skip


def of_both_uses(embedding: jax.Array, head: jax.Array) -> jax.Array:
    return jnp.sum(embedding[0], axis=0) + jnp.sum(head[-1], axis=0).T


@pytest.mark.parametrize(
    ("stages", "shards", "axis", "others"),
    [(2, 4, "dp", ""), (4, 2, "fsdp", ""), (3, 1, "dp", ",tp=2"), (1, 4, "dp", "")],
)
def test_a_tied_table_has_the_gradient_of_both_uses(
    stages: int, shards: int, axis: str, others: str
) -> None:
    """One stage has both of them."""
    call = tied(stages, shards, axis)
    assert_equal_one_device(call, of_both_uses, f"pp={stages},{axis}={shards}{others}")


EVEN = {"w": random(8, 5), "out": [random(4, 8), random(3)]}
EVEN_SPECS = {"w": P("dp"), "out": [P("dp"), P()]}
CALLS = [
    Call(hybrid.global_norm, hybrid.global_norm, (EVEN,), (EVEN_SPECS,), P()),
    Call(hybrid.clip_gradients, clip(1.0), (EVEN,), (EVEN_SPECS,), (EVEN_SPECS, P()), 0),
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    call = replace(call, names={"sets": 1})
    assert_docstring_holds(call, "dp=4,tp=2", axis="dp")


@pytest.mark.parametrize("sizes", ["dp=4,tp=2", "pp=2,dp=2"])
def test_masked_gradients_send_and_hold_what_they_say(sizes: str) -> None:
    assert_docstring_holds(masked("dp"), sizes, axes="dp")


@pytest.mark.parametrize(("stages", "shards"), [(2, 4), (4, 2)])
def test_tied_tables_send_and_hold_what_they_say(stages: int, shards: int) -> None:
    call, sizes = tied(stages, shards, "dp"), f"pp={stages},dp={shards}"
    assert_docstring_holds(call, sizes, shard_axis="dp", pipeline_axis="pp")
