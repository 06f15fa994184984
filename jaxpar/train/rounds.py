"""Rounds of local steps on the devices of dp, as `jaxpar train --sync-every` asks for."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from jaxpar.parallel.hybrid import global_norm
from jaxpar.parallel.local import diloco_round, local_sgd_round, local_steps
from jaxpar.parallel.zero import state_specs, update_owned
from jaxpar.train.compression import Compression, Group, exchange, kept_specs
from jaxpar.train.step import Find, Measures, Technique, jitted

AXIS = "dp"
OUTERS: dict[str, optax.GradientTransformation | None] = {
    "average": None,
    # Of Douillard et al. 2023 (DiLoCo), section 3.1.
    "nesterov": optax.sgd(0.7, momentum=0.9, nesterov=True),
}


def make_round(
    technique: Technique,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    steps: int,
    outer: optax.GradientTransformation | None,
) -> jax.stages.Wrapped:
    """A round as a step: it takes `steps` batches at once, and its loss is their mean.

    `technique` finds the gradients of one device of dp. The state is a tuple: that of the
    optimizer, one for each device of dp along dim 0, and that of `outer`, without which the
    parameters are averaged. In place of a norm of gradients, a round tells how far the parameters
    have moved.
    """
    loss_fn = _as_loss(technique.find)

    def one_round(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Measures]:
        inner, outer_state = state
        inner, batches = _own(inner), _by_steps(batch, steps)
        if outer is None:
            loss, new, inner = local_sgd_round(
                loss_fn, params, inner, batches, optimizer, axis=AXIS
            )
        else:
            loss, new, inner, outer_state = diloco_round(
                loss_fn, params, inner, outer_state, batches, optimizer, outer, axis=AXIS
            )
        return new, (for_each(inner, 1), outer_state), Measures(loss, _moved(params, new))

    outer_specs = state_specs(outer, technique.layouts) if outer else ()
    states = inner_specs(technique, optimizer), outer_specs
    return jitted(one_round, mesh, technique, states)


def make_compressed_round(
    technique: Technique,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    groups: Sequence[Group],
    compression: Compression,
    *,
    steps: int,
    outer: optax.GradientTransformation | None,
) -> jax.stages.Wrapped:
    """The round of `make_round`, after which the devices send what they have changed in few bits.

    The state has a third part, what compression keeps. What a round loses of a change is added to
    the change of the next round, though all devices begin that one with the same parameters.

    Source: Douillard et al. 2025 (Streaming DiLoCo), low-precision outer gradients
    """
    loss_fn = _as_loss(technique.find)

    def one_round(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Measures]:
        inner, outer_state, kept = state
        losses, ends, inner = local_steps(
            loss_fn, params, _own(inner), _by_steps(batch, steps), optimizer, axis=AXIS
        )
        change, kept = exchange(jax.tree.map(jnp.subtract, params, ends), kept, groups, compression)
        if outer is None:
            new = jax.tree.map(jnp.subtract, params, change)
        else:
            new, outer_state = update_owned(change, params, outer_state, outer, technique.layouts)
        measures = Measures(lax.pmean(losses.mean(), AXIS), _moved(params, new))
        return new, (for_each(inner, 1), outer_state, kept), measures

    outer_specs = state_specs(outer, technique.layouts) if outer else ()
    kept = kept_specs(groups, compression)
    return jitted(
        one_round, mesh, technique, (inner_specs(technique, optimizer), outer_specs, kept)
    )


def inner_specs(technique: Technique, optimizer: optax.GradientTransformation) -> PyTree[P]:
    """The partition specs of the optimizer's states, of which each device of dp has its own."""
    return jax.tree.map(lambda spec: P(AXIS, *spec), state_specs(optimizer, technique.layouts))


def for_each(state: PyTree[Array], count: int) -> PyTree[Array]:
    """So many copies of a state, along a new dim 0."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), state)


def _own(states: PyTree[Array]) -> PyTree[Array]:
    """This device's one of the states that stand along dim 0."""
    return jax.tree.map(lambda leaf: leaf[0], states)


def _by_steps(batch: Array, steps: int) -> Array:
    return batch.reshape(steps, -1, *batch.shape[1:])


def _moved(before: PyTree[Array], after: PyTree[Array]) -> Array:
    return global_norm(jax.tree.map(jnp.subtract, before, after))


def _as_loss(find: Find) -> Any:
    """A function of which `find` computes the value and, whatever it is made of, the gradient."""

    @jax.custom_vjp
    def loss_fn(params: Any, batch: Any) -> Array:
        return find(params, batch, 1.0)[0]

    def forward(params: Any, batch: Any) -> tuple[Array, Any]:
        return find(params, batch, 1.0)

    def backward(gradients: Any, cotangent: Array) -> tuple[Any, None]:
        return jax.tree.map(lambda leaf: leaf * cotangent.astype(leaf.dtype), gradients), None

    loss_fn.defvjp(forward, backward)
    return loss_fn
