"""Watch mode as a learner has it, with real processes, files and signals."""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxpar.course.catalog import exercise
from jaxpar.course.folder import Course
from tests.course.fakes import RIGHT, WRONG, write

pty = pytest.importorskip("pty")
ROOT = Path(__file__).parents[2]
ROW = exercise("device_coordinates")
WAIT_SECONDS = 90
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Watcher:
    """A running `jaxpar`, what it has printed, and what can be typed to it."""

    def __init__(self, course: Course, *options: str, terminal: bool) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-m", "jaxpar.cli", *options]
        if terminal:
            self._keys, stdin = pty.openpty()
            self._out, stdout = self._keys, stdin
        else:
            stdin, self._keys = os.pipe()
            self._out, stdout = os.pipe()
        self.process = subprocess.Popen(
            command,
            cwd=course.root,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )
        for end in {stdin, stdout}:
            os.close(end)
        self.printed = ""

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Reads until `pattern` is printed, and forgets everything up to there."""
        deadline = time.monotonic() + WAIT_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while not (match := re.search(pattern, self.printed)):
                assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.printed}"
                if selector.select(timeout=1):
                    chunk = os.read(self._out, 65536)
                    assert chunk, f"ended without {pattern!r}:\n{self.printed}"
                    self.printed += chunk.decode()
        self.printed = self.printed[match.end() :]

    def children(self) -> list[int]:
        """Every process that it started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(entry.parent.name))
        return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def save_by_rename(course: Course, source: str) -> None:
    path = course.file(ROW)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(source)
    temporary.rename(path)


@pytest.mark.full
def test_a_sitting_in_a_terminal(course: Course) -> None:
    watcher = Watcher(course, terminal=True)
    watcher.wait_for("Press Enter for the first exercise")
    watcher.type("\n")
    watcher.wait_for("Open the file, write the function, save")
    save_by_rename(course, WRONG)
    watcher.wait_for("fail, 0 of 5 points")
    watcher.type("h")
    watcher.wait_for("Hint 1 of 3")
    watcher.type("l")
    watcher.wait_for("/ find")
    watcher.type("\x1b[B")
    watcher.wait_for("local_shape: the shape")
    watcher.type("q")
    watcher.wait_for("Hint 1 of 3")
    watcher.type("v")
    watcher.wait_for("your function runs")
    watcher.wait_for("Enter goes back")
    watcher.type("\n")
    watcher.wait_for("Hint 1 of 3")
    course.file(ROW).unlink()
    watcher.wait_for("there is no such file")
    write(course, ROW, RIGHT)
    watcher.wait_for("pass, 5 of 5 points")
    watcher.wait_for("Why it is so")
    children = watcher.children()
    assert children
    watcher.type("q")
    assert watcher.process.wait(WAIT_SECONDS) == 0
    assert gone(children)


@pytest.mark.full
def test_two_watchers_of_one_course_and_two_ways_to_end(course: Course) -> None:
    watchers = [Watcher(course, "--plain", terminal=False) for _ in range(2)]
    for watcher in watchers:
        watcher.wait_for("Press Enter for the first exercise")
    save_by_rename(course, RIGHT)
    for watcher in watchers:
        watcher.wait_for("pass, 5 of 5 points")
        assert "\x1b" not in watcher.printed
    (kept,) = course.verdicts.iterdir()
    assert kept.suffix == ".json"
    interrupted, killed = watchers
    until(lambda: bool(interrupted.children() and killed.children()))
    children = interrupted.children() + killed.children()
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.process.wait(WAIT_SECONDS) == 0
    assert "Traceback" not in interrupted.printed
    killed.process.kill()
    killed.process.wait()
    until(lambda: gone(children))
