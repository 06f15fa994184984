"""What is said about a wrong answer that is no known mistake in every case."""

from collections.abc import Callable

import jax
import pytest
from jax import lax

from jaxpar.collectives import tree_broadcast
from jaxpar.contracts.sentences import SENTENCES
from jaxpar.grading.diagnosis import NOTHING_ARRIVED
from tests.in_process import InProcessPool, judged


@pytest.fixture(scope="module")
def judge() -> Callable:
    pool = InProcessPool("jaxpar.contracts.ring_and_tree:tree_broadcast")  # on tp=8, then on tp=6
    return lambda function: judged(function, pool)


def zeros_on_eight(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    for held in (1, 2, 4):
        pairs = [((root + p) % 8, (root + p + held) % 8) for p in range(held)]
        x = lax.ppermute(x, axis, pairs)
    return x


def zeros_from_device_0(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n = lax.axis_size(axis)
    for held in (1, 2, 4):
        pairs = [(p, p + held) for p in range(min(held, n - held))]
        x = lax.ppermute(x, axis, pairs)
    return x


def three_times_on_eight(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    if lax.axis_size(axis) != 8:
        raise ValueError("eight only")
    return 3 * x


def right_on_eight(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    if lax.axis_size(axis) != 8:
        raise ValueError("eight only")
    return tree_broadcast(x, axis=axis, root=root)


def test_a_mistake_is_named_although_another_case_raises(judge: Callable) -> None:
    assert judge(zeros_on_eight).diagnosis == SENTENCES["zeros_without_source"]


def test_zeros_of_a_permute_are_named_whatever_else_is_wrong(judge: Callable) -> None:
    assert judge(zeros_from_device_0).diagnosis == NOTHING_ARRIVED


def test_an_error_of_another_case_is_told_with_its_mesh(judge: Callable) -> None:
    verdict = judge(three_times_on_eight)
    assert verdict.first_failure().message.startswith("on tp=8, ")
    assert verdict.diagnosis == "on dp=2,tp=6: ValueError: eight only"


def test_a_right_result_of_another_case_accuses_nobody(judge: Callable) -> None:
    assert judge(right_on_eight).diagnosis == "on dp=2,tp=6: ValueError: eight only"
