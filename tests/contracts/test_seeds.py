"""No seed fails a right answer, hidden cases included.

`SEEDS=200 pytest tests/contracts/test_seeds.py` takes 200 seeds, and of every exercise the
reference and two other routes. A plain run takes of a program the reference with 20 seeds: to
compile the others takes minutes.
"""

from __future__ import annotations

import os

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES, Exercise
from tests.contracts.test_contracts import TABLES
from tests.many_seeds import failures

ALL = int(os.environ.get("SEEDS", "0"))
DRAWN = [row for row in EXERCISES if row.kind != "specs"]


@pytest.mark.parametrize("row", DRAWN, ids=lambda row: row.id)
def test_no_seed_fails_a_right_answer(row: Exercise) -> None:
    others = [answer for table in TABLES for answer in table.RIGHT.get(row.id, ())]
    compiles = row.kind == "program"
    routes = [load(row.where).reference, *others[: 2 if ALL or not compiles else 0]]
    seeds = ALL or (20 if compiles else 200)
    assert list(failures(row.where, routes, range(1, 1 + seeds))) == []
