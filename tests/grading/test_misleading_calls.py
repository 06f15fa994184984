"""Calls that tell of the machine or the process are told where nothing else explains an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxpar.grading.judge import judge
from jaxpar.grading.misleading_calls import misleading_call
from jaxpar.grading.processes import Limits, Pool
from jaxpar.grading.submission import MAX_SOURCE_BYTES, Submission


@pytest.mark.parametrize("call", ["device_count()", "devices()", "local_device_count()"])
def test_calls_about_the_machine_are_told(call: str) -> None:
    assert "axis_size" in misleading_call(f"import jax\nn = len([jax.{call}])\n")


def test_calls_about_the_process_are_told() -> None:
    assert "axis_index" in misleading_call("import jax\nrank = jax.process_index()\n")


LOOP_OF_CHECKPOINTS = """
def layers(params, x):
    for layer in params:
        x = jax.checkpoint(apply)(layer, x)
    return x
"""


def test_a_python_loop_over_checkpoints_is_told_where_memory_is_wrong() -> None:
    assert "lax.scan" in misleading_call(LOOP_OF_CHECKPOINTS, "memory")
    assert misleading_call(LOOP_OF_CHECKPOINTS, "gradient") == ""
    assert misleading_call(LOOP_OF_CHECKPOINTS.replace("checkpoint", "jit"), "memory") == ""


@pytest.mark.parametrize(
    "header", ["for layer in params:", "for first in in second:", "for in in in:", "for  in :"]
)
def test_a_loop_is_found_whatever_its_names_are(header: str) -> None:
    source = LOOP_OF_CHECKPOINTS.replace("for layer in params:", header)
    assert "lax.scan" in misleading_call(source, "memory")


LONG_LINES = ["\t", " for ", "\tfor  in", " in", " in ", "jax.", " ", "checkpoint_", " checkpoin",
              "remat_", "jax.devices", "jax.device_count ", "x.jax.local_", ":", "\n for ",
              "\n "]  # fmt: skip


@pytest.mark.timeout(10)  # a pattern that goes back from each word takes a minute
@pytest.mark.parametrize("before", ["", " for x", " for x in y", " for x in y:\n"])
@pytest.mark.parametrize("piece", LONG_LINES)
def test_the_longest_line_of_a_stranger_is_searched(before: str, piece: str) -> None:
    line = piece * (MAX_SOURCE_BYTES // len(piece))
    assert misleading_call(before + line, "memory") == ""


@pytest.mark.parametrize(
    "source", ["def", "n = lax.axis_size(axis)", "n = devices()", "# jax.devices()"]
)
def test_nothing_else_is_told(source: str) -> None:
    assert misleading_call(source) == ""


def test_a_verdict_tells_of_it() -> None:
    source = """
import jax
from jax import lax

def mean_over_devices(x, *, axis):
    return lax.psum(x, axis) / jax.device_count()
"""
    with Pool(Limits(wall_seconds=90)) as pool:
        submission = Submission(Path("mean_over_devices.py"), source.encode())
        verdict = judge(
            "jaxpar.contracts.collectives.mean_over_devices", submission, pool=pool, seed=1
        )
    assert verdict.status == "fail"
    assert verdict.diagnosis.startswith("`jax.device_count` tells of the devices of this machine")
