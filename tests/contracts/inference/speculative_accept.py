"""Answers to speculative_accept: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _refused(draft, target_probs):
    if target_probs.shape[1] != draft.shape[1] + 1:
        raise ValueError("distributions")


@right
def ratios_and_argmin(draft, draft_probs, target_probs, uniforms):
    """The place of the first refusal, with one that is always refused behind the drafts."""
    _refused(draft, target_probs)
    q, p = draft_probs.astype(jnp.float32), target_probs.astype(jnp.float32)
    rows, places = jnp.arange(len(draft))[:, None], jnp.arange(draft.shape[1])[None]
    ratio = p[rows, places, draft] / q[rows, places, draft]
    refused = jnp.pad(uniforms >= ratio, ((0, 0), (0, 1)), constant_values=True)
    accepted = jnp.argmax(refused, axis=1).astype(jnp.int32)
    rest = jnp.maximum(p - jnp.pad(q, ((0, 0), (0, 1), (0, 0))), 0)
    rest = rest / jnp.where(rest.sum(2) > 0, rest.sum(2), 1)[..., None]
    return accepted, jnp.take_along_axis(rest, accepted[:, None, None], axis=1)[:, 0]


@right
def row_by_row_in_a_loop(draft, draft_probs, target_probs, uniforms):
    """Under vmap, a loop that ends with the first refusal."""
    _refused(draft, target_probs)
    t = draft.shape[1]

    def of_row(draft, q, p, uniforms):
        q, p = q.astype(jnp.float32), p.astype(jnp.float32)

        def goes_on(i):
            at = jnp.minimum(i, t - 1)
            return (i < t) & (uniforms[at] < p[at, draft[at]] / q[at, draft[at]])

        accepted = lax.while_loop(goes_on, lambda i: i + 1, jnp.zeros_like(draft[0]))
        at = jnp.minimum(accepted, t - 1)
        rest = p[accepted] - jnp.where(accepted < t, jnp.minimum(p[at], q[at]), 0)
        return accepted, rest / rest.sum()

    return jax.vmap(of_row)(draft, draft_probs, target_probs, uniforms)


@wrong("values")
def logarithms_of_a_number_above_zero(draft, draft_probs, target_probs, uniforms):
    """Right but for numbers and probabilities of 0, which it raises a little."""
    tiny = 1e-3
    return ratios_and_argmin(
        draft, draft_probs, jnp.maximum(target_probs, tiny), jnp.maximum(uniforms, tiny)
    )


@wrong("values")
def all_or_nothing(draft, draft_probs, target_probs, uniforms):
    accepted, after = ratios_and_argmin(draft, draft_probs, target_probs, uniforms)
    return jnp.where(accepted == draft.shape[1], accepted, 0), after


@wrong("values")
def four_or_two_drafts(draft, draft_probs, target_probs, uniforms):
    if draft.shape[1] not in (4, 2):
        raise KeyError("another number of drafts")
    return ratios_and_argmin(draft, draft_probs, target_probs, uniforms)


@wrong("values")
def first_number_for_all(draft, draft_probs, target_probs, uniforms):
    uniforms = jnp.broadcast_to(uniforms[:, :1], uniforms.shape)
    return ratios_and_argmin(draft, draft_probs, target_probs, uniforms)


@wrong("values")
def numbers_in_the_dtype_of_the_probabilities(draft, draft_probs, target_probs, uniforms):
    """Compares products in 16 bits."""
    _refused(draft, target_probs)
    rows, places = jnp.arange(len(draft))[:, None], jnp.arange(draft.shape[1])[None]
    q, p = draft_probs[rows, places, draft], target_probs[rows, places, draft]
    keeps = uniforms.astype(q.dtype) * q < p
    accepted = jnp.cumprod(keeps.astype(jnp.int32), axis=1).sum(1)
    wide = target_probs - jnp.pad(draft_probs, ((0, 0), (0, 1), (0, 0)))
    rest = jnp.maximum(wide, 0)[jnp.arange(len(draft)), accepted]
    return accepted, rest / rest.sum(1, keepdims=True)


@wrong("values")
def one_distribution_only(draft, draft_probs, target_probs, uniforms):
    """The distribution after a refusal, divided by the sum over all rows."""
    accepted, _ = ratios_and_argmin(draft, draft_probs, target_probs, uniforms)
    q, p = draft_probs.astype(jnp.float32), target_probs.astype(jnp.float32)
    rest = jnp.maximum(p - jnp.pad(q, ((0, 0), (0, 1), (0, 0))), 0)
    rest = rest[jnp.arange(len(draft)), accepted]
    return accepted, rest / rest.sum()


@wrong("communication")
def counts_averaged(draft, draft_probs, target_probs, uniforms):
    """As a server counts them."""
    accepted, after = ratios_and_argmin(draft, draft_probs, target_probs, uniforms)
    axis = jax.sharding.get_abstract_mesh().axis_names[0]
    return accepted + 0 * lax.psum(accepted, axis), after
