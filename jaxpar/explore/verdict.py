"""Judges an answer in plain numbers, or a schedule, by the course's own contracts and judges."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxpar.contracts.base import load
from jaxpar.explore.page_worker import Load, PagePool, function_of
from jaxpar.grading.misleading_calls import misleading_call
from jaxpar.grading.schedule_judge import judge_schedules
from jaxpar.grading.submission import Submission, SubmissionError, checked
from jaxpar.grading.value_judge import judge_values
from jaxpar.grading.verdict import Verdict
from jaxpar.grading.writers import plain_lines

JUDGED: Mapping[str, tuple[str, ...]] = {
    "costs": (
        "training_state_bytes", "transformer_step_flops", "model_flops_utilization",
        "all_reduce_seconds", "hierarchical_all_reduce_seconds",
    ),
    "low_communication": ("compressed_bytes",),
    "activation_checkpointing": ("activation_bytes",),
    "pipeline": ("bubble_fraction", "gpipe_schedule"),
    "pipeline_schedules": (
        "one_f_one_b_schedule", "interleaved_schedule", "stash_size", "zero_bubble_h1_schedule",
        "limited_schedule", "timed_schedule",
    ),
    "mixture_of_experts": ("dispatch_bytes",),
    "planner": (
        "layout_step_seconds", "tokens_that_hide_fsdp", "kv_cache_bytes", "young_daly_interval",
    ),
    "training_for_real": ("newest_whole", "chunks_to_read", "wsd_schedule"),
    "inference": ("page_tables", "continuous_schedule", "serving_metrics"),
    "smaller_models": ("quantized_bits",),
    "adapters": ("adapter_parameters",),
}  # fmt: skip
"""The exercises that are judged without JAX, by the folder of their contracts."""
FIELDS = ("exercise", "source", "seed")
SEEDS = 1 << 32


def answer(form: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict on the source of an answer.

    Raises:
        ValueError: a field is missing or bad, or the exercise is not judged here.
    """
    exercise, source, seed = (form.get(field) for field in FIELDS)
    if not isinstance(source, str) or not isinstance(seed, int | None):
        raise ValueError("verdict: give `exercise`, and `source`, the text of the answer's file")
    place = contract_of(str(exercise))
    verdict = judged(place, Submission(Path(f"{exercise}.py"), source.encode()), function_of, seed)
    return {
        "title": f"Verdict on {verdict.exercise}",
        "passed": verdict.passed,
        "status": verdict.status,
        "score": verdict.score,
        "max_score": verdict.max_score,
        "lines": "\n".join(plain_lines(verdict)).split("\n"),
        "printed": verdict.printed,
    }


def contract_of(exercise: str) -> str:
    """The module of the contract of an exercise that is judged here.

    Raises:
        ValueError: it is not.
    """
    for topic, ids in JUDGED.items():
        if exercise in ids:
            return f"jaxpar.contracts.{topic}.{exercise}"
    raise ValueError(
        f"verdict: {exercise!r} is not judged in a page, which has no JAX; check it on your "
        f"machine with `jaxpar check {exercise}`"
    )


def judged(where: str, submission: Submission, answer: Load, seed: int | None = None) -> Verdict:
    """The verdict on an answer.

    Args:
        where: the module of the contract.
        submission: the text of the answer.
        answer: makes the answer's function.
        seed: repeats an earlier run; drawn at random if not given.

    Raises:
        SubmissionError: the text cannot be judged.
    """
    try:
        checked(submission)
    except SubmissionError as error:
        raise SubmissionError(f"verdict: {error}") from None
    contract, chosen = load(where), secrets.randbelow(SEEDS) if seed is None else seed
    started = time.monotonic()
    judge = judge_schedules if contract.kind == "schedule" else judge_values
    judgement = judge(contract, submission, PagePool(answer), chosen)
    if judgement.status == "fail" and not judgement.diagnosis:
        wrong = next((p.name for p in judgement.properties if p.status == "fail"), "")
        judgement = replace(judgement, diagnosis=misleading_call(submission.text, wrong) or "")
    return Verdict(
        exercise=contract.id,
        score=sum(p.score for p in judgement.properties),
        max_score=sum(p.max_score for p in judgement.properties),
        seconds=round(time.monotonic() - started, 3),
        seed=chosen,
        **vars(judgement),
    )
