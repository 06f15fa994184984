"""Every contract refuses its stub, its mistakes and every wrong answer, and no right one.

Contracts stand in `jaxpar/contracts/<lesson>/<exercise>.py`, answers to them beside this file under
the same name. Of every exercise the stub, the reference, one other right answer and one mistake for
each property are always judged; the rest is a part of its full proof.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from jaxpar.contracts.base import Mistake, load, variants
from jaxpar.contracts.variants import AS_WRITTEN
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.stubs import stub
from jaxpar.grading.in_process import InProcessPool, judged, judged_source
from jaxpar.grading.many_seeds import failures
from jaxpar.grading.verdict import Verdict
from tests.proofs import contract_of

POOLS = cache(InProcessPool)
SEEDS = int(os.environ.get("SEEDS", "20"))
VARIANTS = [f"{row.where}@{k}" for row in EXERCISES for k in range(1, variants(row.where))]


def answers_to(row: Exercise) -> dict[str, Callable]:
    """The answers to an exercise that are marked as right or as wrong, by name."""
    module = importlib.import_module(row.where.replace("jaxpar", "tests", 1))
    return {
        name: value
        for name, value in vars(module).items()
        if hasattr(value, "right") or hasattr(value, "fails")
    }


def parameters(where: str, named: Iterable[tuple[str, tuple]], always: int = 0) -> list[Any]:
    """Parameters of a test on one exercise; all but the first ones belong to its full proof."""
    full = pytest.mark.full(contract_of(where))
    exercise = where.partition("@")[0].rpartition(".")[2]
    return [
        pytest.param(where, *values, id=f"{exercise}-{name}", marks=[full][i < always :])
        for i, (name, values) in enumerate(named)
    ]


def one_of_each_property_first(mistakes: Iterable[Mistake]) -> tuple[list[Mistake], int]:
    """The mistakes, and how many of them come first because they fail by another property each."""
    first: dict[str, Mistake] = {}
    for mistake in mistakes:
        first.setdefault(mistake.fails, mistake)
    others = [mistake for mistake in mistakes if mistake not in first.values()]
    return [*first.values(), *others], len(first)


def mistakes_of(where: str, *, always: bool = True) -> list[Any]:
    mistakes, first = one_of_each_property_first(load(where).mistakes)
    named = [(mistake.name, (mistake,)) for mistake in mistakes]
    return parameters(where, named, first if always else 0)


def answers_with(row: Exercise, mark: str, always: int = 0) -> list[Any]:
    found = {name: f for name, f in answers_to(row).items() if hasattr(f, mark)}
    return parameters(row.where, [(name, (f,)) for name, f in found.items()], always)


def first_failure(verdict: Verdict) -> str | None:
    failure = verdict.first_failure()
    return failure and failure.name


each_exercise = pytest.mark.parametrize("row", EXERCISES, ids=lambda row: row.id)


@each_exercise
def test_the_stub_fails(row: Exercise) -> None:
    verdict = judged_source(stub(row), POOLS(row.where))
    assert verdict.status == "fail"
    assert verdict.score == 0


@each_exercise
def test_the_reference_passes(row: Exercise) -> None:
    verdict = judged(load(row.where).reference, POOLS(row.where), hidden=True)
    assert verdict.passed, verdict.first_failure()
    assert verdict.score == verdict.max_score == row.points


@pytest.mark.parametrize(
    ("where", "mistake"), [case for row in EXERCISES for case in mistakes_of(row.where)]
)
def test_a_mistake_fails_by_its_property_and_is_named(where: str, mistake: Mistake) -> None:
    verdict = judged(mistake.function, POOLS(where))
    assert first_failure(verdict) == mistake.fails
    assert verdict.diagnosis == mistake.sentence


@pytest.mark.parametrize(
    ("where", "answer"),
    [case for row in EXERCISES for case in answers_with(row, "right", always=1)],
)
def test_a_right_answer_passes(where: str, answer: Callable) -> None:
    verdict = judged(answer, POOLS(where), hidden=True)
    assert verdict.passed, verdict.first_failure()


@pytest.mark.parametrize(
    ("where", "answer"), [case for row in EXERCISES for case in answers_with(row, "fails")]
)
def test_a_wrong_answer_fails(where: str, answer: Callable) -> None:
    assert first_failure(judged(answer, POOLS(where))) == answer.fails


@pytest.mark.parametrize(
    "where",
    [
        case
        for row in EXERCISES
        if row.kind != "specs"  # nothing is drawn
        for case in parameters(row.where, [("seeds", ())])
    ],
)
def test_no_seed_fails_a_right_answer(where: str) -> None:
    """The reference, and two other routes."""
    row = next(row for row in EXERCISES if row.where == where)
    others = [answer for answer in answers_to(row).values() if hasattr(answer, "right")]
    routes = [load(where).reference, *others[:2]]
    assert list(failures(where, routes, range(1, 1 + SEEDS))) == []


@pytest.mark.parametrize("where", [c for where in VARIANTS for c in parameters(where, [("", ())])])
def test_a_variant_is_another_exercise_of_the_same_name(where: str) -> None:
    contract, written = load(where), load(where.partition("@")[0])
    assert contract.id == written.id
    assert contract.task != written.task
    assert contract.reference.__doc__ != written.reference.__doc__
    assert judged(contract.reference, POOLS(where), hidden=True).passed
    verdict = judged(written.reference, POOLS(where), hidden=True)
    assert (verdict.score, verdict.diagnosis) == (0, AS_WRITTEN)


@pytest.mark.parametrize(
    ("where", "mistake"), [c for where in VARIANTS for c in mistakes_of(where, always=False)]
)
def test_a_mistake_is_named_in_a_variant_too(where: str, mistake: Mistake) -> None:
    verdict = judged(mistake.function, POOLS(where))
    assert first_failure(verdict) == mistake.fails
    assert verdict.diagnosis == mistake.sentence


@each_exercise
def test_the_contract_is_complete(row: Exercise) -> None:
    contract = load(row.where)
    assert (contract.id, contract.kind) == (row.id, row.kind)
    assert sum(contract.points().values()) == row.points
    assert len(contract.mistakes) >= 5
    assert 2 <= len(contract.hints) <= 3
    assert all(mistake.sentence.endswith(".") for mistake in contract.mistakes)


@pytest.mark.parametrize(
    "row", [row for row in EXERCISES if row.kind == "program"], ids=lambda row: row.id
)
def test_cases_differ_in_mesh_and_size(row: Exercise) -> None:
    cases = load(row.where).cases
    assert len({case.mesh for case in cases}) >= 2
    assert len({tuple(leaf.shape for _, leaf in case.arrays()) for case in cases}) >= 2


@pytest.mark.parametrize(
    "row", [row for row in EXERCISES if row.kind in ("program", "specs")], ids=lambda row: row.id
)
def test_cases_differ_in_the_names_of_axes(row: Exercise) -> None:
    """So that no answer can write the name of an axis instead of taking it as an argument."""
    contract = load(row.where)
    cases = (*contract.cases, *contract.hidden)
    names = [[name for name in case.kwargs.values() if name in case.sizes] for case in cases]
    assert len({tuple(found) for found in names}) >= 2 or not any(names)


@each_exercise
def test_a_sentence_tells_of_one_mistake(row: Exercise) -> None:
    """A class is told of its mistakes by name, and the name is found by the sentence."""
    names: dict[str, set[str]] = {}
    for mistake in load(row.where).mistakes:
        names.setdefault(mistake.sentence, set()).add(mistake.name)
    assert [found for found in names.values() if len(found) > 1] == []


def test_every_contract_is_in_the_catalog() -> None:
    from jaxpar.contracts import exercises

    assert sorted(exercises()) == sorted(row.where for row in EXERCISES)
