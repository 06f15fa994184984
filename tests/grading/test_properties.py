"""What is required of one property: bounds on the bytes held, and the pytree of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import pytest

from jaxpar.contracts.base import Communication, MemoryLimit, Quantity, load
from jaxpar.contracts.case import Case
from jaxpar.grading.in_process import InProcessPool, judged
from jaxpar.grading.properties import judge_memory, measure
from jaxpar.grading.reader_messages import Facts
from jaxpar.grading.verdict import Measured
from jaxpar.inspector.report import Collective, Memory
from jaxpar.parallel.data import data_parallel_gradients

CASE = Case("tp=4", {})
GATHER = "jaxpar.contracts.collectives.gather"
STRICT = MemoryLimit("little is held", multiple=2)
TRADED = MemoryLimit("little is held, or little is sent", multiple=2, traded=(5, 1))


def facts(temp: int, sent: int, constants: int = 0) -> Facts:
    gather = Collective("all_gather", ("tp",), 4, "float32", sent // 3, sent)
    held = Memory(0, 0, 0, temp, constants)
    return Facts((gather,), None, None, (), held, (), (), ())


@pytest.mark.parametrize(
    ("rule", "answer", "right"),
    [
        (STRICT, facts(20_000, 600), True),
        (STRICT, facts(40_000, 300), False),
        (STRICT, facts(10_000, 300, constants=30_000), False),
        (TRADED, facts(20_000, 600), True),
        (TRADED, facts(40_000, 600), False),
        (TRADED, facts(40_000, 300), True),
        (TRADED, facts(40_000, 150), True),
        (TRADED, facts(60_000, 300), False),
    ],
)
def test_more_may_be_held_where_less_is_sent(rule: MemoryLimit, answer: Facts, right: bool) -> None:
    reference = facts(10_000, 300)
    assert judge_memory(rule, CASE, {"forward": answer}, {"forward": reference}).right is right


def test_a_gradient_may_hold_more() -> None:
    rule = replace(STRICT, programs=("forward", "gradient"), gradient_multiple=4)
    least = dict.fromkeys(rule.programs, facts(10_000, 300))
    for forward, gradient, right in (
        (20_000, 40_000, True),
        (40_000, 40_000, False),
        (20_000, 60_000, False),
    ):
        answer = {"forward": facts(forward, 300), "gradient": facts(gradient, 300)}
        assert judge_memory(rule, CASE, answer, least).right is right


def measured(quantity: Quantity | None, sends: bool, **answer: Facts) -> Any:
    rule = Communication("anything", ((),)) if sends else None
    contract = replace(load(GATHER), challenge=quantity, communication=rule)
    return measure(contract, CASE, answer, {"forward": facts(1, 96), "gradient": facts(800, 96)})


def test_a_number_is_measured_where_a_contract_has_one() -> None:
    forward, gradient = facts(1, 48), facts(300, 48, constants=100)
    assert measured(None, sends=False, forward=forward) is None
    assert measured(None, True, forward=forward) == Measured("wire_bytes", "tp=4", 48, 96)
    least = measured("temp_bytes", sends=True, forward=forward, gradient=gradient)
    assert least == Measured("temp_bytes", "tp=4", 400, 800, challenge=True)
    assert measured("temp_bytes", sends=True, forward=forward) is None


def test_the_result_is_the_same_pytree_but_a_list_may_be_a_tuple() -> None:
    def as_list(*args: Any, axis: str) -> list:
        return list(data_parallel_gradients(*args, axis=axis))

    def as_leaves(*args: Any, axis: str) -> list:
        return jax.tree.leaves(data_parallel_gradients(*args, axis=axis))

    pool = InProcessPool("jaxpar.contracts.data_parallel.data_parallel_gradients")
    assert judged(as_list, pool).passed
    failure = judged(as_leaves, pool).first_failure()
    assert failure and failure.message == (
        "an array is returned as result[1]; it must be result[1]['bias']"
    )
