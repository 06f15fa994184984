"""Each kind of remat keeps and recomputes what it should, and changes no value."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from jaxpar.inspector import Report
from jaxpar.inspector import inspect as inspect_program
from jaxpar.inspector.residuals import Residual, saved_residuals
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh, spec
from jaxpar.model import Settings
from jaxpar.model.decoder import Layer
from jaxpar.parallel import remat
from tests.arrays import random
from tests.comm_lines import comm, evaluate, memory

B, T, D = 2, 64, 32
GPT = Settings(d_model=D, heads=4, mlp="gelu", norm="layer", positions="learned")
NAMES = ("query", "up")
BY_KIND = {kind: partial(remat.scan_layers, remat=kind) for kind in (*remat.KINDS, NAMES)}
ACTIVATION = jax.ShapeDtypeStruct((B, T, D), jnp.float32)
X_BYTES = 4 * B * T * D


def layer(params: dict, x: jax.Array) -> jax.Array:
    hidden = checkpoint_name(x @ params["up"], "up")
    return x + jnp.tanh(hidden) @ params["down"]


PARAMS = {"up": random(6, 4, 8) / 4, "down": random(6, 8, 4) / 4}
X = random(12, 4) / 4


def one_after_another(params: dict, x: jax.Array) -> jax.Array:
    for i in range(6):
        x = layer(jax.tree.map(lambda leaf, i=i: leaf[i], params), x)
    return x


def with_gradient(function: Callable) -> Callable:
    def both(params: Any, x: jax.Array) -> tuple:
        y, pull = jax.vjp(function, params, x)
        return y, pull(y)

    return both


WAYS = [partial(apply_layers, layer) for apply_layers in BY_KIND.values()]
WAYS += [partial(remat.remat_layers, layer, segments=segments) for segments in (1, 2, 3, 6)]


@pytest.mark.parametrize("sizes", ["dp=4", "tp=2,cp=3"])
def test_every_kind_equals_one_device_and_sends_nothing(sizes: str) -> None:
    """Each device of the last axis has its own examples, and all have the same layers."""
    mesh = make_mesh(sizes)
    over = spec(f"b_{mesh.axis_names[-1]} d")

    def all_ways(params: dict, x: jax.Array) -> list:
        params = jax.lax.pcast(params, mesh.axis_names[-1], to="varying")
        got = [with_gradient(way)(params, x) for way in WAYS]
        return [(y, of_x) for y, (_, of_x) in got]

    on_devices = jax.jit(
        jax.shard_map(all_ways, mesh=mesh, in_specs=(spec(""), over), out_specs=over)
    )
    y, (_, of_x) = jax.jit(with_gradient(one_after_another))(PARAMS, X)
    for got, of_got in on_devices(PARAMS, X):
        np.testing.assert_allclose(got, y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(of_got, of_x, rtol=1e-5, atol=1e-6)
    assert not read_module(on_devices.lower(PARAMS, X).compiler_ir("stablehlo"))
    for function in (remat.scan_layers, remat.remat_layers):
        assert comm(function, "forward") == comm(function, "backward") == ()


def test_the_gradient_of_parameters_is_that_of_one_device() -> None:
    expected = jax.jit(with_gradient(one_after_another))(PARAMS, X)
    got = jax.jit(lambda params, x: [with_gradient(way)(params, x) for way in WAYS])(PARAMS, X)
    for one in got:
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), one, expected)


@cache
def decoder_layer(settings: Settings) -> tuple[Callable, Any]:
    graph, params = nnx.split(nnx.eval_shape(lambda: Layer(settings, nnx.Rngs(0))))
    return lambda params, x: nnx.merge(graph, params)(x), params


def kept(settings: Settings, kind: Any) -> list[Residual]:
    return saved_residuals(*decoder_layer(settings), ACTIVATION, remat=kind)


@cache
def report(apply_layers: Callable, layers: int) -> Report:
    layer_fn, one = decoder_layer(GPT)
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((layers, *leaf.shape), leaf.dtype), one)
    total = lambda params, x: apply_layers(layer_fn, params, x).sum()  # noqa: E731
    return inspect_program(jax.grad(total, (0, 1)), params, ACTIVATION)


def growth(kind: Any, layers: int = 2) -> tuple[float, float]:
    """The bytes and the flops that one more layer adds."""
    less, more = (report(BY_KIND[kind], n) for n in (layers, 2 * layers))
    assert less.memory and more.memory and less.flops and more.flops
    added = more.memory.temp_bytes - less.memory.temp_bytes
    return added / layers, (more.flops - less.flops) / layers


def names(found: list[Residual]) -> set[str]:
    return {one.what.split("'")[1] for one in found if one.what.startswith("named")}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["none", "full", "selective", "alternate", "products", NAMES])
def test_a_layer_keeps_what_is_listed(kind: Any) -> None:
    found = kept(GPT, kind)
    # The causal mask and what comes of it is the same in every layer, and is kept once.
    own = [one for one in found if "_where" not in one.what]
    assert (own == found) == (kind != "none")
    added, _ = growth(kind)
    assert added == pytest.approx(sum(one.bytes for one in own), rel=0.01)


def test_selective_is_the_list_of_korthikanti() -> None:
    """Ours has no dropout, whose two masks are 2 of the paper's 34 bytes, and is in 32 bits."""
    added, _ = growth("selective")
    assert added == pytest.approx(2 * (34 - 2) * B * T * D, rel=0.01)
    assert names(kept(GPT, "selective")) == set(remat.MARKS) - {"gate", "gathered", "low_rank"}
    swiglu = kept(Settings(d_model=D, heads=4), "selective")
    assert names(swiglu) == set(remat.MARKS) - {"gathered", "low_rank"}


def test_alternate_keeps_every_other_product() -> None:
    """Of queries, keys, values, the output, the gate, up and down: the first, third and fifth."""
    swiglu = kept(Settings(d_model=D, heads=4), "alternate")
    # The stream is what the fourth is added to.
    assert names(swiglu) == {"query", "value", "gate", "attended", "stream"}


@pytest.mark.full
def test_what_is_computed_again() -> None:
    (_, none), (_, selective), (_, alternate), (_, full), (_, segments) = (
        growth(kind) for kind in ("none", "selective", "alternate", "full", "segments")
    )
    # "attended" is kept: of attention's two products, only the one of queries and keys is needed.
    assert selective - none == 2 * B * T * T * D
    # Of weights the products of keys, and into the MLP, which has no gate.
    assert alternate - selective == 2 * B * T * (D * D + D * 4 * D)
    # For its own gradient a layer's last product is not needed; for the next layer's it is.
    last = 2 * B * T * 4 * D * D
    assert full - none == none / 3 - last
    assert segments - none == 2 * none / 3 - last


@pytest.mark.full
def test_segments_keep_less_than_a_layers_input() -> None:
    added, _ = growth("segments", layers=16)  # 4 by 4, then 4 by 8
    assert added == pytest.approx(4 * X_BYTES / 16, rel=0.01)


@pytest.mark.full
def test_remat_layers_keeps_what_it_says() -> None:
    segments = 4
    per_layer = sum(one.bytes for one in kept(GPT, "none") if "_where" not in one.what)
    apply_layers = partial(remat.remat_layers, segments=segments)
    less, more = (report(apply_layers, n) for n in (16, 32))
    assert less.memory and more.memory
    sizes = {"segments": segments, "x": X_BYTES, "residuals": per_layer}
    formula, weights = memory(remat.remat_layers), 4 * (12 * D * D + 4 * D)
    stated = [evaluate(formula, sizes | {"l": n, "params": n * weights}) for n in (16, 32)]
    added = more.memory.temp_bytes - less.memory.temp_bytes
    assert added == pytest.approx(stated[1] - stated[0], rel=0.01)


def test_unknown_kind() -> None:
    with pytest.raises(ValueError, match="remat: 'some' is unknown; use one of 'none', 'full', "):
        jax.eval_shape(partial(remat.scan_layers, layer, remat="some"), PARAMS, X)


@pytest.mark.parametrize("segments", [0, 4, 12])
def test_segments_that_do_not_divide(segments: int) -> None:
    with pytest.raises(ValueError, match=r"segments of 6 layers; .* use segments in {1, 2, 3, 6}"):
        jax.eval_shape(partial(remat.remat_layers, layer, segments=segments), PARAMS, X)
