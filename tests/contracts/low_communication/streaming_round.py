"""Answers to streaming_round: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter
from tests.contracts.answers import right


def _check(params, fragments, every):
    count = len(jax.tree.leaves(params))
    found = [place for fragment in fragments for place in fragment]
    if len(fragments) > every or len(found) != count or {*found} != {*range(count)}:
        raise ValueError(f"{fragments=}, {every=}, {count} leaves")


def _due(step, every, fragments):
    """The number of the fragment that is due, or None."""
    firsts = [f * every // len(fragments) for f in range(len(fragments))]
    return firsts.index(step % every) if step % every in firsts else None


def _renewed(params, anchors, outer_states, number, new, state, fragments, axis):
    leaves, structure = jax.tree.flatten(params)
    kept, states = jax.tree.leaves(anchors), [*outer_states]
    states[number] = state
    for place, leaf in zip(fragments[number], new, strict=True):
        kept[place], leaves[place] = leaf, enter(leaf, axis)
    return structure.unflatten(leaves), structure.unflatten(kept), tuple(states)


@right
def delta_averaged(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    f = _due(step, every, fragments)
    if f is None:
        return params, anchors, tuple(outer_states)
    leaves, kept = jax.tree.leaves(params), jax.tree.leaves(anchors)
    old = [kept[place] for place in fragments[f]]
    far = [kept[place] - leaves[place] for place in fragments[f]]
    updates, state = outer.update(lax.pmean(far, axis), outer_states[f], old)
    new = optax.apply_updates(old, updates)
    return _renewed(params, anchors, outer_states, f, new, state, fragments, axis)


@right
def leaves_in_one_array(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    f = _due(step, every, fragments)
    leaves, kept = jax.tree.leaves(params), jax.tree.leaves(anchors)
    if f is None:
        return params, anchors, tuple(outer_states)
    own, old = ([held[place] for place in fragments[f]] for held in (leaves, kept))
    if len({leaf.dtype for leaf in own}) > 1:
        return delta_averaged(
            params, anchors, outer_states, outer, step, fragments=fragments, every=every, axis=axis
        )
    flat, restore = ravel_pytree(own)
    mean = restore(lax.pmean(flat, axis))
    delta = jax.tree.map(jnp.subtract, old, mean)
    updates, state = outer.update(delta, outer_states[f], old)
    new = optax.apply_updates(old, updates)
    return _renewed(params, anchors, outer_states, f, new, state, fragments, axis)


@right
def every_fragment_asked(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    leaves, structure = jax.tree.flatten(params)
    kept, states = jax.tree.leaves(anchors), [*outer_states]
    for f, fragment in enumerate(fragments):
        if (step - f * every // len(fragments)) % every:
            continue
        delta = {i: kept[i] - lax.pmean(leaves[i], axis) for i in fragment}
        updates, states[f] = outer.update(
            [delta[i] for i in fragment], states[f], [kept[i] for i in fragment]
        )
        for i, update in zip(fragment, updates, strict=True):
            kept[i] = (kept[i] + update).astype(kept[i].dtype)
            leaves[i] = lax.pcast(kept[i], axis, to="varying")
    return structure.unflatten(leaves), structure.unflatten(kept), tuple(states)


@wrong("values")
def nothing_synchronised(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    return params, anchors, tuple(outer_states)


@wrong("values")
def first_fragment_always(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    first = 0 if _due(step, every, fragments) is not None else 1
    return delta_averaged(
        params, anchors, outer_states, outer, first, fragments=fragments, every=every, axis=axis
    )


@wrong("values")
def fragments_from_the_last(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    f = _due(step, every, fragments)
    other = 1 if f is None else (len(fragments) - 1 - f) * every // len(fragments)
    return delta_averaged(
        params, anchors, outer_states, outer, other, fragments=fragments, every=every, axis=axis
    )


@wrong("values")
def rounded_up(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """Fragment f is due ceil(f * every / F) steps after the first."""
    _check(params, fragments, every)
    firsts = [-(-f * every // len(fragments)) for f in range(len(fragments))]
    f = firsts.index(step % every) if step % every in firsts else None
    other = 1 if f is None else f * every // len(fragments)
    return delta_averaged(
        params, anchors, outer_states, outer, other, fragments=fragments, every=every, axis=axis
    )


@wrong("values")
def half_of_the_way(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The parameters become the mean of the new anchors and of what this device has."""
    new, anchors, states = delta_averaged(
        params, anchors, outer_states, outer, step, fragments=fragments, every=every, axis=axis
    )
    half = jax.tree.map(lambda one, other: (one + other) / 2, new, params)
    return half, anchors, states


@wrong("values")
def nesterov_of_the_stub(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    by_heart = optax.sgd(0.7, momentum=0.9, nesterov=True)
    return delta_averaged(
        params, anchors, outer_states, by_heart, step, fragments=fragments, every=every, axis=axis
    )


@wrong("communication")
def averaged_twice(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    _check(params, fragments, every)
    f = _due(step, every, fragments)
    if f is None:
        return params, anchors, tuple(outer_states)
    leaves, kept = jax.tree.leaves(params), jax.tree.leaves(anchors)
    old = [kept[place] for place in fragments[f]]
    own = [leaves[place] for place in fragments[f]]
    mean = lax.pmean(own, axis)
    far = lax.pmean(jax.tree.map(jnp.subtract, old, own), axis)
    delta = jax.tree.map(lambda a, b, c: ((a - b + c) / 2).astype(a.dtype), old, mean, far)
    updates, state = outer.update(delta, outer_states[f], old)
    new = optax.apply_updates(old, updates)
    return _renewed(params, anchors, outer_states, f, new, state, fragments, axis)


@wrong("communication")
def anchors_checked(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The anchors are averaged as well, though they are equal."""
    wide = enter(anchors, axis)
    same = lax.pmean(wide, axis)
    same = jax.tree.map(lambda one, other: one.astype(other.dtype), same, anchors)
    return delta_averaged(
        params, same, outer_states, outer, step, fragments=fragments, every=every, axis=axis
    )


@wrong("errors")
def fragments_not_checked(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    count = len(jax.tree.leaves(params))
    there = [[place for place in fragment if place < count] for fragment in fragments]
    for f, fragment in enumerate(there):
        if step % every == f * every // len(fragments):
            leaves, kept = jax.tree.leaves(params), jax.tree.leaves(anchors)
            old = [kept[place] for place in fragment]
            far = [kept[place] - leaves[place] for place in fragment]
            updates, state = outer.update(lax.pmean(far, axis), outer_states[f], old)
            new = optax.apply_updates(old, updates)
            return _renewed(params, anchors, outer_states, f, new, state, there, axis)
    return params, anchors, tuple(outer_states)


@wrong("values")
def nothing_due_at_the_first_step(
    params, anchors, outer_states, outer, step, *, fragments, every, axis
):
    _check(params, fragments, every)
    other = step if step else 1
    return delta_averaged(
        params, anchors, outer_states, outer, other, fragments=fragments, every=every, axis=axis
    )


@wrong("values")
def fractions_of_every(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """Fragment f is due at round(f * every / F)."""
    _check(params, fragments, every)
    firsts = [round(f * every / len(fragments)) for f in range(len(fragments))]
    f = firsts.index(step % every) if step % every in firsts else None
    other = 1 if f is None else f * every // len(fragments)
    return delta_averaged(
        params, anchors, outer_states, outer, other, fragments=fragments, every=every, axis=axis
    )


@wrong("values")
def anchors_are_the_mean(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The devices go on from the outer step, and the anchors remember the mean before it."""
    _check(params, fragments, every)
    new, _, states = delta_averaged(
        params, anchors, outer_states, outer, step, fragments=fragments, every=every, axis=axis
    )
    f, kept = _due(step, every, fragments), jax.tree.leaves(anchors)
    for place in fragments[f] if f is not None else ():
        kept[place] = lax.pmean(jax.tree.leaves(params)[place], axis)
    return new, jax.tree.structure(anchors).unflatten(kept), states


@wrong("values")
def state_of_the_first_fragment(
    params, anchors, outer_states, outer, step, *, fragments, every, axis
):
    """The states are zeros before each step of the outer optimizer."""
    fresh = jax.tree.map(jnp.zeros_like, outer_states)
    new, kept, states = delta_averaged(
        params, anchors, fresh, outer, step, fragments=fragments, every=every, axis=axis
    )
    f = _due(step, every, fragments)
    return new, kept, tuple(states[i] if i == f else s for i, s in enumerate(outer_states))


@wrong("communication")
def next_fragment_sent_as_well(
    params, anchors, outer_states, outer, step, *, fragments, every, axis
):
    """The fragment after the one that is due is averaged too, so that it is there in time."""
    new, kept, states = delta_averaged(
        params, anchors, outer_states, outer, step, fragments=fragments, every=every, axis=axis
    )
    f = _due(step, every, fragments)
    if f is not None:
        leaves, structure = jax.tree.flatten(new)
        early = [lax.pmean(leaves[i], axis) for i in fragments[(f + 1) % len(fragments)]]
        odd = sum(jnp.isnan(leaf).any() for leaf in early)
        place = fragments[f][0]
        leaves[place] = jnp.where(odd > 0, jnp.nan, leaves[place]).astype(leaves[place].dtype)
        new = structure.unflatten(leaves)
    return new, kept, states
