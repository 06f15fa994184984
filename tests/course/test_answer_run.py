"""Running an answer outside the judge: what is drawn, and what its own prints see."""

from pathlib import Path

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.answer_run import RUNS, AnswerRun, LearnerError
from jaxpar.course.catalog import EXERCISES, exercise
from jaxpar.grading.submission import Submission
from tests.course.fakes import WRONG, stub_of

ADD_RANK = """import jax
from jax import lax


def add_rank(x, *, axis):
    print("now", x.shape)
    jax.debug.print("value {}", x.ravel()[0])
    return x + lax.axis_index(axis).astype(x.dtype)
"""


def run(id: str, source: str | bytes, width: int = 80) -> list[str]:
    text = source.encode() if isinstance(source, str) else source
    submission = Submission(Path("answer.py"), text)
    return [*AnswerRun(load(exercise(id).where), submission, width).lines()]


def by_reference(id: str) -> str:
    reference = load(exercise(id).where).reference
    return f"from {reference.__module__} import {reference.__name__}\n"


def test_print_sees_values_and_the_result_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run("add_rank", ADD_RANK)
    assert lines[0].startswith("add_rank on mesh tp=8: x float32[6]")
    runs = lines.index(RUNS)
    given, returned = "\n".join(lines[:runs]), "\n".join(lines[runs:])
    assert "x, float32[6] on each device" in given
    assert "result, float32[6] on each device" in returned
    printed = capsys.readouterr().out
    assert "now (6,)" in printed
    assert printed.count("value ") == 8
    assert "Tracer" not in printed
    first_value = given.split("\u2502")[1].strip()
    assert first_value.endswith("a")
    assert first_value in returned  # device 0 adds 0, so the value is still its own


@pytest.mark.parametrize("id", ["scatter", "hybrid_gradients", "matmul_3d", "sum_gradients"])
def test_every_program_can_run_line_by_line(id: str) -> None:
    lines = run(id, by_reference(id))
    assert any(line.startswith("result") for line in lines[lines.index(RUNS) :])


@pytest.mark.full
@pytest.mark.parametrize("id", [row.id for row in EXERCISES])
def test_every_reference_can_run(id: str) -> None:
    assert RUNS in run(id, by_reference(id))


def test_values_schedules_and_specs() -> None:
    coordinates = run("device_coordinates", WRONG)
    assert any(line.startswith("device_coordinates(") and " = (" in line for line in coordinates)
    schedule = "\n".join(run("gpipe_schedule", by_reference("gpipe_schedule")))
    assert "device 0  F0" in schedule
    broken = "def gpipe_schedule(stages, microbatches):\n    return [['0B0']] * stages\n"
    assert "cannot be drawn: " in "\n".join(run("gpipe_schedule", broken))
    specs = "\n".join(run("megatron_specs", by_reference("megatron_specs")))
    assert "params['mlp']['up']: [30, 24], P(None, 'tpx'), [30, 8]" in specs


def test_an_error_shows_the_lines_of_the_learner_only() -> None:
    wrong = ADD_RANK.replace("return x +", "return x + y +")
    with pytest.raises(LearnerError, match=r"line 8, in add_rank\n(.*\n)?NameError: name") as error:
        run("add_rank", wrong)
    assert "jaxpar" not in str(error.value)
    with pytest.raises(LearnerError, match="NotImplementedError"):
        run("add_rank", stub_of(exercise("add_rank")))
    with pytest.raises(LearnerError, match="no function named add_rank"):
        run("add_rank", "x = 1\n")
    with pytest.raises(LearnerError, match="SyntaxError"):
        run("add_rank", "def add_rank(:\n")
    with pytest.raises(LearnerError, match="left at the breakpoint"):
        run("add_rank", ADD_RANK.replace("    jax.", "    import bdb; raise bdb.BdbQuit\n    jax."))
