"""Drawn cases differ from those of a stub in all that could be written into an answer.

That right answers pass them is tested with the contracts, and with many seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from jaxpar.contracts.base import load, with_drawn
from jaxpar.contracts.case import Case, Made, array_leaves
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.grading.findings import SHOWN_ONLY
from jaxpar.grading.in_process import ELSEWHERE, SEED, InProcessPool, judged
from jaxpar.grading.judge import judge
from jaxpar.grading.verdict import Verdict
from jaxpar.mesh import local_shape

SCATTER_WHERE = "jaxpar.contracts.collectives.scatter"
WITH_CASES = [row for row in EXERCISES if row.kind in ("program", "specs")]
POOLS = cache(InProcessPool)


def _facts(case: Case) -> Iterator[tuple[Any, Any]]:
    """What an answer could know of a case by heart, by name; with one device nothing is split."""
    yield "mesh", case.mesh
    for name, value in case.kwargs.items():
        if value in case.sizes:
            yield f"the axis {name}", value
            yield f"the size of {name}", case.sizes[value]
        elif type(value) in (int, float):
            yield name, value
    for name, argument in case.args.items():
        for i, leaf in enumerate(array_leaves(argument)):
            for dim, size in enumerate(local_shape(leaf.shape, leaf.layout, case.sizes)):
                if size > 1 or not isinstance(argument, Made):  # it may be a device's one number
                    yield (name, i, dim), size


@pytest.mark.parametrize("row", WITH_CASES, ids=lambda row: row.id)
def test_a_drawn_case_differs_from_those_of_the_stub(row: Exercise) -> None:
    """Whatever the seed, no fact of all drawn cases is among those of the stub."""
    shown = load(row.where).cases
    known = {fact for case in shown for fact in _facts(case)}
    names = {name for name, _ in known}
    for seed in range(20):
        drawn = with_drawn(row.where, seed).cases[len(shown) :]
        new = {name for case in drawn for name, value in _facts(case) if (name, value) not in known}
        assert names & {name for case in drawn for name, _ in _facts(case)} <= new


def test_drawn_cases_come_after_those_of_the_stub() -> None:
    contract = load(SCATTER_WHERE)
    at_home, in_class = (with_drawn(SCATTER_WHERE, 5, hidden=hidden) for hidden in (False, True))
    count = len(contract.cases)
    assert contract.shown is None and not contract.is_drawn(count)
    for drawn in (at_home, in_class):
        assert drawn.visible == drawn.cases[:count] == contract.cases
        assert [drawn.is_drawn(i) for i in range(count - 1, count + 1)] == [False, True]
    assert (at_home.is_hidden(count), in_class.is_hidden(count)) == (False, True)
    assert with_drawn(SCATTER_WHERE, 5).cases == at_home.cases == in_class.cases
    assert with_drawn(SCATTER_WHERE, 6).cases != at_home.cases


def _names_of_the_stub(params: dict, *, axis: str) -> dict:
    """Splits what is not one of the leaves that stay whole in the cases shown."""

    def spec(path: tuple, leaf: Any) -> PartitionSpec:
        name, rank = path[-1].key, len(leaf.shape)
        if name in ("scale", "table"):
            return PartitionSpec()
        dims = [axis, None] if name in ("output", "down") else [None, axis]
        return PartitionSpec(*([None] * rank + dims)[-rank:])

    return jax.tree.map_with_path(spec, params)


def test_a_leaf_of_a_name_that_is_not_shown_stays_whole() -> None:
    pool = POOLS("jaxpar.contracts.tensor_parallel.megatron_specs")
    verdict = judged(_names_of_the_stub, pool)
    failure = verdict.first_failure()
    assert failure and failure.name == "sharding"
    assert verdict.diagnosis == SHOWN_ONLY


SCATTER = load(SCATTER_WHERE)
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
    at_home, in_class = (_judged_on_scatter(answer, hidden_seed) for hidden_seed in (None, SEED))
    assert at_home.diagnosis == in_class.diagnosis == SHOWN_ONLY
    shown, hidden = (verdict.first_failure() for verdict in (at_home, in_class))
    assert shown and hidden and shown.name == hidden.name == name
    assert "in a case drawn now: mesh " in shown.message
    assert hidden.message == f"{how} on a hidden case"
    assert not hidden.expected and not hidden.got


def _judged_on_scatter(answer: Callable, hidden_seed: int | None) -> Verdict:
    pool = POOLS(SCATTER_WHERE)
    pool.function = answer
    return judge(SCATTER_WHERE, ELSEWHERE, pool=pool, seed=SEED, hidden_seed=hidden_seed)
