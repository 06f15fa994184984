"""Schedules from an answer: data of any kind is judged, none breaks the judge, and it is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jaxpar.contracts.base import load
from jaxpar.grading.in_process import InProcessPool, judged
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import Limits, Pool
from jaxpar.grading.schedule_judge import CAN_RUN, busy_cells, read_table
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Measured
from jaxpar.grading.writers import plain_lines
from jaxpar.schedules import Table, make_table
from jaxpar.schedules.generators import gpipe_schedule, limited_schedule, one_f_one_b_schedule

GPIPE = "jaxpar.contracts.pipeline.gpipe_schedule"
LIMITED = "jaxpar.contracts.pipeline_schedules.limited_schedule"
ONE_F_ONE_B = "jaxpar.contracts.pipeline_schedules.one_f_one_b_schedule"
TIMED = "jaxpar.contracts.pipeline_schedules.timed_schedule"
INTERLEAVED = "jaxpar.contracts.pipeline_schedules.interleaved_schedule"
MODEL = make_table("gpipe", 2, 1)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "the result is None; return a list of rows"),
        ("nothing", "the result is nothing; return"),
        ({"0": ["0F0"]}, "the result is {'0': "),
        (7, "the result is 7;"),
        ([], "it has 0 rows, and must have 2"),
        (["0F0", "1F0"], "row 1 is '0F0'; a row is a list"),
        ([["0F0", "0B0"], None], "row 2 is None; a row is a list"),
        ([["0F0", "0B0"]], "it has 1 rows, and must have 2, one for each device"),
        ([["0F0", "0B0"], []], r"row 2 \(device 1\), cell 1: the row has no action"),
        ([["0F0", 7], ["1F0"]], r"row 1 \(device 0\), cell 2: 7 is not an action"),
        ([["0F0", ["x" * 99]], []], r"cell 2: \['x{38} is not an action"),
        ([["0F0", "0F-1"], []], "'0F-1' is not an action"),
        ([["0F0", "\x1b[2J"], []], r"'\\x1b\[2J' is not an action"),
        ([["0F0", "9999999999F0"], []], "is not an action"),
        ([["0F0", "999999999F0"], ["1F0"]], r"\(999999999F0\): stage 2 is missing"),
        ([["0F0", "0F999999999"], ["1F0"]], "microbatch 1 is missing"),
        ([["0F0", "0F0"], ["1F0"]], "it is there twice"),
        ([["0F0", "0B0"], ["1B0", "1F0"]], "it comes before 1F0"),
        ([["1F0", "1B0"], ["0F0", "0B0"]], "stage 0 is in row 2; device 0 is row 1"),
        (make_table("gpipe", 2, 2).to_rows(), "microbatches: it has 2, and must have 1"),
        (make_table("zb-v", 2, 1).to_rows(), "stages: it has 4, and must have 2"),
        ([["0F0", "0B0"], ["1F0", "1B0"] + [None] * 10_000], "10,004 cells, and at most 10,000"),
    ],
)
def test_what_is_no_schedule_is_named(result: Any, says: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_table(result, MODEL)
    assert re.search(says, str(raised.value)), raised.value
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    "result",
    [
        [["0F0", "0B0"], ["1F0", "1B0"]],
        [["0F0", None, "", "0B0", ""], ["", " 1F0", "1B0 "]],
        [["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"]],
    ],
)
def test_idle_cells_and_split_backwards_are_right(result: Any) -> None:
    assert read_table(result, MODEL).stages == 2


def test_idle_cells_make_no_other_answer() -> None:
    assert busy_cells([["", "0F0", None]]) == busy_cells([["0F0"]])
    assert busy_cells([["0F0"], None]) == [["0F0"], None]


def _all_forwards_first(stages: int, microbatches: int) -> list[list[str]]:
    return [[f"{s}{kind}{m}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]


def test_a_schedule_that_costs_too_much_is_drawn() -> None:
    verdict = judged(_all_forwards_first, InProcessPool(ONE_F_ONE_B))
    scores = {row.name: row.score for row in verdict.properties}
    assert scores == {"order": 4, "bubble": 3, "in_flight": 0}
    failure = verdict.first_failure()
    assert failure
    assert (failure.expected, failure.got) == ("at most 2 2 2 1", "2 2 2 2")
    lines = "\n".join(plain_lines(verdict)).splitlines()
    assert "device 3  ......F0F1B0--B1--............" in lines
    assert all(line.isascii() for line in lines)
    assert verdict.diagnosis.startswith("This is GPipe: ")


def test_another_schedule_that_costs_no_more_is_told_of_its_order() -> None:
    verdict = judged(one_f_one_b_schedule, InProcessPool(GPIPE))
    assert [row.score for row in verdict.properties] == [0, 0, 0]
    failure = verdict.first_failure()
    assert failure
    assert failure.message.startswith(
        "gpipe_schedule(4, 2): device 3 does 3B0 after 1 forward and 0 backwards, where a forward "
        "must come; the order is that of GPipe: "
    )
    assert "device 3  ......F0B0--F1B1--" in failure.message
    assert verdict.diagnosis == load(GPIPE).mistake("one_f_one_b_as_gpipe").sentence


def test_the_makespan_of_a_challenge_is_measured_on_its_first_call() -> None:
    verdict = judged(limited_schedule, InProcessPool(LIMITED))
    assert verdict.measured == Measured("makespan", "limited_schedule(4, 8, 3)", 48, 48, True)
    assert judged(gpipe_schedule, InProcessPool(GPIPE)).measured is None


def test_what_may_be_in_flight_can_be_an_argument() -> None:
    verdict = judged(load(LIMITED).mistake("limit_ignored").function, InProcessPool(LIMITED))
    failure = verdict.first_failure()
    assert failure
    assert (failure.expected, failure.got) == ("at most 3 3 3 3", "4 3 2 1")


def test_the_times_of_cells_can_be_arguments() -> None:
    verdict = judged(load(TIMED).mistake("one_f_one_b").function, InProcessPool(TIMED))
    failure = verdict.first_failure()
    assert failure
    assert (failure.expected, failure.got) == ("makespan 142", "makespan 162")
    assert "takes longer than it must with F=4 B=8 P=1\n" in failure.message
    assert verdict.measured == Measured(
        "makespan", "timed_schedule(5, 8, 6, f=4, i=5, w=3, transfer=1)", 162, 142, True
    )


def _swapped(rows: list[list[str]], device: int, one: str, other: str) -> list[list[str]]:
    swap = {one: other, other: one}
    return [
        [swap.get(cell, cell) if at == device else cell for cell in row]
        for at, row in enumerate(rows)
    ]


TWO_ROUNDS = make_table("interleaved", 2, 4, 2)


@pytest.mark.parametrize(
    ("swap", "says"),
    [
        ((0, "0F2", "2F1"), "device 0 does 0F2 after 3 other forwards, where one of stage 2 must"),
        ((0, "2B2", "0B1"), "device 0 does 2B2 after 3 other backwards, where one of stage 0 must"),
        ((0, "0F1", "0F2"), "device 0 takes other microbatches forward through one chunk than"),
        ((1, "1B1", "1B2"), "device 1 takes other microbatches backward through one chunk than"),
        ((1, "3F1", "3B0"), "device 1 does 1F2 out of turn"),
        ((1, "1F0", "1F1"), None),
    ],
)
def test_the_order_of_chunks_rounds_and_turns(swap: tuple, says: str | None) -> None:
    pipeline = load(INTERLEAVED).pipeline
    assert pipeline
    table = Table.parse(_swapped(TWO_ROUNDS.to_rows(), *swap))
    complaint = pipeline.complaint(table, TWO_ROUNDS)
    assert complaint == says or (says and complaint and complaint.startswith(says)), complaint


def test_nothing_is_earned_without_the_order() -> None:
    rows = [["0F0", "0B0"], ["1F0", "1B0"]]
    verdict = judged(lambda stages, microbatches: rows, InProcessPool(GPIPE))
    assert verdict.score == 0
    waiting = [p for p in verdict.properties if p.status == "not-judged"]
    assert [(p.name, p.message) for p in waiting] == [
        ("bubble", "not judged: the order is wrong"),
        ("in_flight", "not judged: the order is wrong"),
    ]


SOURCE = """
import numpy as np

calls = []

def gpipe_schedule(stages, microbatches):
    table = [[f"{s}{kind}{m}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]
    return table
"""
BODY = "    return table\n"
FORGETFUL = "    calls.append(0)\n    return table[: len(calls)]\n"


@pytest.mark.parametrize(
    ("source", "status", "score", "says"),
    [
        (SOURCE, "pass", 10, ""),
        (SOURCE.replace("return table", "return np.array(table)"), "pass", 10, ""),
        (SOURCE.replace(BODY, FORGETFUL), "fail", 0, "earlier calls"),
        (SOURCE.replace("range(stages)", "stages"), "fail", 0, "line 7: "),
        (SOURCE.replace(BODY, "    raise NotImplementedError"), "fail", 0, "Not"),
        (SOURCE.replace("table\n", "[row * 3000 for row in table]\n"), "fail", 0, "too much"),
    ],
)  # fmt: skip
def test_in_processes(source: str, status: str, score: int, says: str) -> None:
    with Pool(Limits(wall_seconds=60)) as pool:
        submission = Submission(Path("answer.py"), source.encode())
        verdict = judge(GPIPE, submission, pool=pool)
    assert (verdict.status, verdict.score, verdict.max_score) == (status, score, 10)
    told = [row.message for row in verdict.properties] + [verdict.diagnosis]
    assert says in "\n".join(told), told
    if status == "pass":
        assert verdict.properties[0].message == CAN_RUN


CONTIGUOUS = load(INTERLEAVED).mistake("contiguous_chunks")


def _contiguous_that_refuses(stages: int, microbatches: int, chunks: int) -> Any:
    if chunks < 2:
        raise ValueError("chunks")
    return CONTIGUOUS.function(stages, microbatches, chunks)


def test_a_mistake_is_named_whatever_is_refused_besides() -> None:
    verdict = judged(_contiguous_that_refuses, InProcessPool(INTERLEAVED))
    assert verdict.diagnosis == CONTIGUOUS.sentence
