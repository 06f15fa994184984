"""FSDP equals one device, sends and holds what it says, and keeps no gathered layer."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding

from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import fsdp
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.remat import scan_layers
from tests.arrays import random
from tests.comm_lines import check_lines, measured

P = jax.P
LAYERS = 5


def layer_fn(params: dict, x: jax.Array) -> jax.Array:
    return x + jnp.tanh(x @ params["up"] / 12) @ params["down"] * params["scale"][None]


PARAMS = {"up": random(LAYERS, 12, 24), "down": random(LAYERS, 24, 12), "scale": random(LAYERS, 12)}
X, WEIGHTS = random(24, 12), random(24, 12)
GRAD = {"a": random(24, 12, 5), "b": [random(24, 24)]}  # one row of each leaf for each device
HYBRID = {"shard_axis": "fsdp", "replica_axis": "dp"}


def one_device(params: Any, x: Any) -> jax.Array:
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]


def applied(sizes: str, *, differentiate: bool) -> Callable:
    """fsdp_apply on a mesh, with the gradient of <result, WEIGHTS>."""
    mesh = make_mesh(sizes)
    batch, rows = P(tuple(mesh.axis_names)), P(None, "fsdp")

    def on_shards(params: Any, x: Any, weights: Any) -> Any:
        params = jax.tree.map(lambda p: vary(p, mesh), params)
        y, pull = jax.vjp(partial(fsdp.fsdp_apply, layer_fn, axis="fsdp"), params, x)
        if not differentiate:
            return y
        gradients, x = pull(weights)
        return y, (lax.psum(gradients, "dp") if "dp" in mesh.shape else gradients), x

    gives = (batch, rows, batch) if differentiate else batch
    takes = (rows, batch, batch)
    return jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=takes, out_specs=gives))


def vary(p: jax.Array, mesh: Any) -> jax.Array:
    return lax.pcast(p, "dp", to="varying") if "dp" in mesh.shape else p


@pytest.mark.parametrize("sizes", ["fsdp=4", "dp=2,fsdp=3"])
def test_layers_equal_one_device(sizes: str) -> None:
    y, gradients, x = applied(sizes, differentiate=True)(PARAMS, X, WEIGHTS)
    expected, pull = jax.vjp(one_device, PARAMS, X)
    for one, other in zip(
        jax.tree.leaves((y, (gradients, x))),
        jax.tree.leaves((expected, pull(jnp.asarray(WEIGHTS)))),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def hybrid(sizes: str, *, differentiate: bool = False) -> Callable:
    mesh = make_mesh(sizes)

    def on_shards(grad: Any) -> Any:
        own = jax.tree.map(lambda leaf: leaf[0], grad)
        y, pull = jax.vjp(partial(fsdp.hybrid_gradients, **HYBRID), own)
        return (y, pull(y)) if differentiate else y

    gives = (P("fsdp"), P(("dp", "fsdp"))) if differentiate else P("fsdp")
    return jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=P(("dp", "fsdp")), out_specs=gives))


@pytest.mark.parametrize("sizes", ["dp=2,fsdp=4", "dp=3,fsdp=2"])
def test_hybrid_gradients_are_the_mean(sizes: str) -> None:
    devices = make_mesh(sizes).size
    grad = jax.tree.map(lambda leaf: leaf[:devices], GRAD)
    got = hybrid(sizes)(grad)
    jax.tree.map(
        lambda g, all_of_them: np.testing.assert_allclose(g, all_of_them.mean(0), atol=1e-6),
        got,
        grad,
    )


def check_programs(function: Callable, forward: Any, both: Any, axes: dict, names: dict) -> None:
    held = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(forward.out_info))
    sent = measured(forward), measured(both)
    check_lines(function, *sent, held / names["devices"], axes=axes, names=names)


def test_layers_send_and_hold_what_they_say() -> None:
    forward, both = (
        applied("fsdp=4", differentiate=d).lower(PARAMS, X, WEIGHTS) for d in (False, True)
    )
    shards = sum(leaf.size for leaf in jax.tree.leaves(PARAMS)) // 4
    names = {"param_shards": shards, "n": 4, "x": X.size // 4, "devices": 4}
    check_programs(fsdp.fsdp_apply, forward, both, {"axis": "fsdp"}, names)


def test_hybrid_gradients_send_and_hold_what_they_say() -> None:
    grad = jax.tree.map(lambda leaf: leaf[:8], GRAD)
    forward, both = (hybrid("dp=2,fsdp=4", differentiate=d).lower(grad) for d in (False, True))
    size = sum(leaf[0].size for leaf in jax.tree.leaves(grad))
    names = {"grad": size, "n": 4, "devices": 4}
    axes = {"shard_axis": "fsdp", "replica_axis": "dp"}
    check_programs(fsdp.hybrid_gradients, forward, both, axes, names)


def decoder(sizes: str, settings: Settings) -> tuple[Callable, Callable]:
    """Loss and gradient of a decoder under FSDP, and how its parameters are laid out."""
    mesh = make_mesh(sizes)
    like = jax.eval_shape(partial(init, settings), jax.random.key(0))
    n, axes = mesh.shape["fsdp"], tuple(mesh.axis_names)
    specs = fsdp.fsdp_specs(like, axis="fsdp", n=n)
    layers = fsdp.gather_layers(partial(scan_layers, remat="full"), like, axis="fsdp")
    loss = fsdp.fsdp_loss(loss_fn(settings, layers), like, axis="fsdp")
    gradients = jax.value_and_grad(loss)
    if "dp" in mesh.shape:
        gradients = partial(data_parallel_gradients, loss, axis="dp")
    gives = (P(), specs)
    step = jax.shard_map(gradients, mesh=mesh, in_specs=(specs, P(axes)), out_specs=gives)
    return jax.jit(step), partial(fsdp.pad_params, n=n)


def tokens(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, length + 1))


@pytest.mark.full
@pytest.mark.parametrize(("sizes", "tied"), [("fsdp=5", True), ("dp=2,fsdp=3", False)])
def test_a_decoder_equals_one_device(sizes: str, tied: bool) -> None:
    settings = Settings(layers=2, d_model=16, heads=2, d_ff=28, tied=tied)
    params = init(settings, jax.random.key(1))
    batch = tokens(30, 6)
    step, pad = decoder(sizes, settings)
    loss, gradients = step(pad(params), batch)
    expected, by_one = jax.jit(jax.value_and_grad(loss_fn(settings)))(params, batch)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)

    def check(got: jax.Array, right: jax.Array) -> None:
        padded = np.zeros(got.shape, np.float32)
        padded[tuple(slice(size) for size in right.shape)] = right
        np.testing.assert_allclose(got, padded, rtol=1e-4, atol=1e-6)

    jax.tree.map(check, gradients, by_one)


@pytest.mark.full
def test_no_layer_stays_whole() -> None:
    """One more layer adds its part of the parameters, its input, and nothing else."""
    reports = []
    for layers in (3, 6):
        settings = Settings(layers=layers, d_model=32, heads=2)
        step, pad = decoder("fsdp=4", settings)
        params = jax.eval_shape(lambda s=settings, p=pad: p(init(s, jax.random.key(0))))
        reports.append(inspect(step, params, tokens(8, 6)))
    few, many = (report.memory for report in reports)
    assert few and many
    layer = (
        Settings(layers=2, d_model=32, heads=2).parameters
        - Settings(layers=1, d_model=32, heads=2).parameters
    )
    assert many.arguments_bytes - few.arguments_bytes == 3 * layer * 4 // 4
    assert many.temp_bytes - few.temp_bytes == 3 * (2 * 6 * 32) * 4


def test_hybrid_sharding_sends_one_part_between_replicas() -> None:
    settings = Settings(layers=2, d_model=32, heads=2)
    step, pad = decoder("dp=2,fsdp=4", settings)
    params = jax.eval_shape(lambda: pad(init(settings, jax.random.key(0))))
    sent = inspect(step, params, tokens(8, 6)).wire_bytes_by_axis()
    assert sent["dp",] == 4 * settings.parameters / 4 + 4  # and the loss


def test_specs_for_the_compiler() -> None:
    params = {"table": jnp.zeros((10, 6)), "layers": [jnp.zeros((4, 5, 8)), jnp.zeros((4, 6))]}
    specs = fsdp.fsdp_shardings(
        params, mesh=AbstractMesh((2, 2), ("dp", "fsdp")), axis="fsdp", minimum_size=25
    )
    assert specs == {"table": P("fsdp"), "layers": [P(None, None, "fsdp"), P()]}
    mesh = make_mesh("fsdp=2")
    shape = NamedSharding(mesh, specs["table"]).shard_shape((10, 6))
    assert shape == (5, 6)


def test_a_leaf_that_cannot_be_shared_is_refused() -> None:
    params = {"layers": {"w": jnp.zeros((3, 5, 7))}}
    with pytest.raises(ValueError, match=r"layers\['w'\] has shape \(3, 5, 7\); mesh axis fsdp"):
        fsdp.fsdp_shardings(params, mesh=make_mesh("fsdp=3"), axis="fsdp", minimum_size=105)
