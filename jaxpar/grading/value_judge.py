"""Judges plain numbers by comparing each with the oracle's.

`judge` calls this for exercises of the kind `value`. The worker's evidence holds the numbers as
plain data, so that no reader is needed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract
from jaxpar.grading.findings import NEAR, Finding, Findings, unjudged
from jaxpar.grading.processes import ChildPool
from jaxpar.grading.repeated_calls import (
    call_twice,
    in_words,
    matching_sentence,
    outcome,
    raised,
)
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Judgement

ROUNDING = 1e-9
SEVEN_DIGITS = 1e-6
MOST_SHOWN = 400
IN_FLOAT32 = (
    "Only about seven digits of the result are right, as in float32, in which jnp computes; use "
    "Python's own numbers, and round nothing."
)
FORGETFUL = "depends on earlier calls: the same call gave {} and {}; keep no state between calls"


def judge_values(
    contract: Contract, submission: Submission, pool: ChildPool, seed: int
) -> Judgement:
    """Has the answer called with drawn arguments, and compares the results with an oracle's."""
    assert contract.values is not None
    calls = contract.values(np.random.default_rng(seed))
    oracles = (contract.oracle, *contract.also_right)
    rights = [[outcome(oracle, call) for call in calls] for oracle in oracles]
    outcomes = call_twice(contract, submission, pool, calls)
    if outcomes.ended is not None:
        return unjudged(contract, *outcomes.ended, outcomes.printed)
    findings = Findings(contract)
    expected = max(rights, key=lambda right: sum(map(_same, outcomes.got, right)))
    for one, two in zip(outcomes.got, outcomes.again, strict=True):
        if one != two:
            findings.add("values", Finding(False, FORGETFUL.format(_show(one), _show(two))))
    for finding in _wrong(contract, calls, expected, outcomes.got):
        findings.add("values", finding)
    if not findings.wrong("values"):
        close = contract.complaint is not None or all(map(_close, outcomes.got, expected))
        message = f"{len(calls)} calls are right"
        message = message if close else f"{NEAR} of rounding; {message}"
        findings.add("values", Finding(True, message, near=not close))
        return Judgement("pass", findings.properties(), printed=outcomes.printed)
    diagnosis = matching_sentence(contract.mistakes, calls, outcomes.got, expected, _same, _alike)
    diagnosis = diagnosis or outcomes.meaning(expected)
    if not diagnosis and _to_seven_digits(outcomes.got, expected):
        diagnosis = IN_FLOAT32
    return Judgement("fail", findings.properties(), diagnosis, printed=outcomes.printed)


def _wrong(contract: Contract, calls: list[Call], expected: list, got: list) -> Iterator[Finding]:
    if contract.complaint is not None:
        complaint = contract.complaint(calls, got)
        if complaint is not None:
            yield Finding(False, complaint)
        return
    answered = zip(calls, expected, got, strict=True)
    differing = [(call, right, one) for call, right, one in answered if not _same(one, right)]
    if differing:
        yield _finding(contract, *min(differing, key=lambda each: len(repr(each[0]))))


def _finding(contract: Contract, call: Call, right: Any, got: Any) -> Finding:
    does = got if raised(got) else f"gives {_show(got)}"
    must = "raise ValueError" if raised(right) else f"give {_show(right)}"
    text = f"{in_words(contract, call)} {does}; it must {must}"
    return Finding(False, text, _show(right), _show(got))


def _close(got: Any, right: Any) -> bool:
    """Whether two results are equal within half of the rounding that is allowed."""
    return _same(got, right, ROUNDING / 2)


def _to_seven_digits(got: list, expected: list) -> bool:
    """Whether results are wrong, where something must be returned, by the rounding of float32."""
    answered = [pair for pair in zip(got, expected, strict=True) if not raised(pair[1])]
    wrong = [pair for pair in answered if not _same(*pair)]
    return bool(wrong) and all(_same(*pair, SEVEN_DIGITS) for pair in wrong)


def _alike(got: Any, mistaken: Any) -> bool:
    """Whether a result equals a mistake's; either may be an int where the other is a float."""
    return _same(got, mistaken) or _same(mistaken, got)


def _same(got: Any, right: Any, rounding: float = ROUNDING) -> bool:
    """Whether two results are equal: integers exactly, floats within rounding.

    Where the right result is the float 2.0, the integer 2 is right, too.
    """
    if isinstance(right, list):
        if not isinstance(got, list) or len(got) != len(right):
            return False
        return all(_same(one, other, rounding) for one, other in zip(got, right, strict=True))
    if isinstance(right, dict):
        keys_match = isinstance(got, dict) and got.keys() == right.keys()
        return keys_match and all(_same(got[key], right[key], rounding) for key in right)
    if isinstance(right, float):
        if type(got) not in (int, float) or abs(got) > sys.float_info.max:  # isclose would raise
            return False
        return math.isclose(got, right, rel_tol=rounding)
    return type(got) is type(right) and got == right


def _show(value: Any) -> str:
    text = _spelled(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... (and so on)"


def _spelled(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_spelled, value))}{',' if len(value) == 1 else ''})"
    return str(value)
