"""Bytes held are bounded by the reference's, and may be traded for bytes sent."""

from __future__ import annotations

import pytest

from jaxpar.contracts.base import MemoryLimit
from jaxpar.contracts.case import Case
from jaxpar.grading.properties import judge_memory
from jaxpar.grading.reader_messages import Facts
from jaxpar.inspector.report import Collective, Memory

CASE = Case("tp=4", {})
STRICT = MemoryLimit("little is held", multiple=2)
TRADED = MemoryLimit("little is held, or little is sent", multiple=2, traded=(5, 1))


def facts(temp: int, sent: int) -> Facts:
    gather = Collective("all_gather", ("tp",), 4, "float32", sent // 3, sent)
    return Facts((gather,), None, (), Memory(0, 0, 0, temp, 0), (), ())


@pytest.mark.parametrize(
    ("rule", "temp", "sent", "right"),
    [
        (STRICT, 20_000, 600, True),
        (STRICT, 40_000, 300, False),
        (TRADED, 20_000, 600, True),
        (TRADED, 40_000, 600, False),
        (TRADED, 40_000, 300, True),
        (TRADED, 40_000, 150, True),
        (TRADED, 60_000, 300, False),
    ],
)
def test_more_may_be_held_where_less_is_sent(
    rule: MemoryLimit, temp: int, sent: int, right: bool
) -> None:
    answer, reference = {"forward": facts(temp, sent)}, {"forward": facts(10_000, 300)}
    assert judge_memory(rule, CASE, answer, reference).right is right
