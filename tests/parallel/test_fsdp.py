"""FSDP sends and holds what it says, trains a decoder as one device does, and keeps no layer whole.

That `fsdp_apply` and `hybrid_gradients` equal one device is in their contracts.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh

from jaxpar.collectives.leaves import leaf_layouts, specs_of
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import fsdp
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


EVEN = {"table": random(8, 12), "layers": PARAMS}
SIZE = sum(leaf.size for leaf in jax.tree.leaves(PARAMS))
LAYOUTS = leaf_layouts(EVEN, sizes={"fsdp": 4}, axes=("fsdp",), stage=3)
SPECS = specs_of(LAYOUTS, "at_rest")
OF_LAYER = jax.tree.map(lambda layout: layout.of_layer.at_rest, LAYOUTS["layers"])
ONE_LAYER = jax.tree.map(lambda leaf: leaf[0], PARAMS)
X = random(24, 12)
gathering = fsdp.gather_layers(partial(scan_layers, remat="full"), LAYOUTS["layers"])


def stack(params: dict, batch: jax.Array) -> jax.Array:
    return gathering(layer_fn, params["layers"], batch @ params["table"]).mean()


CALLS = [
    Call(
        fsdp.gather_layers,
        lambda shards, x: gathering(layer_fn, shards, x),
        (PARAMS, X), (SPECS["layers"], P("fsdp")), P("fsdp"), names={"layers": SIZE},
    ),
    Call(
        fsdp.gathered_layer,
        lambda shards, x: fsdp.gathered_layer(layer_fn, LAYOUTS["layers"])(shards, x),
        (ONE_LAYER, X), (OF_LAYER, P("fsdp")), P("fsdp"), names={"layer": SIZE // LAYERS},
    ),
    Call(
        fsdp.fsdp_loss,
        lambda shards, batch: fsdp.fsdp_loss(stack, LAYOUTS)(shards, batch)[None],
        (EVEN, random(24, 8)), (SPECS, P("fsdp")), P("fsdp"), 1,
        names={"layers": SIZE, "params": SIZE + EVEN["table"].size},
    ),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_gathering_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "fsdp=4", layouts="fsdp")


def decoder(sizes: str, settings: Settings) -> Callable:
    """The mean loss and its gradient, of a decoder whose parameters fsdp shards."""
    mesh = make_mesh(sizes)
    like = jax.eval_shape(partial(init, settings), jax.random.key(0))
    axes = tuple(mesh.axis_names)
    layouts = leaf_layouts(like, sizes=mesh.shape, axes=("fsdp",), stage=3)
    layers = fsdp.gather_layers(partial(scan_layers, remat="full"), layouts["layers"])
    loss = fsdp.fsdp_loss(loss_fn(settings, layers), layouts)

    def mean_loss(shards: dict, batch: jax.Array) -> jax.Array:
        return lax.pmean(loss(shards, batch), axes)

    specs = specs_of(layouts, "at_rest")
    gradients = jax.value_and_grad(mean_loss)
    step = jax.shard_map(gradients, mesh=mesh, in_specs=(specs, P(axes)), out_specs=(P(), specs))
    return jax.jit(step)


def tokens(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, length + 1))


@pytest.mark.full
@pytest.mark.parametrize(("sizes", "tied"), [("fsdp=5", True), ("dp=2,fsdp=3", False)])
def test_a_decoder_equals_one_device(sizes: str, tied: bool) -> None:
    """5 devices divide a dim of every leaf, and 3 only one of the MLP's matrices."""
    settings = Settings(layers=2, d_model=20, heads=2, d_ff=27, tied=tied)
    params = init(settings, jax.random.key(1))
    batch = tokens(30, 6)
    loss, gradients = decoder(sizes, settings)(params, batch)
    expected, by_one = jax.jit(jax.value_and_grad(loss_fn(settings)))(params, batch)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), gradients, by_one)


@pytest.mark.full
def test_no_layer_stays_whole() -> None:
    """One more layer adds its part of the parameters, its input, and nothing else."""
    reports = []
    for layers in (3, 6):
        settings = Settings(layers=layers, d_model=32, heads=2)
        params = jax.eval_shape(partial(init, settings), jax.random.key(0))
        reports.append(inspect(decoder("fsdp=4", settings), params, tokens(8, 6)))
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
