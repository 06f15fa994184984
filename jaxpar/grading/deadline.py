"""How long a child may take: some seconds, and more where a busy machine keeps it waiting."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

PAUSE_SECONDS = 1.0
LEAST_PROGRESS_SECONDS = 0.05
MOST_TIMES = 3


@dataclass(frozen=True)
class Deadline:
    """Some seconds from now on the wall clock.

    A child that still computes then, and has had less processor time than these seconds, was kept
    waiting by others: it may go on, for at most three times as long. One that sleeps may not.
    """

    seconds: float
    started: float = field(default_factory=time.monotonic)

    def seconds_left(self) -> float:
        """Until then, 0 if it has passed."""
        return max(0.0, self.started + self.seconds - time.monotonic())

    def may_go_on(self, before: float | None, used: float | None) -> bool:
        """Whether a child may go on although the time has passed.

        Args:
            before: the processor time that it had used a pause earlier; None at the first time.
            used: the processor time that it has used by now; None if the platform does not say.
        """
        if used is None or used >= self.seconds:
            return False
        progress = before is None or used - before >= LEAST_PROGRESS_SECONDS
        return progress and time.monotonic() < self.started + MOST_TIMES * self.seconds


def processor_seconds(pid: int) -> float | None:
    """The processor time of a process and of all below it; None where there is no /proc."""
    place = Path(f"/proc/{pid}")
    try:
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        lists = [path.read_text() for path in place.glob("task/*/children")]
    except OSError:
        return None
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # proc(5): utime to cstime
    below = (processor_seconds(int(child)) for text in lists for child in text.split())
    return own + sum(seconds or 0.0 for seconds in below)
