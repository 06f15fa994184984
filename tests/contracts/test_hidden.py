"""Hidden cases differ from those that are shown, in all that could be written into an answer.

That right answers pass them is tested with the contracts, and with many seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from jaxpar.contracts.base import load
from jaxpar.contracts.case import Case
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.grading.findings import SHOWN_ONLY
from jaxpar.grading.in_process import InProcessPool, judged

WITH_CASES = [row for row in EXERCISES if row.kind in ("program", "specs")]
POOLS = cache(InProcessPool)


def _shapes(case: Case) -> tuple:
    return tuple(leaf.shape for _, leaf in case.arrays())


@pytest.mark.parametrize("row", WITH_CASES, ids=lambda row: row.id)
def test_a_hidden_case_has_another_mesh_and_other_sizes(row: Exercise) -> None:
    contract = load(row.where)
    assert contract.hidden
    for case in contract.hidden:
        assert case.mesh not in [shown.mesh for shown in contract.cases]
        assert _shapes(case) not in [_shapes(shown) for shown in contract.cases]
        for word in ("root", "server", "segments", "bucket_bytes", "scale", "growth_interval"):
            if word in case.kwargs:
                assert case.kwargs[word] not in [shown.kwargs[word] for shown in contract.cases]


def test_hidden_cases_come_after_those_that_are_shown() -> None:
    where = "jaxpar.contracts.collectives.scatter"
    contract, judged_in_class = load(where), load(where, hidden=True)
    assert contract.shown is None and not contract.is_hidden(2)
    assert judged_in_class.visible == contract.cases
    assert [judged_in_class.is_hidden(i) for i in range(3)] == [False, False, True]
    assert judged_in_class.cases[2:] == contract.hidden
    assert load(where, hidden=True) is judged_in_class


def _names_of_the_stub(params: dict, *, axis: str) -> dict:
    """Splits what is not one of the leaves that stay whole in the cases shown."""

    def spec(path: tuple, leaf: Any) -> PartitionSpec:
        name, stacked = path[-1].key, [None] * (len(leaf.shape) - 2)
        if name in ("scale", "table"):
            return PartitionSpec()
        return PartitionSpec(*stacked, *([axis] if name in ("output", "down") else [None, axis]))

    return jax.tree.map_with_path(spec, params)


def test_a_leaf_of_a_name_that_is_not_shown_stays_whole() -> None:
    pool = POOLS("jaxpar.contracts.tensor_parallel.megatron_specs")
    assert judged(_names_of_the_stub, pool).passed
    failure = judged(_names_of_the_stub, pool, hidden=True).first_failure()
    assert failure and failure.name == "sharding"


SCATTER = load("jaxpar.contracts.collectives.scatter")
ROOTS = {case.args["x"].shape[1:]: case.kwargs["root"] for case in SCATTER.cases}


def _with_roots_of_the_stub(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return SCATTER.reference(x, axis=axis, root=ROOTS.get(x.shape[1:], 0))


def _for_axes_of_the_stub(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return SCATTER.reference(x, axis={"dp": "dp", "tp": "tp"}[axis], root=root)


def _too_much_elsewhere(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    if axis in ("dp", "tp"):
        return SCATTER.reference(x, axis=axis, root=root)
    return lax.all_gather(x, axis)[root][lax.axis_index(axis)]


def _other_shape_elsewhere(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    y = SCATTER.reference(x, axis=axis, root=root)
    return y if axis in ("dp", "tp") else y[None]


@pytest.mark.parametrize(
    ("answer", "name", "how"),
    [
        (_with_roots_of_the_stub, "values", "values differ"),
        (_for_axes_of_the_stub, "values", "raises KeyError"),
        (_other_shape_elsewhere, "values", "wrong shape"),
        (_too_much_elsewhere, "communication", "sends too much"),
    ],
)
def test_what_is_read_off_the_stub_fails(answer: Callable, name: str, how: str) -> None:
    pool = POOLS("jaxpar.contracts.collectives.scatter")
    assert judged(answer, pool).passed
    verdict = judged(answer, pool, hidden=True)
    failure = verdict.first_failure()
    assert failure and (failure.name, failure.message) == (name, f"{how} on a hidden case")
    assert not failure.expected and not failure.got
    assert verdict.diagnosis == SHOWN_ONLY
