"""Mixed precision: computes in 16 bits, and keeps and updates the parameters in 32 bits.

Everything except `all_finite` is elementwise, so it works on sharded leaves as on full ones.
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
    """The precision of the parameters, of the computation, and of the loss.

    Attributes:
        params: the dtype of the parameters, between steps.
        compute: the dtype of activations, and of the gradients that flow through them.
        output: the dtype of the loss.
    """

    params: DTypeLike
    compute: DTypeLike
    output: DTypeLike = jnp.float32

    def of(self, loss_fn: Loss) -> Loss:
        """Makes a loss function that computes the same loss in this precision."""

        def cast_loss(params: PyTree[Array], batch: PyTree[Array]) -> Array:
            params, batch = cast((params, batch), self.compute)
            return loss_fn(params, batch).astype(self.output)

        return cast_loss


POLICIES = {
    "fp32": Policy(jnp.float32, jnp.float32),
    "bf16": Policy(jnp.bfloat16, jnp.bfloat16),
    "fp16": Policy(jnp.float16, jnp.float16),
}


class MasterState(NamedTuple):
    """The state of `master_weights`: the parameters in float32, and the inner optimizer's state."""

    master: PyTree[Array]
    inner: Any


class LossScale(NamedTuple):
    """The state of dynamic loss scaling.

    Attributes:
        scale: the factor by which the loss is multiplied.
        good_steps: steps without overflow since the scale last changed, or since an overflow.
        spare: how many more overflows it takes until the scale is lowered.
    """

    scale: Float[Array, ""]
    good_steps: Int[Array, ""]
    spare: Int[Array, ""]


@dataclass(frozen=True)
class LossScaling:
    """The rule by which the scale of the loss follows the gradients.

    If `factor` and `backoff` are both 1, the scale is static.

    Attributes:
        initial: the first scale.
        growth_interval: the number of steps without overflow after which the scale grows.
        factor: the scale grows by this factor.
        backoff: the scale shrinks by this factor at an overflow.
        hysteresis: the number of overflows since the scale last grew at which it shrinks.
        minimum: the scale does not shrink below this value.

    Raises:
        ValueError: a factor would change the scale in the wrong direction, or a number is too
            small.
    """

    initial: float = 2.0**16
    growth_interval: int = 1000
    factor: float = 2.0
    backoff: float = 0.5
    hysteresis: int = 2
    minimum: float = 1.0

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, is_valid, allowed in (
            ("growth_interval", self.growth_interval >= 1, "1 or more"),
            ("factor", self.factor >= 1, "1 or more"),
            ("backoff", 0 < self.backoff <= 1, "more than 0, at most 1"),
            ("hysteresis", self.hysteresis >= 1, "1 or more"),
            ("minimum", self.minimum > 0, "more than 0"),
            ("initial", self.initial >= self.minimum, f"the minimum, {self.minimum}, or more"),
        ):
            if not is_valid:
                raise ValueError(f"LossScaling: {name} is {getattr(self, name)}; use {allowed}")

    def init(self) -> LossScale:
        """The state before the first step."""
        return LossScale(
            jnp.float32(self.initial), jnp.int32(0), jnp.asarray(self.hysteresis, jnp.int32)
        )

    def update(self, state: LossScale, grads_finite: Bool[Array, ""]) -> LossScale:
        """The state after a step, given whether the gradients of that step were finite."""
        spare = jnp.where(grads_finite, state.spare, jnp.maximum(state.spare - 1, 0))
        scale, good_steps = _next_scale(
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
    """Casts floats to another float type; integers and booleans stay as they are.

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
    """Whether all numbers that this device holds are finite: neither infinite nor NaN.

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
    """Selects all leaves of `new` where `which` is true, and otherwise all leaves of `old`.

    Comm:
        forward: nothing
        backward: nothing
    Memory: new
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.2
    """
    return jax.tree.map(lambda if_true, if_false: jnp.where(which, if_true, if_false), new, old)


def master_weights(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Makes an optimizer keep float32 master weights, of which the parameters are a rounded copy.

    `init` takes the parameters in float32. `update` takes gradients and parameters in any float
    type. Its updates are such that `optax.apply_updates` turns the parameters into the new master
    weights, rounded once.

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
                "master_weights: update was given no params; its updates are the difference to "
                "them; call update(gradients, state, params)"
            )
        gradients = cast(updates, jnp.float32)
        updates, inner = optimizer.update(gradients, state.inner, state.master)
        master = optax.apply_updates(state.master, updates)
        return jax.tree.map(_rounded_difference, params, master), MasterState(master, inner)

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
    """The next scale of the loss, and the number of steps without overflow that count for it.

    A step with finite gradients adds 1 to the count. When the count reaches `growth_interval`, the
    scale grows by `factor`, and the count starts at 0 again. After an overflow, the scale shrinks
    by `factor`, but not below `minimum`, and the count is 0.

    Math: finite: (scale, good_steps+1), or (scale*factor, 0) if that is growth_interval;
        else (max(scale/factor, minimum), 0)
    Comm:
        forward: nothing
        backward: nothing
    Memory: 2
    Source: Micikevicius et al. 2018 (Mixed Precision Training), section 3.2
    """
    return _next_scale(
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
    """One step in float16: the new float32 parameters and state, and whether the step was made.

    `master` is float32. `loss_fn(params, batch)` computes in the float type of `params`, and
    returns a float32 loss. The gradients are taken of `scale` times the loss in float16; the
    optimizer gets them in float32, divided by `scale`. If any of them is not finite, nothing
    changes.

    Math: g = float32(gradient of scale*loss_fn with respect to float16(master)) / scale;
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


def _next_scale(
    scale: Float[Array, ""],
    good_steps: Int[Array, ""],
    grads_finite: Bool[Array, ""],
    *,
    growth_interval: int,
    factor: float,
    lowered: Float[Array, ""],
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The scale raised, kept or `lowered`, and the number of steps that count for its growth."""
    grows = good_steps + 1 >= growth_interval
    raised = jnp.where(grows, scale * factor, scale)
    counted = jnp.where(grads_finite & ~grows, good_steps + 1, 0)
    return jnp.where(grads_finite, raised, lowered), counted


def _rounded_difference(old: Array, master: Array) -> Array:
    """The difference between two rounded parameters, in float32, where it is exact."""
    return master.astype(old.dtype).astype(jnp.float32) - old.astype(jnp.float32)
