"""Every contract refuses its stub, its mistakes and every wrong answer, and no right one.

Contracts stand in `jaxpar/contracts/<lesson>/<exercise>.py`, answers to them beside this file under
the same name. Each exercise is a subject of its own, which is proved when all of its tests pass.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from jaxpar.contracts.base import Mistake, load, variants, with_drawn
from jaxpar.contracts.variants import AS_WRITTEN
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.stubs import stub
from jaxpar.grading.in_process import SEED, InProcessPool, judged, judged_source
from jaxpar.grading.many_seeds import failures
from jaxpar.grading.verdict import Verdict
from tests.contracts.mutants import mutants
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


def parameters(where: str, named: Iterable[tuple[str, tuple]]) -> list[Any]:
    """Parameters of a test on one exercise."""
    subject = pytest.mark.subject(contract_of(where))
    exercise = where.partition("@")[0].rpartition(".")[2]
    return [
        pytest.param(where, *values, id=f"{exercise}-{name}", marks=subject)
        for name, values in named
    ]


def mistakes_of(where: str) -> list[Any]:
    return parameters(where, [(mistake.name, (mistake,)) for mistake in load(where).mistakes])


def answers_with(row: Exercise, mark: str) -> list[Any]:
    found = {name: f for name, f in answers_to(row).items() if hasattr(f, mark)}
    return parameters(row.where, [(name, (f,)) for name, f in found.items()])


def mutants_of(where: str) -> list[Any]:
    found = mutants(with_drawn(where, SEED))
    return parameters(where, [(name, (mutant, fails)) for name, mutant, fails in found])


def rows(*kinds: str) -> pytest.MarkDecorator:
    """Parametrizes a test with the exercises of these kinds; with none, of all."""
    found = [row for row in EXERCISES if not kinds or row.kind in kinds]
    marks = {row.id: pytest.mark.subject(contract_of(row.where)) for row in found}
    parameters = [pytest.param(row, id=row.id, marks=marks[row.id]) for row in found]
    return pytest.mark.parametrize("row", parameters)


def first_failure(verdict: Verdict) -> str | None:
    failure = verdict.first_failure()
    return failure and failure.name


@rows()
def test_the_stub_fails(row: Exercise) -> None:
    verdict = judged_source(stub(row), POOLS(row.where))
    assert verdict.status == "fail"
    assert verdict.score == 0


@rows()
def test_the_reference_passes(row: Exercise) -> None:
    verdict = judged(load(row.where).reference, POOLS(row.where))
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
    [case for row in EXERCISES for case in answers_with(row, "right")],
)
def test_a_right_answer_passes(where: str, answer: Callable) -> None:
    verdict = judged(answer, POOLS(where))
    assert verdict.passed, verdict.first_failure()


@pytest.mark.parametrize(
    ("where", "answer"), [case for row in EXERCISES for case in answers_with(row, "fails")]
)
def test_a_wrong_answer_fails(where: str, answer: Callable) -> None:
    assert first_failure(judged(answer, POOLS(where))) == answer.fails


@pytest.mark.parametrize(
    ("where", "mutant", "fails"), [case for row in EXERCISES for case in mutants_of(row.where)]
)
def test_a_mutant_is_rejected(where: str, mutant: Callable, fails: tuple[str, ...]) -> None:
    verdict = judged(mutant, POOLS(where))
    assert first_failure(verdict) in fails, verdict


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
    assert judged(contract.reference, POOLS(where)).passed
    verdict = judged(written.reference, POOLS(where))
    assert (verdict.score, verdict.diagnosis) == (0, AS_WRITTEN)


@pytest.mark.parametrize(
    ("where", "mistake"), [c for where in VARIANTS for c in mistakes_of(where)]
)
def test_a_mistake_is_named_in_a_variant_too(where: str, mistake: Mistake) -> None:
    verdict = judged(mistake.function, POOLS(where))
    assert first_failure(verdict) == mistake.fails
    assert verdict.diagnosis == mistake.sentence


@rows()
def test_the_contract_is_complete(row: Exercise) -> None:
    contract = load(row.where)
    assert (contract.id, contract.kind) == (row.id, row.kind)
    assert sum(contract.points().values()) == row.points
    assert len(contract.mistakes) >= 5
    assert 2 <= len(contract.hints) <= 3
    assert all(mistake.sentence.endswith(".") for mistake in contract.mistakes)


@rows("program")
def test_cases_differ_in_mesh_and_size(row: Exercise) -> None:
    cases = load(row.where).cases
    assert len({case.mesh for case in cases}) >= 2
    assert len({tuple(leaf.shape for _, leaf in case.arrays()) for case in cases}) >= 2


@rows("program", "specs")
def test_cases_differ_in_the_names_of_axes(row: Exercise) -> None:
    """So that no answer can write the name of an axis instead of taking it as an argument."""
    cases = with_drawn(row.where, 0).cases
    names = [[name for name in case.kwargs.values() if name in case.sizes] for case in cases]
    assert len({tuple(found) for found in names}) >= 2 or not any(names)


@rows()
def test_a_sentence_tells_of_one_mistake(row: Exercise) -> None:
    """A class is told of its mistakes by name, and the name is found by the sentence."""
    names: dict[str, set[str]] = {}
    for mistake in load(row.where).mistakes:
        names.setdefault(mistake.sentence, set()).add(mistake.name)
    assert [found for found in names.values() if len(found) > 1] == []


def test_every_contract_is_in_the_catalog() -> None:
    from jaxpar.contracts import exercises

    assert sorted(exercises()) == sorted(row.where for row in EXERCISES)
