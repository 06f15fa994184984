"""No seed fails a right answer: the reference and two other routes, hidden cases included.

SEEDS=200 in the environment takes 200 of them for every exercise; a plain run takes fewer.
"""

from __future__ import annotations

import os

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES, Exercise
from tests.contracts.test_contracts import TABLES
from tests.many_seeds import failures

SEEDS = range(1, 1 + int(os.environ.get("SEEDS", "20")))
DRAWN = [row for row in EXERCISES if row.kind != "specs"]


@pytest.mark.parametrize("row", DRAWN, ids=lambda row: row.id)
def test_no_seed_fails_a_right_answer(row: Exercise) -> None:
    others = [answer for table in TABLES for answer in table.RIGHT.get(row.id, ())]
    assert list(failures(row.where, [load(row.where).reference, *others[:2]], SEEDS)) == []
