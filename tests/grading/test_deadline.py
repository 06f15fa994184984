"""A child may be slow for two reasons, and only one of them is its own fault."""

from __future__ import annotations

import os
import time

import pytest

from jaxpar.grading.deadline import Deadline, processor_seconds


def deadline(seconds: float, *, begun: float) -> Deadline:
    """A deadline that began so many seconds ago."""
    return Deadline(seconds, started=time.monotonic() - begun)


def test_what_is_left_is_never_negative() -> None:
    assert 9 < deadline(10, begun=0).seconds_left() <= 10
    assert deadline(10, begun=11).seconds_left() == 0


@pytest.mark.parametrize(
    ("begun", "before", "used", "may"),
    [
        (11, None, 4.0, True),  # others had the processor
        (12, 4.0, 4.5, True),  # and it still computes
        (12, 4.0, 4.0, False),  # it sleeps
        (12, 4.0, 10.0, False),  # it has had all its time
        (31, 4.0, 5.0, False),  # even patience ends
        (11, None, None, False),  # the platform does not say
    ],
)
def test_one_that_was_kept_waiting_may_go_on(
    begun: float, before: float | None, used: float | None, may: bool
) -> None:
    assert deadline(10, begun=begun).may_go_on(before, used) is may


@pytest.mark.skipif(not os.path.exists("/proc"), reason="there is no /proc")
def test_the_time_of_children_counts() -> None:
    before = processor_seconds(os.getpid())
    assert before is not None
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "while :; do :; done"], {})
    try:
        until = time.monotonic() + 30
        while (processor_seconds(os.getpid()) or 0) < before + 0.2:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_process_that_is_gone_has_no_time() -> None:
    assert processor_seconds(2**22 + 1) is None
