"""Exercise mixed_precision_step: a step in float16 that skips overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.base import Contract, Expected, FlopsLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.parallel import precision
from jaxpar.parallel.precision import all_finite, cast, select


def _stepped(
    case: Case,
    loss_fn: Callable,
    master: Any,
    opt_state: Any,
    batch: Any,
    optimizer: optax.GradientTransformation,
) -> list[Expected]:
    """One step on each device by itself, none where the batch says that it overflows."""
    sizes = case.sizes.values()
    n = math.prod(sizes)

    def step(master: Any, opt_state: Any, batch: Any) -> Any:
        rare = _rare(batch).any()
        updates, state = optimizer.update(jax.grad(loss_fn)(master, batch), opt_state, master)
        new = (optax.apply_updates(master, updates), state)
        kept = jax.tree.map(lambda a, b: jnp.where(rare, a, b), (master, opt_state), new)
        return kept, ~rare

    def parts(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(leaf, n) if leaf.ndim == 0 else leaf.reshape(n, -1, *leaf.shape[1:])

    results = jax.vmap(step)(*jax.tree.map(parts, (master, opt_state, batch)))
    return [Expected(leaf.reshape(*sizes, *leaf.shape[1:])) for leaf in jax.tree.leaves(results)]


def _rare(batch: Any) -> jax.Array:
    return batch["rare"] if isinstance(batch, Mapping) else batch[-1]


def _matrices(n: int, layout: str, inputs: int, hidden: int, draw: Any = "normal") -> Any:
    """Every device's own parameters of a small network."""
    return {
        "w_in": ArraySpec((n * inputs, hidden), f"{layout} f", draw=draw),
        "w_out": ArraySpec((n * hidden,), layout, draw=draw),
    }


def _layers(n: int, layout: str) -> Any:
    return [
        {"w": ArraySpec((n * 5, 12), f"{layout} f"), "scale": ArraySpec((n * 12,), layout)},
        {"w": ArraySpec((n * 12, 3), f"{layout} d")},
    ]


CONTRACT = Contract(
    kind="program",
    task="return new master parameters, new state and whether the gradients were finite",
    reference=precision.mixed_precision_step,
    oracle=_stepped,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": Function("jaxpar.contracts.small_losses:overflowing_error"),
                "master": _matrices(8, "d_dp", 6, 16),
                "opt_state": Made(
                    Function("jaxpar.contracts.small_losses:adamw_state"),
                    (
                        ArraySpec((), "", "int32"),
                        _matrices(8, "d_dp", 6, 16),
                        _matrices(8, "d_dp", 6, 16, "positive"),
                    ),
                ),
                "batch": {
                    "inputs": ArraySpec((8 * 32, 6), "b_dp d"),
                    "targets": ArraySpec((8 * 32,), "b_dp"),
                    "rare": ArraySpec((8,), "b_dp", "bool", "padded"),
                },
                "optimizer": Function("jaxpar.contracts.small_losses:ADAMW"),
            },
            {"scale": 2.0**30},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "loss_fn": Function("jaxpar.contracts.small_losses:overflowing_layers"),
                "master": _layers(6, "d_fsdp_tp"),
                "opt_state": Made(
                    Function("jaxpar.contracts.small_losses:momentum_state"),
                    (_layers(6, "d_fsdp_tp"),),
                ),
                "batch": (
                    ArraySpec((6 * 20, 5), "b_fsdp_tp d"),
                    ArraySpec((6 * 20, 3), "b_fsdp_tp d"),
                    ArraySpec((6,), "b_fsdp_tp", "bool", "padded"),
                ),
                "optimizer": Function("jaxpar.contracts.small_losses:MOMENTUM"),
            },
            {"scale": 2.0**31},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=2",
            {
                "loss_fn": Function("jaxpar.contracts.small_losses:overflowing_error"),
                "master": _matrices(4, "d_tp_dp", 5, 12),
                "opt_state": Made(
                    Function("jaxpar.contracts.small_losses:momentum_state"),
                    (_matrices(4, "d_tp_dp", 5, 12),),
                ),
                "batch": {
                    "inputs": ArraySpec((4 * 24, 5), "b_tp_dp d"),
                    "targets": ArraySpec((4 * 24,), "b_tp_dp"),
                    "rare": ArraySpec((4,), "b_tp_dp", "bool", "padded"),
                },
                "optimizer": Function("jaxpar.contracts.small_losses:MOMENTUM"),
            },
            {"scale": 2.0**29},
        ),
    ),
    flops=FlopsLimit(
        "each matrix product once, and of float16 values",
        programs=("forward",),
        dtypes=("float16",),
    ),
    hints=(
        "Differentiate by the float16 copy of the parameters, not by the float32 ones; "
        "jax.tree.map makes the copy. The loss that loss_fn returns is float32: scale it there.",
        "The gradients come in float16. Convert them to float32 first, then divide by scale, and "
        "only then let the optimizer have them, with the float32 parameters.",
        "jnp.isfinite(leaf).all() for every leaf. Make the step in any case, and choose with "
        "jnp.where for every leaf of parameters and state: the new or the old.",
    ),
    minimal="Each device has all that it needs. The operands of a float16 product take half the "
    "bytes of float32 ones.",
    harder="Return the loss, too, without a second forward pass and without the scale.",
)


def _gradients(
    loss_fn: Callable, low: Any, batch: Any, scale: float, unscale: Callable | None = None
) -> Any:
    """Right, but for what `unscale` makes of each leaf."""
    gradients = jax.grad(lambda p: scale * loss_fn(p, batch))(low)
    if unscale:
        return jax.tree.map(unscale, gradients)
    return jax.tree.map(lambda g: g / scale, cast(gradients, jnp.float32))


def _updated(master: Any, opt_state: Any, optimizer: Any, gradients: Any) -> tuple[Any, Any]:
    updates, state = optimizer.update(gradients, opt_state, master)
    return optax.apply_updates(master, updates), state


def _end(master: Any, opt_state: Any, optimizer: Any, gradients: Any) -> Any:
    """A right end of the step, from gradients in float32."""
    finite = all_finite(gradients)
    new = _updated(master, opt_state, optimizer, gradients)
    return *select(finite, new, (master, opt_state)), finite


@wrong("values")
def in_float32(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """No gradient overflows, because nothing is computed in float16; give loss_fn a float16 copy of
    the parameters."""
    return _end(master, opt_state, optimizer, _gradients(loss_fn, master, batch, scale))


def _half(tree: Any) -> Any:
    return cast(tree, jnp.float16)


@wrong("flops")
def cast_back_to_float32(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """The parameters are rounded to float16 and converted back before loss_fn, so that its products
    are of float32 values; give it the float16 copy."""

    def widened(low: Any, batch: Any) -> Array:
        return loss_fn(cast(low, jnp.float32), batch)

    return _end(master, opt_state, optimizer, _gradients(widened, _half(master), batch, scale))


@wrong("values")
def scaled_after_the_cast(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """Small gradients are 0 in float16, because the loss was not scaled before it was
    differentiated; scaled after the cast, they stay 0."""

    def late(gradient: Array) -> Array:
        return gradient.astype(jnp.float32) * scale / scale

    gradients = _gradients(loss_fn, _half(master), batch, 1.0, late)
    return _end(master, opt_state, optimizer, gradients)


def _scale_in_float16(scale: float) -> Array:
    # Converted when the program runs: numpy would warn of the overflow.
    return lax.optimization_barrier(jnp.float32(scale)).astype(jnp.float16)


@wrong("values")
def scaled_in_float16(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """The loss is scaled in float16, where this scale is infinite; scale it in float32, as loss_fn
    returns it."""

    def scaled(low: Any, batch: Any) -> Array:
        return loss_fn(low, batch).astype(jnp.float16) * _scale_in_float16(scale)

    def unscaled(gradient: Array) -> Array:
        return gradient.astype(jnp.float32) / scale

    gradients = _gradients(scaled, _half(master), batch, 1.0, unscaled)
    return _end(master, opt_state, optimizer, gradients)


@wrong("values")
def not_unscaled(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """The gradients are not divided by scale before the optimizer takes them."""

    def wide(gradient: Array) -> Array:
        return gradient.astype(jnp.float32)

    gradients = _gradients(loss_fn, _half(master), batch, scale, wide)
    return _end(master, opt_state, optimizer, gradients)


@wrong("values")
def unscaled_in_float16(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """The gradients are divided by scale in float16, where they become 0 again; convert them to
    float32 first."""

    def narrow(gradient: Array) -> Array:
        return gradient / _scale_in_float16(scale)

    gradients = _gradients(loss_fn, _half(master), batch, scale, narrow)
    return _end(master, opt_state, optimizer, cast(gradients, jnp.float32))


@wrong("values")
def master_in_float16(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """The update is added to the float16 copy, which rounds it away; add it to `master`, in
    float32."""
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    updates, state = optimizer.update(gradients, opt_state, master)
    new = cast(optax.apply_updates(_half(master), updates), jnp.float32)
    return *select(finite, (new, state), (master, opt_state)), finite


@wrong("values")
def decay_of_rounded_weights(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """The optimizer is given the float16 copy of the parameters, from which weight decay comes out
    rounded; give it `master`."""
    low = _half(master)
    gradients = _gradients(loss_fn, low, batch, scale)
    finite = all_finite(gradients)
    updates, state = optimizer.update(gradients, opt_state, low)
    new = (optax.apply_updates(master, updates), state)
    return *select(finite, new, (master, opt_state)), finite


@wrong("values")
def steps_by_zeros(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """After an overflow the optimizer makes a step by gradients of 0: its means decay, its count
    moves, and weights decay. Nothing may change."""
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    gradients = jax.tree.map(lambda g: jnp.where(finite, g, 0), gradients)
    return *_updated(master, opt_state, optimizer, gradients), finite


@wrong("values")
def count_advanced(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """After an overflow the optimizer's count still moves on; choose it, too, with jnp.where."""
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    new = _updated(master, opt_state, optimizer, gradients)

    def choose(new: Array, old: Array) -> Array:
        counts = jnp.issubdtype(new.dtype, jnp.integer)
        return new if counts else jnp.where(finite, new, old)

    return *jax.tree.map(choose, new, (master, opt_state)), finite


@wrong("values")
def state_moves_on(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """After an overflow the parameters are kept, and the state takes the infinite gradients; keep
    the old state, too."""
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    new, state = _updated(master, opt_state, optimizer, gradients)
    return select(finite, new, master), state, finite


@wrong("values")
def overflow_ignored(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """Gradients that are not finite reach the parameters; where there is one, keep everything as it
    was."""
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    return *_updated(master, opt_state, optimizer, gradients), all_finite(gradients)


@wrong("values")
def only_the_loss_checked(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """Only the loss is checked, which may be finite where gradients are not; check every
    gradient."""
    low = _half(master)
    finite = jnp.isfinite(loss_fn(low, batch))
    new = _updated(master, opt_state, optimizer, _gradients(loss_fn, low, batch, scale))
    return *select(finite, new, (master, opt_state)), finite


@wrong("values")
def infinite_parts_left_out(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    """What is not finite is set to 0, and the rest makes a step; one infinite element means that
    nothing may change."""
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    kept = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradients)
    return *_updated(master, opt_state, optimizer, kept), all_finite(gradients)
