"""What other systems lack is taken away here: their modules, and a Python that is its own parent.

Nothing of this was run on macOS or Windows; the workflows in .github do that.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxpar.course.folder import Course
from tests.course.fakes import RIGHT, make_course, write
from tests.course.sittings import VALUE

ROOT = Path(__file__).parents[1]
RUN = """
import builtins, sys
POSIX = {"fcntl", "pwd", "grp", "resource", "termios", "tty"}
whole = builtins.__import__


def without(name, globals=None, *rest, **named):
    if name in POSIX and (globals or {}).get("__name__", "").startswith("jaxpar"):
        raise ImportError(f"no module {name} on this system")
    return whole(name, globals, *rest, **named)


import sysconfig, typer  # ask for sys.platform themselves

sysconfig.get_config_vars()
builtins.__import__ = without
from jaxpar.cli import main
sys.platform = "win32" if {"grade", "--grading"} & set(sys.argv) else sys.platform
main()
"""
REDIRECTOR = """#!/bin/sh
"{python}" "$@"
exit $?
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def run(course: Course, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, *arguments]
    return subprocess.run(
        command, cwd=course.root, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "arguments", [["list"], ["next"], ["hint"], ["schedule", "gpipe"], ["memory", "--help"]]
)
def test_a_learner_needs_no_module_of_posix(course: Course, arguments: list[str]) -> None:
    ended = run(course, *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["grade", "in", "--out", "out"], ["doctor", "--grading"]])
def test_grading_says_that_it_needs_linux(course: Course, arguments: list[str]) -> None:
    ended = run(course, *arguments)
    assert ended.returncode == 2
    assert "it needs Linux or WSL2" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_check_works_where_python_starts_another_python(course: Course) -> None:
    """On Windows, the Python of a virtual environment does so."""
    write(course, VALUE, RIGHT)
    redirector = course.root / "redirector"
    redirector.write_text(REDIRECTOR.format(python=sys.executable))
    redirector.chmod(0o755)
    program = (
        f"import sys\nsys.executable = {str(redirector)!r}\nfrom jaxpar.cli import main\nmain()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "check", VALUE.id, "--json"],
        cwd=course.root,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(ended.stdout)["status"] == "pass", ended.stdout


CHILD = """
import os, sys, time
from jaxpar.grading import lifetime
sys.platform = "darwin"
requests, replies = lifetime.begin_child()
replies.write(requests.read(5) + b" %d" % os.getpid())
replies.flush()
{then}
time.sleep(60)
"""


def child(then: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_elsewhere_a_child_ends_when_its_pipe_ends() -> None:
    with child() as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"hello")
        process.stdin.flush()
        assert process.stdout.read(6) == b"hello "
        assert process.poll() is None
        began = time.monotonic()
        process.stdin.close()
        assert process.wait(30) == 1
        assert time.monotonic() - began < 30


def test_elsewhere_a_child_ends_when_it_takes_too_much_memory() -> None:
    with child(
        "sys.platform = 'linux'; lifetime.watch_memory(300_000_000); x = b'1' * 400_000_000"
    ) as process:
        assert process.stdin
        process.stdin.write(b"hello")
        process.stdin.flush()
        assert process.wait(30) == 79
