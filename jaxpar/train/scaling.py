"""Steps in float16: the loss is scaled, and a step whose gradients overflow is not taken."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import Mesh
from jaxtyping import Bool

from jaxpar.mesh import varying_axes
from jaxpar.parallel.precision import LossScaling, all_finite, cast, select
from jaxpar.train.step import WHOLE, Gradients, Loss, Technique, on_mesh


def make_scaled_step(
    loss_fn: Loss,
    optimizer: optax.GradientTransformation,
    technique: Technique,
    mesh: Mesh,
    scaling: LossScaling,
) -> jax.stages.Wrapped:
    """As `make_step`, with loss scaling: the state is (optimizer's state, loss scale)."""

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Array]:
        inner, scale = state
        loss, gradients, finite = scaled_gradients(
            technique.gradients, loss_fn, params, scale.scale, batch
        )
        new = technique.update(optimizer, gradients, params, inner)
        params, inner = select(finite, new, (params, inner))
        return params, (inner, scaling.update(scale, finite)), loss

    return on_mesh(step, replace(technique, state=(technique.state, WHOLE)), mesh)


def scaled_gradients(
    gradients: Gradients, loss_fn: Loss, params: Any, scale: Array, batch: Any
) -> tuple[Array, Any, Bool[Array, ""]]:
    """The loss, its gradients in float32, and whether these are finite on every device."""

    def scaled(params: Any, batch: Any) -> Array:
        return loss_fn(params, batch) * scale

    loss, found = gradients(scaled, params, batch)
    found = jax.tree.map(lambda leaf: leaf / scale, cast(found, jnp.float32))
    return loss / scale, found, _true_everywhere(all_finite(found))


def _true_everywhere(here: Bool[Array, ""]) -> Bool[Array, ""]:
    return lax.psum((~here).astype(jnp.int32), tuple(varying_axes(here))) == 0
