"""Every contract refuses its stub, its mistakes and every attack, and no right answer.

The answers are tables in `answers_*.py`: RIGHT by exercise, and WRONG by exercise with the first
property that must fail.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from jaxpar.contracts.sentences import SENTENCES

from jaxpar.contracts.base import Contract, Mistake, load
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.stubs import stub
from jaxpar.grading.verdict import Verdict
from tests.in_process import InProcessPool, judged, judged_source

TABLES = [
    importlib.import_module(f"tests.contracts.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("answers_*.py"))
]
POOLS = cache(InProcessPool)


def judge(row: Exercise, function: Callable, *, hidden: bool = False) -> Verdict:
    return judged(function, POOLS(row.where), hidden=hidden)


def first_failure(verdict: Verdict) -> str | None:
    failure = verdict.first_failure()
    return failure and failure.name


def contract_of(row: Exercise) -> Contract:
    return load(row.where)


MISTAKES = [
    pytest.param(row, mistake, id=f"{row.id}-{mistake.name}")
    for row in EXERCISES
    for mistake in contract_of(row).mistakes
]
RIGHT = [
    pytest.param(row, function, id=f"{row.id}-{function.__name__}")
    for row in EXERCISES
    for table in TABLES
    for function in table.RIGHT.get(row.id, ())
]
WRONG = [
    pytest.param(row, function, fails, id=f"{row.id}-{function.__name__}")
    for row in EXERCISES
    for table in TABLES
    for function, fails in table.WRONG.get(row.id, {}).items()
]
PROGRAMS = [row for row in EXERCISES if row.kind == "program"]

each_exercise = pytest.mark.parametrize("row", EXERCISES, ids=lambda row: row.id)


@each_exercise
def test_the_stub_fails(row: Exercise) -> None:
    verdict = judged_source(stub(row), POOLS(row.where))
    assert verdict.status == "fail"
    assert verdict.score == 0


@each_exercise
def test_the_reference_passes(row: Exercise) -> None:
    verdict = judge(row, contract_of(row).reference, hidden=True)
    assert verdict.passed, verdict.first_failure()
    assert verdict.score == verdict.max_score == row.points


@pytest.mark.parametrize(("row", "mistake"), MISTAKES)
def test_a_mistake_fails_by_its_property_and_is_named(row: Exercise, mistake: Mistake) -> None:
    verdict = judge(row, mistake.function)
    assert first_failure(verdict) == mistake.fails
    assert verdict.diagnosis == mistake.sentence


@pytest.mark.parametrize(("row", "function"), RIGHT)
def test_a_right_answer_passes(row: Exercise, function: Callable) -> None:
    verdict = judge(row, function, hidden=True)
    assert verdict.passed, verdict.first_failure()


@pytest.mark.parametrize(("row", "function", "fails"), WRONG)
def test_a_wrong_answer_fails(row: Exercise, function: Callable, fails: str) -> None:
    assert first_failure(judge(row, function)) == fails


@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row.id)
def test_cases_differ_in_mesh_and_size(row: Exercise) -> None:
    cases = contract_of(row).cases
    assert len({case.mesh for case in cases}) >= 2
    assert len({tuple(leaf.shape for _, leaf in case.arrays()) for case in cases}) >= 2


@each_exercise
def test_mistakes_and_hints_are_enough(row: Exercise) -> None:
    contract = contract_of(row)
    assert len(contract.mistakes) >= 5
    assert 2 <= len(contract.hints) <= 3


def test_every_sentence_is_used() -> None:
    contracts = [contract_of(row) for row in EXERCISES]
    contracts += [variant for contract in contracts for variant in contract.variants]
    assert {mistake.name for each in contracts for mistake in each.mistakes} == set(SENTENCES)
