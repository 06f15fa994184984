"""Judges plain numbers: the same calls in two fresh processes, in different orders."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpar.contracts.base import Contract, Mistake
from jaxpar.grading.cases import encode
from jaxpar.grading.evidence import Evidence, collect, stopped, worker_job
from jaxpar.grading.findings import Finding, Findings
from jaxpar.grading.processes import Pool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Judgement

Call = tuple[tuple, dict]

RAISES = "raises ValueError"
FORGETFUL = "depends on earlier calls: the same call gave {} and {}; keep no state between calls"


def judge_values(contract: Contract, submission: Submission, pool: Pool, seed: int) -> Judgement:
    """Calls the answer on drawn arguments and compares with the oracle."""
    assert contract.values is not None
    rng = np.random.default_rng(seed)
    calls = contract.values(rng)
    expected = [_outcome(contract.oracle, call) for call in calls]
    job = worker_job(contract, submission, pool.limits)
    job["calls"] = [[encode(tuple(args)), encode(dict(kwargs))] for args, kwargs in calls]
    order = list(range(len(calls)))

    findings = Findings(contract)
    runs = []
    for chosen in (order, order[::-1]):
        runs.append(collect(pool, job | {"order": chosen}))
        end = stopped(runs[-1], pool.limits)
        if end is not None:
            status, message = end
            findings.add("values", Finding(False, message))
            return Judgement(status, findings.properties(), message, printed=runs[-1].printed)

    got, again = ([_replied(run.values.get(i)) for i in range(len(calls))] for run in runs)
    for one, two in zip(got, again, strict=True):
        if one != two:
            findings.add("values", Finding(False, FORGETFUL.format(_show(one), _show(two))))
    for finding in _wrong(contract, calls, expected, got):
        findings.add("values", finding)
    if not findings.wrong("values"):
        findings.add("values", Finding(True, f"{len(calls)} calls are right"))
        return Judgement("pass", findings.properties(), printed=runs[0].printed)
    diagnosis = _diagnosis(contract, calls, got, expected, runs[0])
    return Judgement("fail", findings.properties(), diagnosis, printed=runs[0].printed)


def _wrong(contract: Contract, calls: list[Call], expected: list, got: list) -> Iterator[Finding]:
    if contract.complaint is not None:
        complaint = contract.complaint(calls, got)
        if complaint is not None:
            yield Finding(False, complaint)
        return
    for call, right, one in zip(calls, expected, got, strict=True):
        if not _same(one, right):
            yield _finding(contract, call, right, one)


def _finding(contract: Contract, call: Call, right: Any, got: Any) -> Finding:
    does = got if _raised(got) else f"gives {_show(got)}"
    must = "raise ValueError" if _raised(right) else f"give {_show(right)}"
    text = f"{contract.id}{_arguments(call)} {does}; it must {must}"
    return Finding(False, text, _show(right), _show(got))


def _diagnosis(
    contract: Contract, calls: list[Call], got: list, expected: list, run: Evidence
) -> str:
    """The mistake with the same results, or what the first unwanted exception means."""
    for mistake in contract.mistakes:
        if _equals(mistake, calls, got):
            return mistake.sentence
    for i, right in enumerate(expected):
        if right != RAISES and "explained" in run.values.get(i, {}):
            return run.values[i]["explained"]
    return ""


def _outcome(function: Any, call: Call) -> Any:
    args, kwargs = call
    try:
        return _plain(function(*args, **kwargs))
    except ValueError:
        return RAISES
    except Exception as error:
        return f"raises {type(error).__name__}"


def _replied(value: dict | None) -> Any:
    if value is None:
        return "nothing"
    if "raised" in value:
        return RAISES if value.get("is_value_error") else f"raises {value['raised']}"
    return _plain(value["result"])


def _raised(outcome: Any) -> bool:
    return isinstance(outcome, str) and outcome.startswith("raises ")


def _plain(value: Any) -> Any:
    """Tuples as lists, so that both are right."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _same(got: Any, right: Any) -> bool:
    """Equal, integers as integers; floats within rounding, and an integer may stand for one."""
    if isinstance(right, list):
        return isinstance(got, list) and len(got) == len(right) and all(map(_same, got, right))
    if isinstance(right, dict):
        keys_match = isinstance(got, dict) and got.keys() == right.keys()
        return keys_match and all(_same(got[key], right[key]) for key in right)
    if isinstance(right, float):
        if type(got) not in (int, float) or abs(got) > sys.float_info.max:  # isclose would raise
            return False
        return math.isclose(got, right, rel_tol=1e-9)
    return type(got) is type(right) and got == right


def _equals(mistake: Mistake, calls: list, got: list) -> bool:
    outcomes = [_outcome(mistake.function, call) for call in calls]
    return all(_same(g, o) for g, o in zip(got, outcomes, strict=True))


def _arguments(call: Call) -> str:
    args, kwargs = call
    parts = [repr(a) for a in args] + [f"{k}={v!r}" for k, v in kwargs.items()]
    return f"({', '.join(parts)})"


def _show(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(_show(v) for v in value)}{',' if len(value) == 1 else ''})"
    return str(value)
