"""A verdict as JSON, as plain lines, and as tables."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from jaxpar.grading.terminal_writer import render
from jaxpar.grading.verdict import Measured, PropertyVerdict, Verdict, in_bytes
from jaxpar.grading.writers import plain_lines, to_json

FAILED = Verdict(
    exercise="scatter",
    status="fail",
    score=7,
    max_score=10,
    properties=(
        PropertyVerdict("values", "pass", 5, 5, "right on tp=8 and dp=3"),
        PropertyVerdict(
            "communication", "fail", 0, 3, "too much is sent", "84 bytes [n=8]", "672 bytes\nin all"
        ),
        PropertyVerdict("memory", "not-judged", 0, 1, "not judged: it was not run"),
    ),
    diagnosis="Everything is gathered.",
    seconds=1.26,
    seed=7,
    measured=Measured("wire_bytes", "tp=8", 672, 84),
    printed="shape (8, 4)\n",
)


def rendered(verdict: Verdict, predicted: int | None = None, best: int | None = None) -> str:
    file = io.StringIO()
    Console(file=file, width=100).print(render(verdict, predicted, best))
    return file.getvalue()


def test_bytes_are_exact_however_many() -> None:
    assert in_bytes(1234567.5) == "1,234,567.5 bytes"


def test_json_has_these_keys_and_no_others() -> None:
    data = to_json(FAILED)
    assert list(data) == [
        "exercise", "status", "score", "max_score", "properties", "diagnosis", "seconds",
        "measured", "best",
    ]  # fmt: skip
    assert data["properties"][1] == {
        "name": "communication",
        "status": "fail",
        "score": 0,
        "max_score": 3,
        "message": "too much is sent",
        "expected": "84 bytes [n=8]",
        "got": "672 bytes\nin all",
    }


def test_plain_lines_say_everything_once() -> None:
    assert list(plain_lines(FAILED, predicted=1000)) == [
        "scatter: fail, 7 of 10 points (1.3 s, seed 7)",
        "  pass        values         5/5  right on tp=8 and dp=3",
        "  fail        communication  0/3  too much is sent",
        "  not-judged  memory         0/1  not judged: it was not run",
        "",
        "communication: too much is sent",
        "  expected  84 bytes [n=8]",
        "  got       672 bytes",
        "  got       in all",
        "",
        "Everything is gathered.",
        "",
        "what each device sends in one call, forward, on tp=8",
        "  predicted  1,000 bytes",
        "  measured   672 bytes",
        "  library    84 bytes",
        "",
        "your program printed",
        "  shape (8, 4)",
    ]


CHALLENGE = Measured("makespan", "limited_schedule(4, 8, 3)", 31, 48, challenge=True)


def test_a_challenge_is_shown_with_the_best_before() -> None:
    passed = replace(FAILED, status="pass", measured=CHALLENGE, printed="")
    lines = list(plain_lines(passed, best=38))
    assert lines[-5:] == [
        "the makespan of limited_schedule(4, 8, 3)",
        "  measured   31",
        "  library    48",
        "  your best  38",
        "Your best now: 31.",
    ]
    assert "your best 38\nYour best now: 31." in rendered(passed, best=38)
    assert to_json(passed, best=31)["best"] == 31
    assert list(plain_lines(passed))[-1] == "  library    48"
    assert list(plain_lines(passed, best=31))[-1] == "  your best  31"


def test_a_wrong_answer_is_no_best() -> None:
    failed = replace(FAILED, measured=CHALLENGE, printed="")
    assert list(plain_lines(failed, best=38))[-1] == "  your best  38"


def test_bytes_of_a_challenge_have_their_unit() -> None:
    least = Measured("temp_bytes", "fsdp=3", 485_048, 845_624, challenge=True)
    lines = list(plain_lines(replace(FAILED, measured=least, printed=""), predicted=7))
    assert lines[-3:] == [
        "what intermediate results take, forward and backward, on fsdp=3",
        "  measured   485,048 bytes",
        "  library    845,624 bytes",
    ]


def test_a_verdict_comes_back_from_plain_data() -> None:
    for verdict in (FAILED, replace(FAILED, measured=None)):
        assert Verdict.from_dict(verdict.to_dict()) == verdict


def test_the_terminal_shows_the_same_in_tables() -> None:
    shown = rendered(FAILED, predicted=1000)
    words = (
        "fail",
        "not judged: it was not run: memory",
        "84 bytes [n=8]",
        "Everything is gathered.",
        "1,000 bytes",
    )
    assert all(word in shown for word in (*words, "shape (8, 4)"))


def test_long_texts_stand_under_the_table_and_what_waits_in_one_line() -> None:
    long = "1 x all_reduce over dp of 240 bytes (320 bytes on the wire)"
    waits = "not judged: values are wrong"
    properties = (
        PropertyVerdict("values", "fail", 0, 5, "element [0] is 2", "1", "2"),
        PropertyVerdict("gradient", "not-judged", 0, 1, waits),
        PropertyVerdict("communication", "not-judged", 0, 3, waits, "at most 8 B", long),
    )
    shown = rendered(replace(FAILED, properties=properties))
    assert "not judged until values are right: gradient, communication\n" in shown
    assert long not in shown
    sent = PropertyVerdict("communication", "pass", 3, 3, "one all-reduce", "at most 8 B", long)
    assert "communication: one all-reduce\n" in rendered(replace(FAILED, properties=(sent,)))


def test_a_diagnosis_that_is_the_message_is_said_once() -> None:
    error = "line 3: this answer may not import os"
    failed = PropertyVerdict("values", "fail", 0, 10, error)
    verdict = replace(FAILED, properties=(failed,), diagnosis=error, measured=None, printed="")
    assert list(plain_lines(verdict))[2:] == ["", error]
    assert rendered(verdict).count(error) == 1


def test_a_pass_has_no_failure_to_show() -> None:
    passed = replace(FAILED, status="pass", properties=FAILED.properties[:1], diagnosis="")
    lines = list(plain_lines(replace(passed, measured=None, printed="")))
    assert lines[1:] == ["  pass        values         5/5  right on tp=8 and dp=3"]
    assert "expected" in rendered(passed)


@pytest.mark.parametrize("printed, said", [("x JitTracer(float32[6])\n", True), ("6\n", False)])
def test_who_prints_what_has_no_value_yet_is_told_where_to_see_values(
    printed: str, said: bool
) -> None:
    verdict = replace(FAILED, printed=printed)
    where = f"`jaxpar run {FAILED.exercise}` shows values"
    assert (where in "\n".join(plain_lines(verdict))) is said
    assert (where in rendered(verdict).replace("\n", " ")) is said
