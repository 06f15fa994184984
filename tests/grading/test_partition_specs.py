"""Partition specs from an answer: plain data of any kind is judged, and none breaks the judge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.grading.judge import judge
from jaxpar.grading.partition_specs import (
    complaint,
    of_ours,
    same,
    to_partition_specs,
    wrongly_split,
)
from jaxpar.grading.processes import Limits, Pool
from jaxpar.grading.submission import Submission

CASE = Case(
    "dp=2,fsdp=3",
    {"params": {"w": ArraySpec((6, 4), "d f"), "b": ArraySpec((4,), "f")}},
    {"axis": "fsdp", "minimum_size": 10},
)
WHERE = "jaxpar.contracts.fsdp.fsdp_shardings"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ("nothing", "the result is nothing"),
        (None, "another pytree"),
        ({"w": []}, "another pytree"),
        ([[]], "another pytree"),
        ([[], [], []], "another pytree"),
        ([[], 7], r"\['w'\] \[6, 4\] is of type 7"),
        ([[], "NamedSharding"], "is of type NamedSharding"),
        ([[], [None, None, None]], "has 3 entries"),
        ([[], ["tp"]], "names tp, which is no axis"),
        ([[], [7]], "names 7, which is no axis"),
        ([[], [{"fsdp": 1}]], "names {'fsdp': 1}, which is no axis"),
        ([[], [["fsdp", []]]], r"names \[\], which is no axis"),
        ([[], [True]], "names True, which is no axis"),
        ([[], ["fsdp", "fsdp"]], "splits dim 1 over 3 devices"),
        ([[], [["fsdp", "fsdp"]]], "splits dim 0 over 9 devices"),
        ([[], ["dp", "dp"]], "names an axis twice"),
        ([["fsdp"], []], r"\['b'\] \[4\] splits dim 0 over 3 devices"),
        ([[], ["x" * 10_000]], "names x{40}, which"),
    ],
)
def test_what_is_no_spec_is_named(found: Any, says: str) -> None:
    message = complaint(CASE, found)
    assert message and len(message) < 200
    assert re.search(says, message), message


@pytest.mark.parametrize("found", [[[], ["fsdp"]], [[None], [["fsdp"], None]], [[[]], [["fsdp"]]]])
def test_specs_that_mean_the_same(found: Any) -> None:
    assert complaint(CASE, found) is None
    assert wrongly_split(CASE, found, [[], ["fsdp"]]) is None
    assert same(found, [[], ["fsdp"]])
    assert to_partition_specs([[], ["fsdp"]]) == [P(), P("fsdp")]


@pytest.mark.parametrize("found", ["nothing", None, 7, {}, [7], [[], "x"], [[{}], []]])
def test_other_data_equals_no_mistake(found: Any) -> None:
    assert not same(found, [[], ["fsdp"]])


def test_an_answer_takes_the_mesh_or_leaves_it() -> None:
    def without(params: Any, *, axis: str, minimum_size: int) -> Any:
        return {"w": P(axis), "b": P()}

    def with_mesh(params: Any, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Any:
        return {"w": P(mesh.axis_names[1]), "b": P()}

    assert of_ours(without, CASE) == of_ours(with_mesh, CASE) == [[], ["fsdp"]]


RIGHT = """
import jax
from jax.sharding import PartitionSpec as P

def fsdp_shardings(params, *, mesh, axis, minimum_size):
    n = mesh.shape[axis]
    assert mesh.devices.size == mesh.size
    def spec(leaf, first):
        dims = [d for d in range(first, leaf.ndim) if leaf.shape[d] % n == 0]
        return P() if leaf.size < minimum_size else P(*[None] * dims[-1], axis)
    return {k: jax.tree.map(lambda leaf: spec(leaf, k == "layers"), v) for k, v in params.items()}
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "status", "score", "says"),
    [
        (RIGHT, "pass", 10, ""),
        (RIGHT.replace("dims[-1]", "dims[0]").replace("k ==", "0 and k =="), "fail", 6, "Dim l"),
        (RIGHT.replace("    n =", "    axis.x\n    n ="), "fail", 0, "line 6"),
    ],
)
def test_in_processes(source: str, status: str, score: int, says: str) -> None:
    with Pool(Limits(wall_seconds=60)) as pool:
        verdict = judge(WHERE, Submission(Path("answer.py"), source.encode()), pool=pool)
    assert (verdict.status, verdict.score) == (status, score), verdict
    assert says in verdict.diagnosis
