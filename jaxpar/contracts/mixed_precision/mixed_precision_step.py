"""A training step in float16, which is skipped where a gradient overflows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, FlopsLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, fill
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.losses import layers, layers_batch, network_batch, on_each_device
from jaxpar.contracts.mixed_precision.common import (
    finished,
    gradients_of,
    half,
    unscaled,
    updated,
    wide,
)
from jaxpar.mesh import varying_axes
from jaxpar.parallel import precision
from jaxpar.parallel.precision import all_finite, cast, select

LARGEST = float(jnp.finfo(jnp.float16).max)


def _stepped(
    case: Case,
    loss_fn: Callable,
    master: Any,
    opt_state: Any,
    batch: Any,
    optimizer: optax.GradientTransformation,
) -> list[Expected]:
    """One step on each device by itself, none where float16 has no room for a scaled gradient."""
    sizes, scale = case.sizes.values(), fill(case.kwargs["scale"], iter(()))
    n = math.prod(sizes)

    def step(master: Any, opt_state: Any, batch: Any) -> Any:
        gradients = jax.grad(loss_fn)(master, batch)
        fits = [jnp.all(jnp.abs(scale * g) <= LARGEST) for g in jax.tree.leaves(gradients)]
        finite = jnp.stack(fits).all()
        updates, state = optimizer.update(gradients, opt_state, master)
        new = (optax.apply_updates(master, updates), state)
        return select(finite, new, (master, opt_state)), finite

    def shards(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, n) if leaf.ndim == 0 else leaf.reshape(n, -1, *leaf.shape[1:])

    results = jax.vmap(step)(*jax.tree.map(shards, (master, opt_state, batch)))
    return [Expected(leaf.reshape(*sizes, *leaf.shape[1:])) for leaf in jax.tree.leaves(results)]


def _given(name: str) -> Function:
    return Function(f"jaxpar.contracts.small_losses:{name}")


def _matrices(inputs: int, hidden: int) -> dict[str, ArraySpec]:
    """The parameters of `overflowing_error`."""
    return {"w_in": ArraySpec((inputs, hidden), "d f"), "w_out": ArraySpec((hidden,), "f")}


def _flags(n: int, axes: str) -> ArraySpec:
    """Whether each device's step overflows: some do, and others do not."""
    return ArraySpec((n,), f"b_{axes}", "bool", "padded")


def _of_this_lesson(name: str) -> Function:
    return Function(f"jaxpar.contracts.mixed_precision.common:{name}")


def _deep_case(mesh: str, widths: tuple[int, ...], examples: int, exponent: int) -> Case:
    """A list of layers of these widths, and a scale that is known only when the program runs."""
    axes, n = all_axes(mesh), math.prod(parse_mesh(mesh).values())
    inputs, *hidden, outputs = widths
    model: list[dict[str, ArraySpec]] = [
        {"w": ArraySpec((d, f), "d f"), "scale": ArraySpec((f,), "f")}
        for d, f in zip(widths, hidden, strict=False)
    ]
    model.append({"w": ArraySpec((hidden[-1], outputs), "f d")})
    examples_of = layers_batch(f"b_{axes}", (n * examples,), inputs, outputs)
    return Case(
        mesh,
        {
            "loss_fn": _given("overflowing_layers"),
            "master": on_each_device(model, n, axes),
            "opt_state": Made(_given("momentum_state"), (on_each_device(model, n, axes),)),
            "batch": (*examples_of, _flags(n, axes)),
            "optimizer": _given("MOMENTUM"),
        },
        {"scale": Made(_of_this_lesson("known_when_run"), (2.0**exponent,))},
    )


def _larger_case(mesh: str, inputs: int, hidden: int, examples: int, exponent: int) -> Case:
    """Matrices whose loss has an ordinary size."""
    axes, n = all_axes(mesh), math.prod(parse_mesh(mesh).values())
    master = on_each_device(_matrices(inputs, hidden), n, axes)
    batch = network_batch(f"b_{axes}", (n * examples,), inputs) | {"rare": _flags(n, axes)}
    return Case(
        mesh,
        {
            "loss_fn": _of_this_lesson("larger_error"),
            "master": master,
            "opt_state": Made(_of_this_lesson("larger_momentum_state"), (master,)),
            "batch": batch,
            "optimizer": _of_this_lesson("LARGER_MOMENTUM"),
        },
        {"scale": 2.0**exponent},
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    one, two = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    widths = pick(rng, (4, 7)), pick(rng, (9, 11)), pick(rng, (8, 10)), 2
    exponents = pick(rng, range(25, 29)), pick(rng, range(8, 13)), pick(rng, range(60, 70))
    return (
        _deep_case(mesh_of(rng, **{one: 5, two: 2}), widths, pick(rng, (15, 25)), exponents[0]),
        _larger_case(f"{one}=1,{two}=4", 5, pick(rng, (13, 14)), 28, exponents[1]),
        # So large a scale that no step is made.
        _deep_case(f"{two}=4", (6, 13, 4), 18, exponents[2]),
    )


CONTRACT = Contract(
    kind="program",
    task="return new master parameters, new state and whether the gradients were finite",
    reference=precision.mixed_precision_step,
    oracle=_stepped,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": _given("overflowing_error"),
                "master": on_each_device(_matrices(6, 16), 8, "dp"),
                "opt_state": Made(
                    _given("adamw_state"),
                    (
                        ArraySpec((), "", "int32"),
                        on_each_device(_matrices(6, 16), 8, "dp"),
                        on_each_device(_matrices(6, 16), 8, "dp", draw="positive"),
                    ),
                ),
                "batch": network_batch("b_dp", (8 * 32,), 6) | {"rare": _flags(8, "dp")},
                "optimizer": _given("ADAMW"),
            },
            {"scale": 2.0**30},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "loss_fn": _given("overflowing_layers"),
                "master": on_each_device(layers(5, 12, 3), 6, "fsdp_tp"),
                "opt_state": Made(
                    _given("momentum_state"), (on_each_device(layers(5, 12, 3), 6, "fsdp_tp"),)
                ),
                "batch": (*layers_batch("b_fsdp_tp", (6 * 20,), 5, 3), _flags(6, "fsdp_tp")),
                "optimizer": _given("MOMENTUM"),
            },
            {"scale": 2.0**31},
        ),
    ),
    draw=_drawn,
    communication=Communication("nothing is sent", forward=((),)),
    flops=FlopsLimit(
        "each matrix product once, and of float16 values",
        programs=("forward",),
        dtypes=("float16",),
    ),
    hints=(
        "Differentiate with respect to the float16 copy of the parameters, not to the float32 "
        "ones; jax.tree.map makes the copy. The loss that loss_fn returns is float32: scale it "
        "there.",
        "The gradients come in float16. Convert them to float32 first, then divide by scale, and "
        "only then let the optimizer have them, with the float32 parameters.",
        "jnp.isfinite(leaf).all() for every leaf. Make the step in any case, and choose with "
        "jnp.where for every leaf of parameters and state: the new or the old.",
    ),
    minimal="Each device has all that it needs. The operands of a float16 product take half the "
    "bytes of float32 ones.",
    harder="Return the loss, too, without a second forward pass and without the scale.",
)


@wrong("values")
def in_float32(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """No gradient overflows, because nothing is computed in float16; give loss_fn a float16 copy of
    the parameters."""
    return finished(gradients_of(loss_fn, master, batch, scale), master, opt_state, optimizer)


@wrong("values")
def in_bfloat16(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """You compute in bfloat16, which has room for gradients so large, but keeps fewer than three
    digits; give loss_fn a float16 copy of the parameters."""
    low = cast(master, jnp.bfloat16)
    return finished(gradients_of(loss_fn, low, batch, scale), master, opt_state, optimizer)


@wrong("values")
def scale_by_heart(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """You always scale by the scale of the first case; use `scale`."""
    return finished(
        gradients_of(loss_fn, half(master), batch, 2.0**30), master, opt_state, optimizer
    )


@wrong("values")
def flag_of_all_devices(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The overflow of one device stops the step of others, too; here each device has parameters of
    its own, and decides by its own gradients."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    finite = all_finite(gradients)
    worst = lax.pmin(finite.astype(jnp.int32), tuple(sorted(varying_axes(finite)))) == 1
    return finished(gradients, master, opt_state, optimizer, worst)


@wrong("communication")
def parameters_of_all_gathered(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The parameters of all devices are gathered, and each device takes its own again; it has them,
    so send nothing."""

    def own_of_all(leaf):
        axes = tuple(sorted(varying_axes(leaf)))
        return lax.all_gather(leaf, axes)[lax.axis_index(axes)]

    low = half(jax.tree.map(own_of_all, master))
    return finished(gradients_of(loss_fn, low, batch, scale), master, opt_state, optimizer)


@wrong("flops")
def cast_back_to_float32(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The parameters are rounded to float16 and converted back before loss_fn, so that its products
    are of float32 values; give it the float16 copy."""

    def widened_loss(low, batch):
        return loss_fn(wide(low), batch)

    gradients = gradients_of(widened_loss, half(master), batch, scale)
    return finished(gradients, master, opt_state, optimizer)


@wrong("values")
def scaled_after_the_cast(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Small gradients are 0 in float16, because the loss was not scaled before it was
    differentiated; scaled after the cast, they stay 0."""
    gradients = wide(jax.grad(loss_fn)(half(master), batch))
    gradients = jax.tree.map(lambda g: g * scale / scale, gradients)
    return finished(gradients, master, opt_state, optimizer)


def _scale_in_float16(scale):
    # Converted when the program runs: numpy would warn of the overflow.
    return lax.optimization_barrier(jnp.float32(scale)).astype(jnp.float16)


@wrong("values")
def scaled_in_float16(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The loss is scaled in float16, where this scale is infinite; scale it in float32, as loss_fn
    returns it."""

    def scaled_loss(low):
        return loss_fn(low, batch).astype(jnp.float16) * _scale_in_float16(scale)

    gradients = unscaled(wide(jax.grad(scaled_loss)(half(master))), scale)
    return finished(gradients, master, opt_state, optimizer)


@wrong("values")
def not_unscaled(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The gradients are not divided by scale before the optimizer takes them."""
    gradients = wide(jax.grad(lambda p: scale * loss_fn(p, batch))(half(master)))
    return finished(gradients, master, opt_state, optimizer)


@wrong("values")
def unscaled_in_float16(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The gradients are divided by scale in float16, where they become 0 again; convert them to
    float32 first."""
    scaled = jax.grad(lambda p: scale * loss_fn(p, batch))(half(master))
    gradients = wide(unscaled(scaled, _scale_in_float16(scale)))
    return finished(gradients, master, opt_state, optimizer)


@wrong("values")
def master_in_float16(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The update is added to the float16 copy, which rounds it away; add it to `master`, in
    float32."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    finite = all_finite(gradients)
    updates, state = optimizer.update(gradients, opt_state, master)
    new = wide(optax.apply_updates(half(master), updates))
    return *select(finite, (new, state), (master, opt_state)), finite


@wrong("values")
def decay_of_rounded_weights(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The optimizer is given the float16 copy of the parameters, from which weight decay comes out
    rounded; give it `master`."""
    low = half(master)
    gradients = gradients_of(loss_fn, low, batch, scale)
    finite = all_finite(gradients)
    updates, state = optimizer.update(gradients, opt_state, low)
    new = (optax.apply_updates(master, updates), state)
    return *select(finite, new, (master, opt_state)), finite


@wrong("values")
def steps_by_zeros(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """After an overflow the optimizer makes a step by gradients of 0: its means decay, its count
    moves, and weights decay. Nothing may change."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    finite = all_finite(gradients)
    gradients = jax.tree.map(lambda g: jnp.where(finite, g, 0), gradients)
    return *updated(master, opt_state, optimizer, gradients), finite


@wrong("values")
def count_advanced(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """After an overflow the optimizer's count still moves on; choose it, too, with jnp.where."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    finite = all_finite(gradients)
    new = updated(master, opt_state, optimizer, gradients)

    def choose(new, old):
        counts = jnp.issubdtype(new.dtype, jnp.integer)
        return new if counts else jnp.where(finite, new, old)

    return *jax.tree.map(choose, new, (master, opt_state)), finite


@wrong("values")
def state_moves_on(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """After an overflow the parameters are kept, and the state takes the infinite gradients; keep
    the old state, too."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    finite = all_finite(gradients)
    new, state = updated(master, opt_state, optimizer, gradients)
    return select(finite, new, master), state, finite


@wrong("values")
def overflow_ignored(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Gradients that are not finite reach the parameters; where there is one, keep everything as it
    was."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    return *updated(master, opt_state, optimizer, gradients), all_finite(gradients)


@wrong("values")
def only_the_loss_checked(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Only the loss is checked, which may be finite where gradients are not; check every
    gradient."""
    low = half(master)
    finite = jnp.isfinite(loss_fn(low, batch))
    gradients = gradients_of(loss_fn, low, batch, scale)
    return finished(gradients, master, opt_state, optimizer, finite)


@wrong("values")
def infinite_parts_left_out(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """What is not finite is set to 0, and the rest makes a step; one infinite element means that
    nothing may change."""
    gradients = gradients_of(loss_fn, half(master), batch, scale)
    kept = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradients)
    return *updated(master, opt_state, optimizer, kept), all_finite(gradients)
