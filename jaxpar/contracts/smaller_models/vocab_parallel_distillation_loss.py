"""The distillation loss of each token from logits whose vocabulary is split."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import nn
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import Step, as_it_is, gathered
from jaxpar.contracts.vocabulary_and_sequence.common import of_batch
from jaxpar.parallel import distill


def _losses(case: Case, student: Array, teacher: Array) -> list[Expected]:
    loss = nn.distillation_loss(student, teacher, temperature=case.kwargs["temperature"])
    return of_batch(case, loss)


def _case(
    mesh: str, shape: tuple[int, int, int], layout: str, axis: str, temperature: float,
    dtype: str = "float32", draw: Literal["shifted", "peaked"] = "shifted",
) -> Case:  # fmt: skip
    """A case of logits with this shape and layout, which student and teacher share."""
    args = {name: ArraySpec(shape, layout, dtype, draw) for name in ("student", "teacher")}
    return Case(mesh, args, {"axis": axis, "temperature": temperature})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    n, t, v = pick(rng, (5, 6)), pick(rng, (7, 8, 9)), pick(rng, range(1400, 1500))
    many = (2, t, n * v), f"b_{other} t v_{axis}", axis, pick(rng, (3.0, 5.0))
    one = (2 * pick(rng, (6, 7)), 11, 29), f"b_{other} t v_{axis}", axis, pick(rng, (0.75, 1.5))
    return (
        _case(mesh_of(rng, **{axis: n, other: 2}), *many, "bfloat16", "peaked"),
        _case(f"{axis}=1,{other}=2", *one, "float32", "peaked"),
    )


def _wire_bytes(sizes: Sizes) -> float:
    """Of all-reduces of five float32 for each token."""
    n, logits = sizes.n(), sizes.case.args["student"]
    item_bytes = 2 if logits.dtype == "bfloat16" else 4
    tokens = sizes.bytes("student") / item_bytes / (logits.shape[-1] / n)
    return 2 * (n - 1) / n * 5 * 4 * tokens


CONTRACT = Contract(
    kind="program",
    task="return the distillation loss of each token in float32, without ever gathering logits",
    reference=distill.vocab_parallel_distillation_loss,
    oracle=_losses,
    cases=(
        _case("tp=8", (4, 32, 8 * 128), "b t v_tp", "tp", 2.0),
        _case("dp=2,tpx=3", (2 * 3, 20, 3 * 34), "b_dp t v_tpx", "tpx", 0.5, "bfloat16", "peaked"),
    ),
    draw=_drawn,
    gradient=("student", "teacher"),
    communication=Communication(
        "all-reduces of five numbers for each token, backward nothing",
        forward=((Limit(("all_reduce",), "axis", _wire_bytes),),),
    ),
    memory=MemoryLimit(
        "never all logits of a token: at most ten times the library's bytes of intermediate "
        "results, forward and backward",
        multiple=10,
        programs=("forward", "gradient"),
    ),
    tolerance=8,  # log softmax of logits of some hundreds, whose last digits the sum of p has
    hints=(
        "With p of the teacher and q of the student, the divergence is sum p (log p - log q). Each "
        "logarithm of a softmax is a logit less the logarithm of a sum, and every sum over the "
        "vocabulary is a sum over the devices.",
        "Subtract a maximum over all devices from the student's logits, and another from the "
        "teacher's; two numbers for each token, by lax.pmax. They cancel in the result.",
        "Three sums are left: of exp of the teacher, of exp of the student, and of exp(teacher) * "
        "(teacher - student). The loss is the third over the first, less log of the first, plus "
        "log of the second, times temperature**2; lax.stop_gradient around the teacher.",
    ),
    minimal="A maximum and a sum of exp for each of the two, and the sum that joins them: five "
    "numbers, whatever the size of the vocabulary.",
    harder="Let the teacher send only its 16 largest logits of each token and the logarithm of the "
    "sum of the others: how much of the loss remains?",
)


def _wide(student: Array, teacher: Array, temperature: float) -> tuple[Array, Array]:
    """Both in float32, over the temperature."""
    told = lax.stop_gradient(teacher).astype(jnp.float32) / temperature
    return student.astype(jnp.float32) / temperature, told


def _log_softmax(
    logits: Array, axis: str, *, largest: Step = lax.pmax, total: Step = lax.psum
) -> Array:
    """The logarithms of the probabilities of this device's tokens, with a step in another way."""
    less = largest(lax.stop_gradient(logits.max(axis=-1)), axis)[..., None]
    sums = total(jnp.exp(logits - less).sum(axis=-1), axis)[..., None]
    return logits - less - jnp.log(sums)


def _divergence(
    student: Array, teacher: Array, axis: str, temperature: float, **steps: Step
) -> Array:
    """A right answer but for what is sent, which `total` may change: five all-reduces."""
    given, told = (_log_softmax(one, axis, **steps) for one in _wide(student, teacher, temperature))
    return temperature**2 * lax.psum((jnp.exp(told) * (told - given)).sum(axis=-1), axis)


@wrong("values")
def softmax_of_the_shard(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """Each softmax is over the tokens of one device; add up exp of the logits over the devices
    before the logarithm."""
    return _divergence(student, teacher, axis, temperature, largest=as_it_is, total=as_it_is)


@wrong("values")
def no_maximum(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """exp of large logits is infinite, and of very small ones zero; subtract the maximum over all
    devices first."""

    def none(x: Array, axis: str) -> Array:
        return jnp.zeros_like(x)

    return _divergence(student, teacher, axis, temperature, largest=none)


@wrong("values")
def maximum_of_the_shard(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """Each device subtracts its own maximum, and the sums of exp do not fit together; take lax.pmax
    of it first."""
    return _divergence(student, teacher, axis, temperature, largest=as_it_is)


@wrong("values")
def one_maximum_for_both(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The teacher's maximum is subtracted from the student's logits as well, which may be far
    above or below it; each has a maximum of its own."""
    given, told = _wide(student, teacher, temperature)
    less = lax.pmax(told.max(axis=-1), axis)

    def largest(x: Array, axis: str) -> Array:
        return less

    one, other = (_log_softmax(logits, axis, largest=largest) for logits in (given, told))
    return temperature**2 * lax.psum((jnp.exp(other) * (other - one)).sum(axis=-1), axis)


@wrong("values")
def divergence_turned_round(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The logarithms are weighted by the student's probabilities; weight them by the teacher's, and
    subtract the student's logarithm."""
    given, told = (_log_softmax(one, axis) for one in _wide(student, teacher, temperature))
    return temperature**2 * lax.psum((jnp.exp(given) * (given - told)).sum(axis=-1), axis)


@wrong("values")
def square_of_temperature_missing(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The divergence is not multiplied by temperature**2, so that a higher temperature makes the
    gradients smaller."""
    return _divergence(student, teacher, axis, temperature) / temperature**2


@wrong("values")
def times_temperature_once(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The divergence is multiplied by the temperature; its gradient falls with the square of it, so
    multiply by temperature**2."""
    return _divergence(student, teacher, axis, temperature) / temperature


@wrong("values")
def temperature_of_the_teacher_alone(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """Only the teacher's logits are divided by the temperature; divide the student's, too."""
    return _divergence(student.astype(jnp.float32) * temperature, teacher, axis, temperature)


@wrong("values")
def temperature_multiplied(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The logits are multiplied by the temperature; divide them by it."""
    squared = _divergence(student, teacher, axis, 1 / temperature)
    return temperature**4 * squared


@wrong("values")
def temperature_left_out(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The temperature is not used at all; divide both by it, and multiply by its square."""
    return _divergence(student, teacher, axis, 1.0)


@wrong("values")
def entropy_not_subtracted(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The cross-entropy with the teacher's probabilities is returned, which is not 0 where both are
    equal; subtract the teacher's entropy."""
    given, told = (_log_softmax(one, axis) for one in _wide(student, teacher, temperature))
    return -(temperature**2) * lax.psum((jnp.exp(told) * given).sum(axis=-1), axis)


@wrong("values")
def own_part_of_the_sum(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """Each device returns the sum over its own tokens; add up over the devices with lax.psum."""
    given, told = (_log_softmax(one, axis) for one in _wide(student, teacher, temperature))
    return temperature**2 * (jnp.exp(told) * (told - given)).sum(axis=-1)


@wrong("values")
def mean_over_the_vocabulary(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The terms are averaged over the vocabulary, as KLDivLoss does by default; add them up."""
    v = lax.axis_size(axis) * student.shape[-1]
    return _divergence(student, teacher, axis, temperature) / v


@wrong("values")
def mean_of_tokens(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The mean over all tokens is returned; return the loss of each, [b, t]."""
    return _divergence(student, teacher, axis, temperature).mean()


@wrong("values")
def logits_apart(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The mean square of what is between the logits is returned; compare probabilities, which do
    not change where all logits of a token are raised."""
    given, told = _wide(student, teacher, temperature)
    total = lax.psum(((given - told) ** 2).sum(axis=-1), axis)
    return temperature**2 * total / (lax.axis_size(axis) * student.shape[-1])


@wrong("values")
def in_dtype_of_logits(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The sums are in the dtype of the logits, and bfloat16 keeps fewer than three digits; convert
    the logits to float32 first."""
    both = student / temperature, lax.stop_gradient(teacher) / temperature
    given, told = (_log_softmax(one, axis) for one in both)
    loss = lax.psum((jnp.exp(told) * (told - given)).sum(axis=-1), axis)
    return temperature**2 * loss.astype(jnp.float32)


@wrong("gradient")
def gradient_to_the_teacher(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The teacher gets a gradient, and would learn from its student; put lax.stop_gradient around
    its logits."""
    both = (one.astype(jnp.float32) / temperature for one in (student, teacher))
    given, told = (_log_softmax(one, axis) for one in both)
    return temperature**2 * lax.psum((jnp.exp(told) * (told - given)).sum(axis=-1), axis)


@wrong("gradient")
def no_gradient_at_all(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """lax.stop_gradient is around the student's logits as well, and it learns nothing."""
    return _divergence(lax.stop_gradient(student), teacher, axis, temperature)


@wrong("gradient")
def gradient_of_the_shard(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The derivative takes the student's softmax of this device's tokens; divide exp by the sum
    over all devices."""

    def loss(student: Array) -> Array:
        return _divergence(student, teacher, axis, temperature)

    def backward(kept: Array, gradient: Array) -> tuple[Array]:
        return ((kept * gradient[..., None]).astype(student.dtype),)

    def forward(student: Array) -> tuple[Array, Array]:
        given, told = _wide(student, teacher, temperature)
        apart = jax.nn.softmax(given) - jnp.exp(_log_softmax(told, axis))
        return loss(student), temperature * apart

    function = jax.custom_vjp(loss)
    function.defvjp(forward, backward)
    return function(student)


def _gathered_loss(
    student: Array, teacher: Array, axis: str, temperature: float, gather: Callable[..., Array]
) -> Array:
    """The loss of one device, of gathered logits; equal on all devices, and typed so."""
    whole = gather(student), gather(lax.stop_gradient(teacher))
    return lax.pmean(nn.distillation_loss(*whole, temperature=temperature), axis)


@wrong("communication")
def logarithm_inside_the_sum(
    student: Array, teacher: Array, *, axis: str, temperature: float
) -> Array:
    """The logarithm of the sum of exp is subtracted from every logit before they are added up, so
    that its gradient is summed over the devices again; subtract it from what has been added up."""
    return _divergence(student, teacher, axis, temperature)


@wrong("communication")
def logits_gathered(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The logits are gathered, v numbers for each token and model; send two maxima and three sums
    only."""
    return _gathered_loss(student, teacher, axis, temperature, partial(gathered, axis=axis, dim=-1))


@wrong("communication")
def teacher_gathered(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The teacher's logits are gathered, since its probabilities are given; its softmax needs a
    maximum and a sum only."""
    given, _ = _wide(student, teacher, temperature)
    whole = gathered(lax.stop_gradient(teacher).astype(jnp.float32), axis, -1) / temperature
    v = student.shape[-1]
    every = jax.nn.log_softmax(whole, axis=-1)
    told = lax.dynamic_slice_in_dim(every, lax.axis_index(axis) * v, v, every.ndim - 1)
    given = _log_softmax(given, axis)
    return temperature**2 * lax.psum((jnp.exp(told) * (told - given)).sum(axis=-1), axis)


@wrong("communication")
def six_sums(student: Array, teacher: Array, *, axis: str, temperature: float) -> Array:
    """The teacher's entropy and the cross-entropy are summed over the devices apart, a sixth number
    for each token; add up their difference."""
    given, told = (_log_softmax(one, axis) for one in _wide(student, teacher, temperature))
    weights = jnp.exp(told)
    entropy = lax.psum((weights * told).sum(axis=-1), axis)
    return temperature**2 * (entropy - lax.psum((weights * given).sum(axis=-1), axis))
