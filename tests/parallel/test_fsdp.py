"""FSDP sends and holds what it says, trains a decoder as one device does, and keeps no layer whole.

That `fsdp_apply` and `hybrid_gradients` equal one device is in their contracts.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import fsdp
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.remat import scan_layers
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds

P = jax.P
LAYERS = 5


def layer_fn(params: dict, x: jax.Array) -> jax.Array:
    return x + jnp.tanh(x @ params["up"] / 12) @ params["down"] * params["scale"][None]


PARAMS = {"up": random(LAYERS, 12, 24), "down": random(LAYERS, 24, 12), "scale": random(LAYERS, 12)}
GRADIENTS = {"a": random(8 * 12, 5), "b": [random(8 * 24)]}


def test_layers_send_and_hold_what_they_say() -> None:
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), PARAMS)
    per_device = partial(fsdp.fsdp_apply, layer_fn, like, axis="fsdp")
    size = sum(leaf.size for leaf in jax.tree.leaves(like))
    specs = P(None, "fsdp"), P("fsdp")
    arguments = random(LAYERS, size), random(24, 12)
    call = Call(fsdp.fsdp_apply, per_device, arguments, specs, P("fsdp"))
    assert_docstring_holds(call, "fsdp=4", axis="fsdp")


def test_hybrid_gradients_send_and_hold_what_they_say() -> None:
    axes = {"shard_axis": "fsdp", "replica_axis": "dp"}
    per_device = partial(fsdp.hybrid_gradients, **axes)
    call = Call(fsdp.hybrid_gradients, per_device, (GRADIENTS,), (P(("dp", "fsdp")),), P("fsdp"))
    assert_docstring_holds(call, "dp=2,fsdp=4", **axes)


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


def test_specs_split_the_first_dim_of_a_leaf_that_divides() -> None:
    params = {"table": jnp.zeros((10, 6)), "layers": [jnp.zeros((4, 5, 8)), jnp.zeros((4, 6))]}
    mesh = AbstractMesh((2, 2), ("dp", "fsdp"))
    specs = fsdp.fsdp_shardings(params, mesh=mesh, axis="fsdp", minimum_size=25)
    assert specs == {"table": P("fsdp"), "layers": [P(None, None, "fsdp"), P()]}


def test_a_leaf_that_cannot_be_split_is_refused() -> None:
    params, mesh = {"layers": {"w": jnp.zeros((3, 5, 7))}}, AbstractMesh((3,), ("fsdp",))
    with pytest.raises(ValueError, match=r"layers\['w'\] has shape \(3, 5, 7\); mesh axis fsdp"):
        fsdp.fsdp_shardings(params, mesh=mesh, axis="fsdp", minimum_size=105)
