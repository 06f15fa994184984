"""Answers judged without a process: the verdicts of `jaxpar check`, where there is no JAX."""

import inspect

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES
from jaxpar.course.page_tasks import tasks
from jaxpar.explore import answer
from jaxpar.explore.verdict import JUDGED, contract_of

RIGHT = """
def bubble_fraction(stages, microbatches, chunks):
    return (stages - 1) / (chunks * microbatches + stages - 1)
"""
LEFT_OUT = {
    "local_shape": "the library's function is beside others that take JAX",
    "shard_indices": "as local_shape, and its answer draws with numpy",
    "device_coordinates": "as local_shape",
    "sharded_dim": "as local_shape",
    "resume_indices": "its answer draws with numpy",
    "faster_plan": "the planner takes scipy and rich",
}


def lines(source: str, exercise: str = "bubble_fraction") -> list[str]:
    return answer("verdict", {"exercise": exercise, "source": source, "seed": 3})["lines"]


def test_every_exercise_is_judged_that_can_be() -> None:
    plain = [row for row in EXERCISES if row.kind in ("value", "schedule")]
    judged = {contract_of(id) for ids in JUDGED.values() for id in ids}
    assert {row.where for row in plain if row.id not in LEFT_OUT} == judged


def test_a_right_answer_passes() -> None:
    answered = answer("verdict", {"exercise": "bubble_fraction", "source": RIGHT})
    assert (answered["passed"], answered["score"], answered["max_score"]) == (True, 5, 5)
    assert answered["lines"][0].startswith("bubble_fraction: pass, 5 of 5 points")


def test_a_known_mistake_is_told_by_its_sentence() -> None:
    found = lines(RIGHT.replace("chunks * ", ""))
    assert any("`chunks` is not used" in line for line in found)


def test_a_schedule_that_takes_too_long_is_drawn() -> None:
    naive = """
def one_f_one_b_schedule(stages, microbatches):
    if min(stages, microbatches) < 1:
        raise ValueError("sizes are 1 or more")
    cells = [f"{kind}{m}" for m in range(microbatches) for kind in "FB"]
    return [[f"{stage}{cell}" for cell in cells] for stage in range(stages)]
"""
    found = lines(naive, "one_f_one_b_schedule")
    assert any("takes longer than it must" in line for line in found)
    assert any(line.strip().startswith("device 0") for line in found)


def test_what_an_answer_prints_is_shown() -> None:
    answered = answer(
        "verdict", {"exercise": "bubble_fraction", "source": f"print('here')\n{RIGHT}", "seed": 3}
    )
    assert answered["printed"] == "here\n"


def test_an_answer_forgets_nothing_between_calls() -> None:
    source = f"calls = []{RIGHT}".replace(
        "    return ", "    calls.append(1)\n    return len(calls) + "
    )
    assert any("keep no state between calls" in line for line in lines(source))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import numpy", "line 1: ImportError: there is no numpy in a page"),
        ("\nfrom jax import lax", "line 2: ImportError: there is no jax in a page"),
        ("import os", "line 1: an answer may not import os"),
        ("def bubble_fraction(:", "line 1: SyntaxError"),
        ("x = 1", "The file defines no function named bubble_fraction."),
        ("raise SystemExit", "line 1: This line ends Python."),
        ("def bubble_fraction(a, b, c): return d", "`d` is not defined"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(source: str, words: str) -> None:
    assert words in "\n".join(lines(source))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"exercise": "scatter", "source": "x"}, "check it on your machine"),
        ({"exercise": "bubble_fraction"}, "give `exercise`, and `source`"),
        ({"exercise": "bubble_fraction", "source": " \n"}, "the file is empty"),
    ],
)
def test_what_cannot_be_judged_is_refused(form: dict[str, str], words: str) -> None:
    assert words in answer("verdict", form)["error"]


def test_a_page_says_of_each_exercise_what_is_to_do() -> None:
    found = {task["id"]: task for task in tasks()}
    assert set(found) == {id for ids in JUDGED.values() for id in ids}
    for id, task in found.items():
        contract = load(contract_of(id))
        assert task["mistakes"] == len(contract.mistakes) > 2
        assert task["docstring"] == inspect.getdoc(contract.reference)
        assert "raise NotImplementedError" in task["stub"]
        assert not [line for line in task["stub"].splitlines() if line.startswith("import ")]
