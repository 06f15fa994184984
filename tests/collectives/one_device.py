"""Compares a collective with the same result on one device, in values and in gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.mesh import make_mesh

Oracle = Callable[[jax.Array], Any]
"""[n, ...] to [n, ...]: what n devices hold to what they get."""


def on_devices(function: Callable[[jax.Array], Any], mesh: jax.sharding.Mesh) -> Oracle:
    """`function` on every device: x and the results have a leading dim for each mesh axis."""
    levels, layout = len(mesh.shape), jax.P(*mesh.axis_names)

    def on_one_device(x: jax.Array) -> Any:
        y = function(x.reshape(x.shape[levels:]))
        return jax.tree.map(lambda leaf: leaf[(None,) * levels], y)

    return jax.shard_map(on_one_device, mesh=mesh, in_specs=layout, out_specs=layout)


def values(function: Callable[[jax.Array], Any], x: Any, sizes: str = "device=8") -> Any:
    """What each device gets when device i of the mesh holds x[i]."""
    y = jax.jit(on_devices(function, make_mesh(sizes)))(x)
    return jax.tree.map(np.asarray, y)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def assert_equal_one_device(
    function: Callable[[jax.Array], jax.Array],
    oracle: Oracle,
    *shape: int,
    sizes: str,
    over_all_axes: bool = False,
) -> None:
    """Checks values and gradient; x has `shape` on one device, and the last axis is the group."""
    mesh = make_mesh(sizes)
    if over_all_axes:
        oracle = _flattened(oracle, mesh)
    else:
        for _ in mesh.axis_names[1:]:
            oracle = jax.vmap(oracle)
    x = random(*mesh.axis_sizes, *shape)
    c = 1 + random(*jax.eval_shape(oracle, x).shape)  # the cotangent of each device's result

    def both(function: Oracle) -> tuple[jax.Array, jax.Array]:
        y, pull = jax.vjp(function, x)
        return y, pull(jnp.asarray(c))[0]

    got, expected = jax.jit(lambda: (both(on_devices(function, mesh)), both(oracle)))()
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-5, err_msg="values")
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5, atol=1e-5, err_msg="gradient")


def _flattened(oracle: Oracle, mesh: jax.sharding.Mesh) -> Oracle:
    """The oracle of one long axis, for arrays with a dim for each mesh axis."""

    def over_mesh(x: jax.Array) -> jax.Array:
        y = oracle(x.reshape(mesh.size, *x.shape[len(mesh.shape) :]))
        return y.reshape(*mesh.axis_sizes, *y.shape[1:])

    return over_mesh
