"""The distillation loss over a split vocabulary is that of one device, and sends 5 numbers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import nn
from jaxpar.parallel.distill import vocab_parallel_distillation_loss
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

P = jax.P
SPLIT = P("dp", None, "tp")
T = 2.0
STUDENT, TEACHER = random(4, 6, 24), 3 * random(4, 6, 24)[::-1]
CALL = Call(
    vocab_parallel_distillation_loss,
    lambda student, teacher: vocab_parallel_distillation_loss(
        student, teacher, axis="tp", temperature=T
    ),
    (STUDENT + 100, TEACHER - 100),
    (SPLIT, SPLIT),
    P("dp"),
    names={"b": 2, "t": 6},
)


@pytest.mark.parametrize("sizes", ["dp=2,tp=4", "dp=1,tp=3", "dp=4,tp=1"])
def test_it_is_that_of_one_device(sizes: str) -> None:
    """With the gradients: that with respect to the teacher is 0."""
    one_device = partial(nn.distillation_loss, temperature=T)
    assert_equal_one_device(CALL, one_device, sizes)
    _, (_, to_teacher) = CALL.program(sizes, differentiate=True)(*CALL.args)
    assert not np.any(to_teacher)


def test_its_docstring_holds() -> None:
    assert_docstring_holds(CALL, "dp=2,tp=4", axis="tp")


def test_it_is_the_divergence_times_the_square_of_the_temperature() -> None:
    p, q = (np.exp(x / T) / np.exp(x / T).sum(axis=-1, keepdims=True) for x in (TEACHER, STUDENT))
    found = nn.distillation_loss(jnp.asarray(STUDENT), jnp.asarray(TEACHER), temperature=T)
    np.testing.assert_allclose(found, T**2 * (p * np.log(p / q)).sum(axis=-1), rtol=1e-4)


def test_equal_logits_are_no_loss_at_any_temperature() -> None:
    for temperature in (0.5, 4.0):
        loss = nn.distillation_loss(
            jnp.asarray(STUDENT), jnp.asarray(STUDENT + 7), temperature=temperature
        )
        np.testing.assert_allclose(loss, 0, atol=1e-4)


def test_the_gradient_keeps_its_size_where_the_temperature_is_high() -> None:
    def size(temperature: float) -> float:
        loss = partial(nn.distillation_loss, teacher=jnp.asarray(TEACHER), temperature=temperature)
        return float(jnp.linalg.norm(jax.grad(lambda x: loss(x).sum())(jnp.asarray(STUDENT))))

    assert size(100.0) == pytest.approx(size(200.0), rel=0.05)
