"""Mixed precision: compute in 16 bits, keep and update the parameters in 32.

All is elementwise but `all_finite`, so that it works on shards of leaves as on whole ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, PyTree

Loss = Callable[[Any, Any], Array]


@dataclass(frozen=True)
class Policy:
    """What is held and computed in which precision.

    Attributes:
        params: the parameters, between steps.
        compute: activations, and the gradients that flow through them.
        output: the loss.
    """

    params: DTypeLike
    compute: DTypeLike
    output: DTypeLike = jnp.float32

    def of(self, loss_fn: Loss) -> Loss:
        """The same loss of parameters and batch, computed in this precision."""

        def computed(params: PyTree[Array], batch: PyTree[Array]) -> Array:
            low, batch = cast((params, batch), self.compute)
            return loss_fn(low, batch).astype(self.output)

        return computed


POLICIES = {
    "fp32": Policy(jnp.float32, jnp.float32),
    "bf16": Policy(jnp.bfloat16, jnp.bfloat16),
    "fp16": Policy(jnp.float16, jnp.float16),
}


class MasterState(NamedTuple):
    """What `master_weights` keeps: the parameters in float32, and the optimizer's own state."""

    master: PyTree[Array]
    inner: Any


class LossScale(NamedTuple):
    """The state of dynamic loss scaling.

    Attributes:
        scale: the factor of the loss.
        good_steps: steps without overflow since the scale last changed, or since an overflow.
        spare: how many overflows it takes until the scale is lowered.
    """

    scale: Float[Array, ""]
    good_steps: Int[Array, ""]
    spare: Int[Array, ""]


@dataclass(frozen=True)
class LossScaling:
    """How the factor of the loss follows the gradients; with both factors 1 it is static.

    Attributes:
        initial: the first scale.
        growth_interval: after so many steps without overflow the scale grows.
        factor: by how much it grows.
        backoff: by how much it shrinks at an overflow.
        hysteresis: how many overflows it takes, since it last grew, until it shrinks.
        minimum: below this it does not shrink.

    Raises:
        ValueError: a factor would change the scale the wrong way, or a number is too small.
    """

    initial: float = 2.0**16
    growth_interval: int = 1000
    factor: float = 2.0
    backoff: float = 0.5
    hysteresis: int = 2
    minimum: float = 1.0

    def __post_init__(self) -> None:
        """Checks every number."""
        for name, good, allowed in (
            ("growth_interval", self.growth_interval >= 1, "1 or more"),
            ("factor", self.factor >= 1, "1 or more"),
            ("backoff", 0 < self.backoff <= 1, "more than 0, at most 1"),
            ("hysteresis", self.hysteresis >= 1, "1 or more"),
            ("minimum", self.minimum > 0, "more than 0"),
            ("initial", self.initial >= self.minimum, f"the minimum, {self.minimum}, or more"),
        ):
            if not good:
                raise ValueError(f"LossScaling: {name} is {getattr(self, name)}; use {allowed}")

    def init(self) -> LossScale:
        """The state before the first step."""
        return LossScale(
            jnp.float32(self.initial), jnp.int32(0), jnp.asarray(self.hysteresis, jnp.int32)
        )

    def update(self, state: LossScale, grads_finite: Bool[Array, ""]) -> LossScale:
        """The state after a step whose gradients were finite, or were not."""
        spare = jnp.where(grads_finite, state.spare, jnp.maximum(state.spare - 1, 0))
        scale, good_steps = _moved(
            state.scale,
            state.good_steps,
            grads_finite,
            growth_interval=self.growth_interval,
            factor=self.factor,
            lowered=jnp.maximum(state.scale * self.backoff, self.minimum),
        )
        grown = grads_finite & (good_steps == 0)
        return LossScale(
            jnp.where(grads_finite | (spare == 0), scale, state.scale),
            good_steps,
            jnp.where(grown, self.hysteresis, spare),
        )


def cast(tree: PyTree[Array], dtype: DTypeLike) -> PyTree[Array]:
    """The same values in another float type; integers and booleans stay as they are.

    Comm:
        forward: nothing
        backward: nothing
    Memory: tree
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.1
    """

    def to_dtype(leaf: Array) -> Array:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(to_dtype, tree)


def all_finite(tree: PyTree[Array]) -> Bool[Array, ""]:
    """Whether there is no infinity and no NaN in what this device holds.

    Comm:
        forward: nothing
        backward: nothing
    Memory: 1
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.2
    """
    finite = jnp.bool_(True)
    for leaf in jax.tree.leaves(tree):
        finite &= jnp.isfinite(leaf).all()
    return finite


def select(which: Bool[Array, ""], new: PyTree[Array], old: PyTree[Array]) -> PyTree[Array]:
    """All leaves of `new`, or else all of `old`, bit by bit.

    Comm:
        forward: nothing
        backward: nothing
    Memory: new
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.2
    """
    return jax.tree.map(lambda one, other: jnp.where(which, one, other), new, old)


def master_weights(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer on float32 weights, its own, of which the parameters are a rounded copy.

    `init` takes the parameters in float32. `update` takes gradients and parameters in any float
    type; its updates, added to the parameters by `optax.apply_updates`, make them the new weights,
    rounded once.

    Math: master += optimizer(gradients); params = round(master)
    Comm:
        forward: nothing
        backward: no derivative
    Memory: params
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.1

    Raises:
        ValueError: `update` is given no parameters.
    """

    def init(params: PyTree[Array]) -> MasterState:
        master = cast(params, jnp.float32)
        return MasterState(master, optimizer.init(master))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "master_weights: update was given no params; the new ones are told apart from "
                "them; call update(gradients, state, params)"
            )
        gradients = cast(updates, jnp.float32)
        updates, inner = optimizer.update(gradients, state.inner, state.master)
        master = optax.apply_updates(state.master, updates)
        return jax.tree.map(_to_rounded, params, master), MasterState(master, inner)

    return optax.GradientTransformation(init, update)


def update_loss_scale(
    scale: Float[Array, ""],
    good_steps: Int[Array, ""],
    grads_finite: Bool[Array, ""],
    *,
    growth_interval: int,
    factor: float,
    minimum: float,
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The next scale of the loss, and the steps without overflow that count for its growth.

    After a step with finite gradients one more step counts; once `growth_interval` do, the scale
    grows by `factor`, and the count begins at 0 again. After an overflow the scale shrinks by
    `factor`, to `minimum` at least, and the count is 0.

    Math: finite: (scale, good_steps+1), or (scale*factor, 0) if that is growth_interval;
        else (max(scale/factor, minimum), 0)
    Comm:
        forward: nothing
        backward: nothing
    Memory: 2
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.2
    """
    return _moved(
        scale,
        good_steps,
        grads_finite,
        growth_interval=growth_interval,
        factor=factor,
        lowered=jnp.maximum(scale / factor, minimum),
    )


def mixed_precision_step(
    loss_fn: Callable[[Any, Any], Array],
    master: PyTree[Float[Array, "..."]],
    opt_state: Any,
    batch: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    scale: float | Float[Array, ""],
) -> tuple[PyTree[Float[Array, "..."]], Any, Bool[Array, ""]]:
    """One step in float16: the new float32 parameters and state, and whether a step was made.

    `master` is float32. `loss_fn(params, batch)` computes in the float type of `params`, and gives
    a float32 loss. Gradients in float16 are of `scale` times the loss; the optimizer is given them
    in float32, without the scale. If one of them is not finite, nothing changes.

    Math: g = float32(gradient of scale*loss_fn by float16(master)) / scale;
        updates, state' = optimizer.update(g, opt_state, master); master' = master + updates
    Comm:
        forward: nothing
        backward: no derivative
    Memory: master+opt_state+1
    Source: Micikevicius et al. 2018 (Mixed Precision Training), sections 3.1 and 3.2
    """

    def scaled_loss(low: PyTree[Array]) -> Float[Array, ""]:
        return scale * loss_fn(low, batch)

    gradients = cast(jax.grad(scaled_loss)(cast(master, jnp.float16)), jnp.float32)
    gradients = jax.tree.map(lambda leaf: leaf / scale, gradients)
    finite = all_finite(gradients)
    updates, new_state = optimizer.update(gradients, opt_state, master)
    new = (optax.apply_updates(master, updates), new_state)
    return *select(finite, new, (master, opt_state)), finite


def _moved(
    scale: Float[Array, ""],
    good_steps: Int[Array, ""],
    grads_finite: Bool[Array, ""],
    *,
    growth_interval: int,
    factor: float,
    lowered: Float[Array, ""],
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The scale grown, kept or lowered, and the steps that count."""
    grown = good_steps + 1 >= growth_interval
    raised = jnp.where(grown, scale * factor, scale)
    counted = jnp.where(grads_finite & ~grown, good_steps + 1, 0)
    return jnp.where(grads_finite, raised, lowered), counted


def _to_rounded(old: Array, master: Array) -> Array:
    """What takes a rounded parameter to the new one, in float32: few bits, so exact."""
    return master.astype(old.dtype).astype(jnp.float32) - old.astype(jnp.float32)
