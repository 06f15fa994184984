"""What the doctor finds, in a course and outside one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jaxpar import __version__
from jaxpar.course.catalog import LESSONS
from jaxpar.course.folder import Course

ROOT = Path(__file__).parents[2]


def doctor(folder: Path) -> tuple[int, Any]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "jaxpar.cli", "doctor", "--json"]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True)
    return ended.returncode, json.loads(ended.stdout)


def test_it_tells_what_there_is_and_what_is_missing(course: Course) -> None:
    code, data = doctor(course.root)
    assert data["devices"][0].startswith("8 simulated")
    assert data["versions"]["jaxpar"] == __version__
    assert data["course"] == str(course.root)
    assert code == 1  # this course has no lessons
    assert [line.split(":")[0] for line in data["missing"]] == [row.file for row in LESSONS]


def test_outside_a_course_only_the_machine_counts(tmp_path: Path) -> None:
    code, data = doctor(tmp_path)
    assert (code, data["course"], data["missing"]) == (0, None, [])
