"""Plain numbers from an answer: what is told of those that are nearly right, or a mistake's."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.contracts.base import load
from jaxpar.cost.flops import transformer_step_flops
from jaxpar.cost.planner.faster import faster_plan
from jaxpar.grading.in_process import InProcessPool, judged
from jaxpar.grading.judge import judge
from jaxpar.grading.messages import ReturnedValue
from jaxpar.grading.plain_replies import CHANGES_ARGUMENTS, value
from jaxpar.grading.processes import Limits, Pool
from jaxpar.grading.repeated_calls import in_words, outcome
from jaxpar.grading.submission import Submission
from jaxpar.grading.value_judge import IN_FLOAT32, _alike, _to_seven_digits

INTERVAL = "jaxpar.contracts.planner.young_daly_interval"
FASTER = "jaxpar.contracts.planner.faster_plan"
FLOPS = "jaxpar.contracts.costs.transformer_step_flops"
SOURCE = """
import jax.numpy as jnp

def young_daly_interval(checkpoint_seconds, mtbf_seconds):
    if min(checkpoint_seconds, mtbf_seconds) < 0:
        raise ValueError
    return jnp.sqrt(2.0 * checkpoint_seconds * mtbf_seconds)
"""
Plain = dict[str, Any]


def _root_in_float32(checkpoint_seconds: float, mtbf_seconds: float) -> Any:
    if min(checkpoint_seconds, mtbf_seconds) < 0:
        raise ValueError
    return jnp.sqrt(2.0 * checkpoint_seconds * mtbf_seconds)


def _root_in_float32_of_anything(checkpoint_seconds: float, mtbf_seconds: float) -> Any:
    return jnp.sqrt(2.0 * checkpoint_seconds * mtbf_seconds)


def _root_to_five_digits(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    return float(f"{float(_root_in_float32(checkpoint_seconds, mtbf_seconds)):.5g}")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (_root_in_float32, IN_FLOAT32),
        (_root_in_float32_of_anything, IN_FLOAT32),
        (_root_to_five_digits, ""),
    ],
)
def test_what_is_right_to_seven_digits_was_computed_in_float32(
    answer: Callable, sentence: str
) -> None:
    verdict = judged(answer, InProcessPool(INTERVAL))
    assert (verdict.status, verdict.diagnosis) == ("fail", sentence)


def test_all_that_is_wrong_must_be_right_to_seven_digits() -> None:
    assert _to_seven_digits([1.0000001, 2.0, "raises ValueError"], [1.0, 2.0, "raises ValueError"])
    assert _to_seven_digits([{"seconds": 1.0000001}, 3], [{"seconds": 1.0}, "raises ValueError"])
    assert not _to_seven_digits([1.0000001, 2.1], [1.0, 2.0])
    assert not _to_seven_digits([1.0000001, "nan"], [1.0, 2.0])
    assert not _to_seven_digits([10_000_001], [10_000_000])
    assert not _to_seven_digits([1.0, 3], [1.0, "raises ValueError"])


def test_a_mistake_is_the_same_in_whole_numbers_and_in_floats() -> None:
    assert _alike(2, 2.0) and _alike(2.0, 2) and _alike({"steps": 3.0}, {"steps": 3})
    assert not _alike(2, 3.0) and not _alike("2", 2) and not _alike(True, 1.0)
    assert not _alike(10**400, 1.0) and not _alike(1.0, 10**400)


@pytest.mark.parametrize("result", [math.nan, -math.inf, np.float64("inf"), 0.5, [2, 0.5]])
def test_a_mistake_and_an_answer_return_the_same_plain_data(result: Any) -> None:
    reply = value(0, lambda: result, "answer.py")
    assert isinstance(reply, ReturnedValue)
    assert outcome(lambda: result, ((), {})) == reply.result


@pytest.mark.parametrize("kind", [int, float])
def test_a_mistake_is_named_in_whole_numbers_and_in_floats(kind: type) -> None:
    def without_the_head(*sizes: int, remat: str) -> float:
        batch, sequence, _, hidden, vocab = sizes
        flops = transformer_step_flops(*sizes, remat=remat)
        return kind(flops - 6 * batch * sequence * hidden * vocab)

    named = load(FLOPS).mistake("head_left_out").sentence
    assert judged(without_the_head, InProcessPool(FLOPS)).diagnosis == named


def _changes(plan: Plain, job: Plain, seconds: Plain) -> Plain:
    plan.update(faster_plan(plan, job, seconds))
    return plan


def _removes(plan: Plain, job: Plain, seconds: Plain) -> Plain:
    found = faster_plan(plan, job, seconds)
    del seconds["arithmetic"]
    return found


def _marks(plan: Plain, job: Plain, seconds: Plain) -> Plain:
    found = faster_plan(plan, job, seconds)
    job["seen"] = True
    return found


def _puts_arrays(plan: Plain, job: Plain, seconds: Plain) -> Plain:
    found = faster_plan(plan, job, seconds)
    seconds["bubble"] = np.ones(2)  # whether it equals a number has no single answer
    return found


@pytest.mark.parametrize("answer", [_changes, _removes, _marks, _puts_arrays])
def test_arguments_stay_as_they_are(answer: Callable) -> None:
    verdict = judged(answer, InProcessPool(FASTER))
    failure = verdict.first_failure()
    assert failure
    assert CHANGES_ARGUMENTS in failure.message


def test_a_long_call_is_told_in_short() -> None:
    plans = [{"mesh": f"pp={n}", "step_seconds": n, "memory_bytes": 1} for n in range(1000)]
    text = in_words(load(FASTER), ((plans, 80), {}))
    assert text.startswith("faster_plan([{'mesh': 'pp=0', ")
    assert text.endswith("... and so on)")
    assert len(text) < 1100
    assert "80)" in in_words(load(FASTER), ((plans[:2], 80), {}))


def test_in_processes() -> None:
    source = SOURCE.encode()
    with Pool(Limits(wall_seconds=60)) as pool:
        verdict = judge(INTERVAL, Submission(Path("answer.py"), source), pool=pool)
    assert (verdict.status, verdict.score, verdict.diagnosis) == ("fail", 0, IN_FLOAT32)
