"""`pytest exercises`: one item for each property, the verdict of `jaxpar check`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES, exercise
from jaxpar.course.folder import Course
from tests.course.fakes import RIGHT, write

ROOT = Path(__file__).parents[2]
VALUE, PROGRAM = exercise("device_coordinates"), exercise("add_rank")
SUM_FIRST = """from jax import lax


def add_rank(x, *, axis):
    return x + lax.psum(lax.axis_index(axis), axis).astype(x.dtype)
"""
NOISY = "raise SystemExit('imported by pytest')\n"


@pytest.fixture
def course(course: Course) -> Course:
    conftest = course.root / "exercises" / "conftest.py"
    conftest.write_bytes((ROOT / "exercises" / "conftest.py").read_bytes())
    return course


def run(course: Course, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    ended = subprocess.run(
        command, cwd=course.root, env=environment, capture_output=True, text=True
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.full
def test_each_property_is_an_item_and_a_stub_fails_with_its_task(course: Course) -> None:
    code, out = run(course, "exercises", "-v")
    assert code == 1
    assert f"{PROGRAM.file}::values FAILED" in out
    assert f"{PROGRAM.file}::communication SKIPPED" in out
    unwritten = re.findall(r"^FAILED .*::(?:values|order) - not written yet: ", out, re.M)
    assert len(unwritten) == len(EXERCISES)
    assert f"0 of {sum(row.points for row in EXERCISES)} points" in out
    assert "not written yet: return x plus the index of this device" in out
    assert "Traceback" not in out
    assert "pytest_plugin.py" not in out


def test_one_property_of_a_stub_fails_alone(course: Course) -> None:
    code, out = run(course, PROGRAM.file, "-k", "communication")
    assert code == 1
    assert "1 failed" in out
    assert "0 of 3 points" in out


@pytest.mark.full
def test_one_judgement_for_all_items_of_an_exercise_in_several_processes(course: Course) -> None:
    write(course, VALUE, RIGHT)
    write(course, PROGRAM, SUM_FIRST)
    code, out = run(course, "exercises/01_devices_and_meshes", "-n", "2", "-v")
    assert code == 1
    assert "values: on tp=8, device " in out
    assert "not judged: values are wrong" in out
    assert "5 of 20 points" in out
    assert "pytest_plugin.py" not in out
    processes = re.findall(r"\[(gw\d)\].*add_rank.py::", out)
    assert len(processes) == len(load(PROGRAM.where).points())
    assert len(set(processes)) == 1  # one process judged for all items


@pytest.mark.full
def test_one_file_and_one_property(course: Course) -> None:
    write(course, VALUE, RIGHT)
    code, out = run(course, VALUE.file, "-q")
    assert code == 0
    assert "5 of 5 points" in out
    write(course, VALUE, NOISY)
    code, out = run(course, VALUE.file, "-k", "communication")
    assert code == 5  # a value has no such property
    assert "imported by pytest" not in out
