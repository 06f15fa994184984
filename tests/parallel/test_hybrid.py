"""Norms and clipping of leaves that are split over any axes, as on one device."""

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
from tests.parallel.calls import Call, assert_docstring_holds

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
