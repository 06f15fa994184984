"""What a confined process can and cannot do, on each level that this machine allows."""

import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.classroom.sandbox import levels, seccomp
from jaxpar.grading import landlock
from tests.classroom.readable_python import LEVELS, readable_python, why_not

__all__ = ["readable_python"]


@pytest.mark.parametrize("level", LEVELS)
def test_the_probe_can_do_nothing_that_is_forbidden(level: int, readable_python: str) -> None:
    reason = why_not(level, readable_python)
    if reason:
        pytest.skip(reason)


def test_an_unreadable_interpreter_is_named_with_the_remedy(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    closed = next(p for p in [*reversed(closed.parents), closed] if not p.stat().st_mode & 1)
    python = tmp_path / "closed" / "python"
    python.symlink_to(sys.executable)
    ask = (
        f"import sys; sys.executable = {str(python)!r}\n"
        "from jaxpar.classroom.sandbox import levels\n"
        "levels.check_readable(61184, levels.needed_paths())"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    assert f"{closed} is closed to others" in done.stderr
    assert f"chmod o+x {closed}" in done.stderr
    assert "jaxpar doctor --grading --copy-python /opt/jaxpar" in done.stderr


def test_all_but_one_folder(tmp_path: Path) -> None:
    for name in ("a/library/x", "a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    paths = [str(tmp_path), "/usr/lib", str(tmp_path / "a" / "library")]
    (tmp_path / "a64").symlink_to("a")  # as lib64 is in a virtual environment
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "d" / "in").symlink_to(tmp_path / "a" / "library" / "x")
    (tmp_path / "in").symlink_to(tmp_path / "a" / "library" / "x")
    (tmp_path / "e").symlink_to(tmp_path / "d")
    found = landlock.outside(paths, tmp_path / "a" / "library")
    assert {Path(p).name for p in found} == {"b", "file", "d", "e", "lib"}


WAYS_ROUND = """
import fcntl, os, socket, struct, sys
from jaxpar.classroom.sandbox import seccomp
seccomp.install()
ends = os.pipe()
file = os.open(sys.argv[1], os.O_RDONLY)
judge = os.getppid()
for name, way in {
    "owner": lambda: fcntl.fcntl(ends[0], 8, judge),
    "owner, asked in another way": lambda: fcntl.fcntl(ends[0], 15, struct.pack("ii", 1, judge)),
    "signal": lambda: fcntl.fcntl(ends[0], 10, 9),
    "pair of sockets": socket.socketpair,
    "lease": lambda: fcntl.fcntl(file, 1024, fcntl.F_RDLCK),
    "lock": lambda: fcntl.flock(file, fcntl.LOCK_SH),
    "lock of a byte": lambda: fcntl.lockf(file, fcntl.LOCK_SH, 1),
}.items():
    try:
        way()
        print(name)
    except PermissionError:
        pass
os.set_blocking(ends[0], False)
print("end", fcntl.fcntl(ends[0], fcntl.F_GETFL) & os.O_NONBLOCK != 0)
"""


@pytest.mark.skipif(not seccomp.available(), reason="there is no filter for this processor")
def test_the_filter_alone_keeps_descriptors_from_signals_and_locks(tmp_path: Path) -> None:
    """Landlock confines signals only since Linux 6.12, so the filter must do so alone."""
    file = tmp_path / "file"
    file.touch()
    done = subprocess.run(
        [sys.executable, "-c", WAYS_ROUND, str(file)], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["end True"], done.stderr


def test_a_level_says_what_it_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 4)
    assert [levels.Sandbox(level).name for level in (1, 2, 3)] == list(levels.LEVEL_NAMES.values())
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert levels.Sandbox(1).name.endswith("no Landlock: answers can read jaxpar")
    assert levels.Sandbox(3).name == "not isolated"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
def test_where_memory_runs_out_the_grader_outlives_what_it_starts() -> None:
    process = levels.Sandbox(levels.NOT_ISOLATED).start(levels.PROBE)
    with process:
        assert process.stdout
        process.stdout.read()
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
