"""Answers to mixed_precision_step: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.mixed_precision.common import (
    finished,
    gradients_of,
    half,
    unscaled,
    updated,
    wide,
)
from jaxpar.mesh import varying_axes
from jaxpar.parallel.precision import all_finite, cast, select
from tests.contracts.answers import right


@right
def step_by_pullback(loss_fn, master, opt_state, batch, optimizer, *, scale):
    _, pull = jax.vjp(lambda p: loss_fn(p, batch), half(master))
    axes = set().union(*map(varying_axes, jax.tree.leaves(master)))
    cotangent = lax.pcast(jnp.float32(scale), tuple(sorted(axes)), to="varying")
    gradients = unscaled(wide(pull(cotangent)[0]), scale)
    return finished(gradients, master, opt_state, optimizer)


@right
def step_through_the_cast(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """JAX's derivative of a cast is a cast: the float16 gradients arrive in float32."""
    gradients = jax.grad(lambda p: scale * loss_fn(half(p), batch))(master)
    gradients = jax.tree.map(lambda g: g * (1 / scale), gradients)
    finite = jnp.isfinite(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
    return finished(gradients, master, opt_state, optimizer, finite)


def _scaled(loss_fn, master, batch, scale):
    return jax.grad(lambda p: loss_fn(p, batch) * scale)(half(master))


def _right(loss_fn, master, batch, scale):
    return gradients_of(loss_fn, half(master), batch, scale)


def _like(new, old):
    missing = tuple(set(varying_axes(old)) - set(varying_axes(new)))
    return lax.pcast(new, missing, to="varying") if missing else new


@right
def step_by_cond(loss_fn, master, opt_state, batch, optimizer, *, scale):
    gradients = _right(loss_fn, master, batch, scale)
    finite = all_finite(gradients)

    def update(old):
        new = updated(old[0], old[1], optimizer, gradients)
        return jax.tree.map(_like, new, old)

    old = jax.tree.map(lambda leaf: jnp.where(finite, leaf, leaf), (master, opt_state))
    return *lax.cond(finite, update, lambda old: old, old), finite


@right
def step_checked_before_unscaling(loss_fn, master, opt_state, batch, optimizer, *, scale):
    scaled = _scaled(loss_fn, master, batch, scale)
    finite = all_finite(scaled)
    gradients = jax.tree.map(lambda g: jnp.where(finite, g.astype(jnp.float32) / scale, 0), scaled)
    return finished(gradients, master, opt_state, optimizer, finite)


@right
def step_with_low_batch(loss_fn, master, opt_state, batch, optimizer, *, scale):
    gradients = _right(loss_fn, master, half(batch), scale)
    return finished(gradients, master, opt_state, optimizer)


@right
def step_in_the_optimizer(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The unscaling as a part of the optimizer."""
    whole = optax.chain(optax.scale(1 / scale), optimizer)
    gradients = wide(_scaled(loss_fn, master, batch, scale))
    finite = all_finite(gradients)
    new, (_, state) = updated(master, (optax.EmptyState(), opt_state), whole, gradients)
    return *select(finite, (new, state), (master, opt_state)), finite


@right
def step_if_finite(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The skipping by optax."""
    gradients = _right(loss_fn, master, batch, scale)
    zero = jnp.zeros([], jnp.int32)
    state = optax.ApplyIfFiniteState(zero, jnp.array(True), zero, opt_state)
    whole = optax.apply_if_finite(optimizer, max_consecutive_errors=1)
    new, state = updated(master, state, whole, gradients)
    return new, state.inner_state, state.last_finite


@wrong("flops")
def step_by_reduce_precision(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Rounds as float16 does, and multiplies in float32."""
    rounded = jax.tree.map(lambda leaf: lax.reduce_precision(leaf, 5, 10), master)
    gradients = jax.grad(lambda p: loss_fn(p, batch) * scale)(rounded)
    gradients = jax.tree.map(lambda g: lax.reduce_precision(g, 5, 10) / scale, gradients)
    return finished(gradients, master, opt_state, optimizer)


@wrong("values")
def step_in_bfloat16(loss_fn, master, opt_state, batch, optimizer, *, scale):
    low = cast(master, jnp.bfloat16)
    gradients = jax.grad(lambda p: loss_fn(p, batch) * scale)(low)
    gradients = unscaled(wide(gradients), scale)
    return finished(gradients, master, opt_state, optimizer)


@wrong("flops")
def step_twice(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Finite or not by float16, but the gradients in float32."""
    finite = all_finite(_right(loss_fn, master, batch, scale))
    return finished(jax.grad(loss_fn)(master, batch), master, opt_state, optimizer, finite)


@wrong("values")
def step_by_multiplying(loss_fn, master, opt_state, batch, optimizer, *, scale):
    gradients = _right(loss_fn, master, batch, scale)
    finite = all_finite(gradients)
    new = updated(master, opt_state, optimizer, gradients)
    mixed = jax.tree.map(lambda a, b: a * finite + b * ~finite, new, (master, opt_state))
    return *mixed, finite


@wrong("values")
def step_clipped(loss_fn, master, opt_state, batch, optimizer, *, scale):
    scaled = _scaled(loss_fn, master, batch, scale)
    largest = float(jnp.finfo(jnp.float16).max)
    gradients = jax.tree.map(
        lambda g: jnp.nan_to_num(g.astype(jnp.float32), posinf=largest) / scale, scaled
    )
    return finished(gradients, master, opt_state, optimizer)


@wrong("values")
def step_by_the_scale(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Decides from the scale what the gradients must tell."""
    gradients = _right(loss_fn, master, batch, scale)
    finite = jnp.bool_(scale < 2.0**30)
    return finished(gradients, master, opt_state, optimizer, finite)


def _step_of_leaf(place):
    """A step that looks at one leaf only."""

    def step(loss_fn, master, opt_state, batch, optimizer, *, scale):
        gradients = _right(loss_fn, master, batch, scale)
        finite = jnp.isfinite(jax.tree.leaves(gradients)[place]).all()
        return finished(gradients, master, opt_state, optimizer, finite)

    return wrong("values")(step)


step_of_first_leaf = _step_of_leaf(0)
step_of_last_leaf = _step_of_leaf(-1)


@wrong("values")
def step_by_norm_in_float16(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """The squares overflow where no gradient does."""
    scaled = _scaled(loss_fn, master, batch, scale)
    gradients = unscaled(wide(scaled), scale)
    finite = jnp.isfinite(optax.tree.norm(scaled))
    return finished(gradients, master, opt_state, optimizer, finite)


@wrong("values")
def step_by_infinity_only(loss_fn, master, opt_state, batch, optimizer, *, scale):
    gradients = _right(loss_fn, master, batch, scale)
    finite = ~jnp.stack([jnp.isinf(g).any() for g in jax.tree.leaves(gradients)]).any()
    return finished(gradients, master, opt_state, optimizer, finite)


@wrong("values")
def step_with_scale_cut(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Keeps the scale within float16."""
    gradients = _right(loss_fn, master, batch, min(scale, 1024.0))
    return finished(gradients, master, opt_state, optimizer)


@right
def step_of_flat_gradients(loss_fn, master, opt_state, batch, optimizer, *, scale):
    gradients = _right(loss_fn, master, batch, scale)
    flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradients)])
    return finished(gradients, master, opt_state, optimizer, jnp.isfinite(jnp.abs(flat).max()))


@right
def step_by_value_and_gradient(loss_fn, master, opt_state, batch, optimizer, *, scale):
    scale = jnp.asarray(scale, jnp.float32)
    scaled = jax.value_and_grad(lambda p: scale * loss_fn(p, batch))
    _, gradients = scaled(half(master))
    return finished(unscaled(wide(gradients), scale), master, opt_state, optimizer)


def _axes():
    return tuple(jax.sharding.get_abstract_mesh().axis_names)


@wrong("communication")
def step_of_gathered_batch(loss_fn, master, opt_state, batch, optimizer, *, scale):
    everywhere = lax.all_gather(batch, _axes())
    own = jax.tree.map(lambda leaf: leaf[lax.axis_index(_axes())], everywhere)
    return finished(_right(loss_fn, master, own, scale), master, opt_state, optimizer)


@wrong("communication")
def step_of_all_updates(loss_fn, master, opt_state, batch, optimizer, *, scale):
    """Each device updates the parameters of all devices."""
    gradients = _right(loss_fn, master, batch, scale)
    of_all = lax.all_gather((gradients, master, opt_state), _axes())
    new = jax.vmap(lambda g, m, s: finished(g, m, s, optimizer))(*of_all)
    return jax.tree.map(lambda leaf: leaf[lax.axis_index(_axes())], new)


@wrong("values")
def step_by_a_number_of_python(loss_fn, master, opt_state, batch, optimizer, *, scale):
    return finished(_right(loss_fn, master, batch, float(scale)), master, opt_state, optimizer)


@wrong("values")
def step_with_scale_within_the_cases(loss_fn, master, opt_state, batch, optimizer, *, scale):
    scale = jnp.minimum(scale, 2.0**31)
    return finished(_right(loss_fn, master, batch, scale), master, opt_state, optimizer)


@wrong("values")
def step_with_scale_no_smaller(loss_fn, master, opt_state, batch, optimizer, *, scale):
    scale = jnp.maximum(scale, 2.0**24)
    return finished(_right(loss_fn, master, batch, scale), master, opt_state, optimizer)


def _step_made_if(finite, loss_fn, master, opt_state, batch, optimizer, scale):
    gradients = _right(loss_fn, master, batch, scale)
    checked = jnp.stack([finite(leaf) for leaf in jax.tree.leaves(gradients)]).all()
    return finished(gradients, master, opt_state, optimizer, checked)


@wrong("values")
def step_checked_above_only(*args, scale):
    return _step_made_if(lambda leaf: (leaf < jnp.inf).all(), *args, scale)


@wrong("values")
def step_with_something_finite_in_each_leaf(*args, scale):
    return _step_made_if(lambda leaf: jnp.isfinite(leaf).any(), *args, scale)
