"""Answers to vocab_parallel_distillation_loss: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _scaled(student, teacher, temperature):
    told = lax.stop_gradient(teacher).astype(jnp.float32)
    return student.astype(jnp.float32) / temperature, told / temperature


def _log_softmax(logits, axis):
    most = lax.pmax(lax.stop_gradient(logits).max(axis=-1), axis)
    total = lax.psum(jnp.exp(logits - most[..., None]).sum(axis=-1), axis)
    return logits - (most + jnp.log(total))[..., None]


def _loss(given, told, axis, temperature):
    return temperature**2 * lax.psum((jnp.exp(told) * (told - given)).sum(axis=-1), axis)


@right
def sums_in_one_tuple(student, teacher, *, axis, temperature):
    given, told = _scaled(student, teacher, temperature)
    most = [lax.stop_gradient(x).max(axis=-1) for x in (given, told)]
    given, told = (
        x - m[..., None] for x, m in zip((given, told), lax.pmax(most, axis), strict=True)
    )
    p = jnp.exp(told)
    sums = [p.sum(axis=-1), jnp.exp(given).sum(axis=-1), (p * (told - given)).sum(axis=-1)]
    one, other, apart = lax.psum(sums, axis)
    return temperature**2 * (apart / one + jnp.log(other / one))


@right
def with_its_own_derivative(student, teacher, *, axis, temperature):
    @jax.custom_vjp
    def loss(student, teacher):
        both = (_log_softmax(x, axis) for x in _scaled(student, teacher, temperature))
        return _loss(*both, axis, temperature)

    def forward(student, teacher):
        given, told = (_log_softmax(x, axis) for x in _scaled(student, teacher, temperature))
        apart = temperature * (jnp.exp(given) - jnp.exp(told))
        return _loss(given, told, axis, temperature), (apart, teacher)

    def backward(kept, gradient):
        apart, teacher = kept
        return (apart * gradient[..., None]).astype(student.dtype), jnp.zeros_like(teacher)

    loss.defvjp(forward, backward)
    return loss(student, teacher)


@wrong("values")
def half_of_jensen_and_shannon(student, teacher, *, axis, temperature):
    given, told = (_log_softmax(x, axis) for x in _scaled(student, teacher, temperature))
    middle = jnp.logaddexp(given, told) - jnp.log(2.0)
    return temperature**2 * lax.psum((jnp.exp(told) * (told - middle)).sum(axis=-1), axis)


@wrong("values")
def temperature_of_the_stub(student, teacher, *, axis, temperature):
    return with_its_own_derivative(student, teacher, axis=axis, temperature=2.0)


@wrong("values")
def largest_probability_alone(student, teacher, *, axis, temperature):
    given, told = (_log_softmax(x, axis) for x in _scaled(student, teacher, temperature))
    most = lax.pmax(told.max(axis=-1), axis)[..., None]
    terms = jnp.where(told == most, jnp.exp(told) * (told - given), 0)
    return temperature**2 * lax.psum(terms.sum(axis=-1), axis)


@wrong("communication")
def three_sums_of_each(student, teacher, *, axis, temperature):
    given, told = (_log_softmax(x, axis) for x in _scaled(student, teacher, temperature))
    ones = lax.psum(jnp.exp(told).sum(axis=-1), axis)
    total = lax.psum((jnp.exp(told) * (told - given)).sum(axis=-1), axis)
    return temperature**2 * total / ones


@wrong("communication")
def probabilities_gathered(student, teacher, *, axis, temperature):
    given, told = (_log_softmax(x, axis) for x in _scaled(student, teacher, temperature))
    terms = lax.all_gather(jnp.exp(told) * (told - given), axis, axis=-1, tiled=True)
    return temperature**2 * lax.pmean(terms.sum(axis=-1), axis)
