"""`jaxpar dev new` writes an exercise that works, and refuses what would not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.course.catalog import BadUseError
from jaxpar.course.new_exercise import write_skeleton

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the files that a new exercise changes, and of those that judge it."""
    for folder in ("jaxpar", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.full
def test_the_skeleton_passes_the_tests_of_every_exercise(project: Path) -> None:
    written = write_skeleton(project, "03", "ring_sum")
    assert written == [
        "jaxpar/contracts/ring_and_tree/ring_sum.py",
        "tests/contracts/ring_and_tree/ring_sum.py",
        "jaxpar/collectives/hierarchical.py",
        "jaxpar/course/catalog.py",
    ]
    tests = ["tests/contracts/test_contracts.py", "-k", "ring_sum"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *tests],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert " passed" in ran.stdout


@pytest.mark.parametrize(
    ("topic", "id", "message"),
    [
        ("99", "ring_sum", "there is no lesson '99'"),
        ("03", "scatter", "there is an exercise scatter already"),
        ("03", "Ring-Sum", "'Ring-Sum' is no name of a function"),
    ],
)
def test_what_cannot_be_an_exercise_is_refused(
    tmp_path: Path, topic: str, id: str, message: str
) -> None:
    with pytest.raises(BadUseError, match=message):
        write_skeleton(tmp_path, topic, id)
    assert list(tmp_path.iterdir()) == []
