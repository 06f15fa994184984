"""The watchdog: when a process counts as stuck, what it says, and how it ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxpar.train.watchdog import Watchdog

ROOT = Path(__file__).parents[2]


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    """A watchdog with a limit of 3 seconds, which the test itself counts."""
    made = Watchdog("process 0 of 1", 3)
    made.close()
    yield made


def test_seconds_without_a_step_are_counted_from_the_first_step_on(watchdog: Watchdog) -> None:
    assert not any(watchdog.tick() for _ in range(100))
    watchdog.completed(0.1)
    assert [watchdog.tick() for _ in range(4)] == [False, False, False, True]


def test_a_step_begins_the_count_anew(watchdog: Watchdog) -> None:
    for _ in range(10):
        watchdog.completed(0.1)
        assert not any(watchdog.tick() for _ in range(3))


def test_what_is_paused_may_take_as_long_as_it_needs(watchdog: Watchdog) -> None:
    watchdog.completed(0.1)
    with watchdog.paused():
        assert not any(watchdog.tick() for _ in range(100))
    assert [watchdog.tick() for _ in range(3)] == [False, False, True]


def test_unless_given_the_limit_is_ten_medians_and_a_minute_at_least() -> None:
    made = Watchdog("process 0 of 1")
    made.close()
    limits = []
    for seconds in (0.1, 8.0, 90.0, 10.0):
        made.completed(seconds)
        limits.append(made.limit)
    assert limits == [60, 60, 80, 90]
    for _ in range(200):
        made.completed(0.1)
    assert made.limit == 60


def ended(stuck: str) -> tuple[int, list[str]]:
    """The exit code and the errors of a process whose watchdog lets it stand for a second."""
    code = (
        "import time\n"
        "from jaxpar.train.watchdog import Watchdog\n"
        "watchdog = Watchdog('process 1 of 2', 1)\n"
        "watchdog.completed(0.1)\n"
        f"def stuck():\n    {stuck}\n"
        "stuck()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60
    )
    return process.returncode, process.stderr.splitlines()


def test_a_stuck_process_says_where_it_stands_and_ends_with_75() -> None:
    code, lines = ended("time.sleep(50)")
    assert code == 75
    assert lines == [
        "train: process 1 of 2 has completed no step for 1 s, and --watchdog allows no more; it "
        "stands outside of JAX, so if others wait, they wait for it; look at these lines:",
        "  <string>:7 in <module>",
        "  <string>:6 in stuck",
    ]


def test_a_process_that_waits_in_jax_is_told_from_one_that_is_stuck() -> None:
    code, lines = ended("globals().update(__name__='jax.waits'); time.sleep(50)")
    assert code == 75
    assert "no more; it waits in JAX, as one does for others; look for a process" in lines[0]


def test_who_ends_in_time_is_left_alone() -> None:
    assert ended("watchdog.close(); time.sleep(3)") == (0, [])
