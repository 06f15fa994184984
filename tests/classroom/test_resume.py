"""A run that was interrupted, killed or short of disk goes on, and ends as if undisturbed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.classroom.readable_python import readable_python

__all__ = ["readable_python"]

EXERCISES = {
    "mean_over_devices": "from jax import lax\n"
    "def mean_over_devices(x, *, axis):\n"
    "    return lax.psum(x, axis) / {divisor}\n",
    "scatter": "def scatter(x, root, *, axis):\n    raise ValueError(x.shape)  # {divisor}\n",
}
SECONDS = 120
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
os.execv(sys.argv[1], sys.argv[1:])
"""


class Class:
    """Two students, and the command that grades them."""

    def __init__(self, folder: Path, python: str) -> None:
        self.out = folder / "out"
        self._started: list[subprocess.Popen[str]] = []
        for student, divisor in (("anna", "lax.axis_size(axis)"), ("bert", "4")):
            place = folder / "class" / student
            place.mkdir(parents=True)
            for name, text in EXERCISES.items():
                (place / f"{name}.py").write_text(text.format(divisor=divisor))
        self._environment = os.environ | {"XDG_CONFIG_HOME": str(folder / "config")}
        self._command = [python, "-P", "-m", "jaxpar.cli", "grade", str(folder / "class")]
        self._command += ["--out", str(self.out), "--unsafe", "--exercises", *EXERCISES]

    def start(self, *more: str, limit: int | None = None) -> subprocess.Popen[str]:
        """Starts grading; `limit` is the largest size of a file that it may write."""
        command = [*self._command, *more]
        if limit is not None:  # set by the new process: JAX warns if a process that uses it forks
            command = [command[0], "-c", LIMITED.format(limit=limit), *command]
        process = subprocess.Popen(
            command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kills all processes that were started."""
        for process in self._started:
            with process:
                process.kill()

    def grade(self, *more: str) -> str:
        """Grades to the end, and returns what was printed."""
        process = self.start(*more)
        out, trouble = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, trouble
        return out

    def after(self, count: int) -> list[Path]:
        """Waits until so many files were judged, and returns the paths of their records."""
        end = time.monotonic() + SECONDS
        while len(found := list(self.out.glob("journal/records/*.json"))) < count:
            assert time.monotonic() < end
            last = self._started[-1]
            assert last.poll() is None, last.communicate()
            time.sleep(0.02)
        return found

    def results(self) -> dict[str, bytes]:
        """The bytes of all results."""
        return {path.name: path.read_bytes() for path in self.out.glob("students/*.json")}


@pytest.fixture
def graded(tmp_path: Path, readable_python: str) -> Iterator[Class]:
    made = Class(tmp_path, readable_python)
    yield made
    made.end()


@pytest.mark.full
def test_killed_and_started_again_it_ends_as_if_undisturbed(graded: Class) -> None:
    first = graded.start()
    graded.after(1)
    first.send_signal(signal.SIGSTOP)  # or it might end before the second one has begun
    second = graded.start()
    _, trouble = second.communicate(timeout=SECONDS)
    assert second.returncode == 2, trouble
    assert f"process {first.pid} on" in trouble
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGINT)
    _, trouble = first.communicate(timeout=SECONDS)
    assert first.returncode == 130, trouble
    assert "The same command goes on" in trouble

    third = graded.start()
    graded.after(3)
    third.kill()
    third.communicate()
    kept = {path.name: path.stat().st_ino for path in graded.after(3)}
    graded.grade()
    again = {path.name: path.stat().st_ino for path in graded.after(4)}
    assert kept.items() <= again.items()  # nothing is judged twice
    results = graded.results()
    assert results.keys() == {"anna.json", "bert.json"}

    shutil.rmtree(graded.out / "journal" / "records")
    graded.grade()  # the evidence that was kept, judged again
    assert graded.results() == results
    printed = graded.grade("--fresh")  # every file run again: an undisturbed run
    assert graded.results() == results
    assert "moved" not in printed


def test_no_room_ends_it_in_one_line(graded: Class) -> None:
    process = graded.start(limit=100)
    _, trouble = process.communicate(timeout=SECONDS)
    assert process.returncode == 2, trouble
    assert "cannot be written: File too large; make room, and run the same" in trouble
    assert not list(graded.out.glob("*/.*"))
