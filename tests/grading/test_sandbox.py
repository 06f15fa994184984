"""What a confined process can and cannot do, on each level that this machine allows."""

import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.grading.sandbox import ladder, landlock
from tests.grading.confined import LEVELS, readable_python, why_not

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
        "from jaxpar.grading.sandbox import ladder\n"
        "ladder.check_readable(61184)"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    assert f"{closed} is closed to others" in done.stderr
    assert f"chmod o+x {closed}" in done.stderr


def test_all_but_one_folder(tmp_path: Path) -> None:
    for name in ("a/library/x", "a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    paths = [str(tmp_path), "/usr/lib", str(tmp_path / "a" / "library")]
    found = landlock.outside(paths, tmp_path / "a" / "library")
    assert {Path(p).name for p in found} == {"b", "file", "d", "lib"}


def test_levels_have_names() -> None:
    assert set(ladder.NAMES) == {1, 2, 3}
