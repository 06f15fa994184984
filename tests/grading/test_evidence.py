"""A worker that lies leads to a verdict, and cannot reveal a hidden case."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxpar.contracts.base import Kind, load, with_drawn
from jaxpar.course.catalog import EXERCISES
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.evidence import (
    Evidence,
    collect_evidence,
    devices_needed,
    public_name,
    reason_unjudged,
)
from jaxpar.grading.processes import OUT_OF_CPU, ChildEnded, Limits, Pool
from jaxpar.grading.submission import Submission

CONTRACT = with_drawn("jaxpar.contracts.collectives.scatter", 7, hidden=True)
SECRET = CONTRACT.cases[2].kwargs["axis"]

OUTPUT = {"shape": [1], "dtype": "float32", "varying": [], "place": ""}
DONE = {"done": True}
FAILED = {"kind": "unknown", "message": "mesh fsdp=4", "raised": "ValueError",
          "is_value_error": True}  # fmt: skip


def program(**said: Any) -> list:
    """The frames of a program with one output, which is described as these fields say."""
    return [{"program": ["forward", 0], "outputs": [OUTPUT | said]}, b"bytes"]


PROGRAM = program()


class Worker:
    """Stands for a worker process, and sends the frames that it is given."""

    def __init__(self, frames: list) -> None:
        self.frames = [{"ready": True}, *frames]
        self.sent: list[dict] = []

    def send(self, value: dict) -> None:
        self.sent.append(value)

    def receive(self, deadline: Deadline) -> Any:
        if not self.frames:
            raise ChildEnded("killed")
        return self.frames.pop(0)

    def printed(self) -> str:
        return f"after {len(self.sent)} frames"

    printed_to_its_end = printed


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Callable[[Worker], Evidence]:
    """Collects the evidence of a worker that stands for a process."""

    def collect(worker: Worker) -> Evidence:
        with Pool() as pool:
            monkeypatch.setattr(pool, "take", lambda module: worker)
            monkeypatch.setattr(pool, "end", lambda child: None)
            return collect_evidence(pool, CONTRACT, Submission(Path("scatter.py"), b""))

    return collect


@pytest.mark.parametrize(
    "frames",
    [
        ["hello"],
        [b"bytes first"],
        [{"nothing": 1}] * 100,
        [PROGRAM[0], {"no": "bytes"}],
        [{"program": ["forward", 0], "outputs": []}, b""],
        [{"value": 0, "result": 1}, DONE],
        [{"failure": ["value", 0], **FAILED}, DONE],
    ],
)
def test_a_worker_that_lies_is_a_verdict(
    frames: list, collected: Callable[[Worker], Evidence]
) -> None:
    worker = Worker(frames)
    evidence = collected(worker)
    assert len(worker.sent) == 1
    assert evidence.ended and evidence.ended.cause == "protocol"


@pytest.mark.parametrize(
    "frames",
    [
        [{"program": ["forward", 0], "outputs": [OUTPUT] * 257}, b""],
        program(shape=[-1]),
        program(dtype="object"),
    ],
)
def test_results_that_cannot_be_judged_are_a_failure(
    frames: list, collected: Callable[[Worker], Evidence]
) -> None:
    evidence = collected(Worker([*frames[:2], DONE]))
    assert evidence.ended is None and not evidence.programs
    assert evidence.failures["forward", 0].kind == "result"


@pytest.mark.parametrize(
    "late",
    [
        PROGRAM,
        [{"failure": ["forward", 1], **FAILED}],
        [{"failure": ["load", 0], **FAILED}],
        [{"value": 0, "result": "fsdp"}],
        [{"failure": ["forward", 2], **FAILED}] * 2,
        [{"failure": ["forward", 4], **FAILED}],
        [{"fsdp": 4}],
    ],
)
def test_no_late_reply_stands_for_a_case_that_is_shown(
    late: list, collected: Callable[[Worker], Evidence]
) -> None:
    worker = Worker([*PROGRAM, DONE, *late, DONE])
    evidence = collected(worker)
    assert "hidden" not in worker.sent[0]
    assert SECRET not in json.dumps(worker.sent[0])
    assert worker.sent[1]["first"] == 2
    assert evidence.ended and evidence.ended.cause == "protocol"
    assert evidence.printed == "after 1 frames"
    assert evidence.failures.keys() <= {("forward", 2)}


def test_an_answer_that_cannot_be_called_hears_of_no_hidden_case(
    collected: Callable[[Worker], Evidence],
) -> None:
    worker = Worker([{"failure": ["load", 0], **FAILED}, DONE])
    evidence = collected(worker)
    assert len(worker.sent) == 1
    assert evidence.ended is None


def test_no_word_about_a_hidden_case_is_kept(collected: Callable[[Worker], Evidence]) -> None:
    told = {"kind": SECRET, "message": SECRET, "raised": SECRET, "is_value_error": False}
    evidence = collected(Worker([*PROGRAM, DONE, {"failure": ["forward", 2], **told}, DONE]))
    assert evidence.ended is None
    assert evidence.failures.keys() == {("forward", 2)}
    assert SECRET not in repr(evidence.failures)


@pytest.mark.parametrize("where", [exercise.where for exercise in EXERCISES])
def test_the_number_of_devices_tells_of_no_hidden_case(where: str) -> None:
    counts = {
        devices_needed(load(where)),
        *(devices_needed(with_drawn(where, s)) for s in range(9)),
    }
    assert len(counts) == 1


@pytest.mark.parametrize("name", ["", "fsdp=4", "print", "__doc__", "jax", "OSError\x1b"])
def test_names_that_are_not_pythons_own_are_not_told(name: str) -> None:
    assert public_name(name) == "an error"
    assert public_name("ZeroDivisionError") == "ZeroDivisionError"


@pytest.mark.parametrize(("detail", "limit"), [("", "4 seconds; "), (OUT_OF_CPU, "processor time")])
@pytest.mark.parametrize(
    ("kind", "jax"), [("program", True), ("specs", False), ("value", False), ("schedule", False)]
)
def test_only_a_slow_program_is_told_of_scan(
    detail: str, limit: str, kind: Kind, jax: bool
) -> None:
    evidence = Evidence(ended=ChildEnded("timeout", detail))
    end = reason_unjudged(evidence, Limits(wall_seconds=4), kind)
    assert end and end[0] == "timeout"
    assert limit in end[1] and "loop" in end[1]
    assert ("lax.scan" in end[1]) == jax
