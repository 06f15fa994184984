"""What is told of hidden cases: the property and the kind of error, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxpar.classroom.records import to_record
from jaxpar.contracts.base import with_drawn
from jaxpar.contracts.case import Case
from jaxpar.grading import compare
from jaxpar.grading.evidence import Evidence
from jaxpar.grading.findings import SHOWN_ONLY, Finding, Findings, hide
from jaxpar.grading.judge import _why, judge
from jaxpar.grading.processes import Limits, Pool
from jaxpar.grading.reader_messages import Facts
from jaxpar.grading.submission import Submission
from jaxpar.grading.value_judge import _close, _same
from jaxpar.grading.verdict import Verdict
from jaxpar.inspector.report import Collective

SCATTER = "jaxpar.contracts.collectives.scatter"
CONTRACT = with_drawn(SCATTER, 7, hidden=True)
SECRET = CONTRACT.cases[2].kwargs["axis"]

ANSWER = """
import jax
import jax.numpy as jnp
from jax import lax

def scatter(x, *, axis, root):
    hidden = axis not in ("dp", "tp")
    print("called with", axis)
    {here}
    return lax.psum_scatter(jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x)), axis)
"""


class Kept:
    """A store of evidence in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Evidence] = {}

    def get(self, job: dict[str, Any]) -> Evidence | None:
        return self.kept.get(json.dumps(job))

    def put(self, job: dict[str, Any], evidence: Evidence) -> None:
        self.kept[json.dumps(job)] = evidence


def judged(here: str, store: Kept | None = None) -> Verdict:
    submission = Submission(Path("scatter.py"), ANSWER.format(here=here).encode())
    with Pool(Limits(wall_seconds=90), store=store) as pool:
        return judge(SCATTER, submission, pool=pool, seed=7, hidden_seed=7)


@pytest.mark.parametrize(
    ("here", "status", "says"),
    [
        ("if hidden: x = x.astype(jnp.float16)", "fail", "wrong dtype on a hidden case"),
        ("if hidden: raise type(axis, (Exception,), {})", "fail", "raises an error on a hidden"),
        ("if hidden: jax._src.config.os._exit(3)", "killed", "ended early"),
    ],
)
def test_the_kind_of_error_is_all_that_is_told(here: str, status: str, says: str) -> None:
    verdict = judged(here)
    shown = json.dumps(verdict.to_dict())
    assert verdict.status == status, verdict
    assert verdict.score < 10
    assert says in shown
    assert SECRET not in shown
    if status == "fail":
        assert verdict.diagnosis == SHOWN_ONLY
        assert verdict.printed.count("called with") == 4
    failure = verdict.first_failure()
    assert failure and not failure.expected and not failure.got


@pytest.mark.full
def test_the_same_evidence_gives_the_same_bytes() -> None:
    store = Kept()
    records = [json.dumps(to_record(judged("root += hidden", store))) for _ in range(2)]
    assert len(store.kept) == 1
    assert records[0] == records[1]


def test_a_wrong_finding_stays_and_one_near_the_limit_is_told_before_a_right_one() -> None:
    findings = Findings(CONTRACT)
    right, near = Finding(True, "right"), Finding(True, "near the limit: on dp=8", near=True)
    wrong = Finding(False, "on fsdp=4, 7", "8", "7")
    for finding, index, message in (
        (right, 0, "right"),
        (near, 2, "near the limit on a hidden case"),
        (near, 1, "near the limit on a hidden case"),
        (wrong, 2, "values differ on a hidden case"),
        (wrong, 0, "values differ on a hidden case"),
        (right, 1, "values differ on a hidden case"),
    ):
        findings.add("values", finding, index)
        assert findings.by_name["values"].message == message
    assert findings.fails_only_on_drawn()
    assert hide("memory", Finding(None, "fsdp=4")).message == ""
    told = hide("sharding", Finding(False, "fsdp=4", "a", "b")).message
    assert told == "devices do not hold their own parts on a hidden case"
    assert hide("sharding", Finding(True, "fsdp=4", "a", "b")) == Finding(True, "")


def test_near_the_limit_is_more_than_half_of_what_is_allowed() -> None:
    case = Case("dp=1", {})
    expected = np.ones((1, 64))
    allowed = compare.bound("float32", expected, 1.0)
    for part, right, near in ((0.4, True, False), (0.6, True, True), (1.1, False, True)):
        got = expected + part * allowed
        assert (compare.first_difference(case, "float32", got, expected, 1.0) is None) == right
        assert compare.near("float32", got, expected, 1.0) == near
    assert not compare.near("int32", np.ones((1, 4)), np.ones((1, 4)), 1.0)
    assert _same([1.0 + 6e-10], [1.0])
    assert not _close([1.0 + 6e-10], [1.0])
    assert _close([{"a": 1.0 + 4e-10}], [{"a": 1.0}])


@pytest.mark.parametrize(("index", "told"), [(0, True), (2, False)])
def test_where_a_hidden_case_hangs_is_not_told(index: int, told: bool) -> None:
    stray = Collective(
        "permute", ("tp",), 2, "float32", 4, 4, conditional=True, source="line 1897364"
    )
    facts = Facts((stray,), 0, 0, (), None, (), (), ())
    attempt: Any = SimpleNamespace(contract=CONTRACT, answer={("forward", index): facts})
    with Pool() as pool:
        assert ("1897364" in _why("timeout", "", pool, attempt)) == told
