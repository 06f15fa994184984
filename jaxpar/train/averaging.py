"""An exponential average of the parameters over the steps, kept beside the optimizer's state."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Float, Int, PyTree

from jaxpar.collectives.leaves import publish
from jaxpar.parallel.precision import cast
from jaxpar.train.step import Technique, shardings


class Averaged(NamedTuple):
    """The state of an optimizer that averages.

    Attributes:
        inner: the state of the optimizer itself.
        average: the average of the parameters after each step; before the first, the parameters.
        count: the number of steps in it.
    """

    inner: Any
    average: PyTree[Float[jax.Array, "..."]]
    count: Int[jax.Array, ""]


def averaging(
    optimizer: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
    """An optimizer that keeps an average of the parameters, and updates them as without it.

    It is elementwise, so each device averages what it owns.

    Math: average_t = (1-decay)/(1-decay**t) * sum_{i<=t} decay**(t-i) * params_i
    Comm:
        forward: nothing
        backward: nothing
    Memory: state+params
    Source: Kingma and Ba 2015 (Adam), section 7.2
    """

    def init(params: Any) -> Averaged:
        return Averaged(optimizer.init(params), cast(params, jnp.float32), jnp.int32(0))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moves, inner = optimizer.update(updates, state.inner, params)
        count = state.count + 1
        # The weight of the newest, without the rounding of 1 - decay: 1 in the first step.
        weight = jnp.float32(math.expm1(math.log(decay))) / jnp.expm1(math.log(decay) * count)
        average = jax.tree.map(
            lambda old, new: old + weight.astype(jnp.float32) * (new - old),
            state.average,
            cast(optax.apply_updates(params, moves), jnp.float32),
        )
        return moves, Averaged(inner, average, count)

    return optax.GradientTransformation(init, update)


def make_published(
    technique: Technique, mesh: Mesh, dtype: DTypeLike
) -> Callable[[PyTree[jax.Array]], PyTree[jax.Array]]:
    """The function from the optimizer's state to its average, in the place of the parameters."""
    owned = shardings(mesh, technique.gradients)
    published = jax.jit(
        jax.shard_map(
            lambda average: publish(cast(average, dtype), technique.layouts),
            mesh=mesh,
            in_specs=(technique.gradients,),
            out_specs=technique.params,
        ),
        out_shardings=shardings(mesh, technique.params),
    )
    return lambda state: published(jax.device_put(average_in(state), owned))


def average_in(state: Any) -> PyTree[jax.Array]:
    """The average in the state of an optimizer that averages inside of others."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, Averaged))
    return next(node.average for node in nodes if isinstance(node, Averaged))
