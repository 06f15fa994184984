"""A watchdog: where no step is completed in time, a process says where it stands, and ends."""

import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from jaxpar.train.launch import HUNG

LEAST_SECONDS, TIMES_MEDIAN = 60, 10  # the limit, where none is given
REMEMBERED = 100  # steps, for the median
FRAMES_SHOWN = 8
SECONDS_TO_REPORT = 2
"""The others get so long to say where they stand. Who waits stays three times as long, so that who
is stuck ends first, and a launcher names it."""


class Watchdog:
    """Ends the process with 75 when no step is completed for too many seconds.

    It begins with the first completed step. It counts the seconds in which it runs itself, so that
    a machine that sleeps, and a process that is stopped and goes on, are not taken for stuck.

    Attributes:
        limit: so many seconds may pass without a completed step.
    """

    def __init__(self, process: str, limit: int | None = None) -> None:
        """`process` is how messages name this one; without a limit, steps choose it."""
        self.limit: float = limit or LEAST_SECONDS
        self._chosen = limit is None
        self._process = process
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self._steps, self._seen = 0, 0
        self._idle_seconds = 0
        self._paused = False
        self._closed = threading.Event()
        self._main = threading.get_ident()
        threading.Thread(target=self._watch, daemon=True).start()

    def completed(self, seconds: float) -> None:
        """Tells of a completed step, and how long it took."""
        self._recent.append(seconds)
        if self._chosen:
            self.limit = max(LEAST_SECONDS, TIMES_MEDIAN * statistics.median(self._recent))
        self._steps += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Lets something take as long as it needs, such as saving."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def tick(self) -> bool:
        """Counts a second, and returns whether it was one too many."""
        moves = self._steps != self._seen or self._paused or not self._steps
        self._seen = self._steps
        self._idle_seconds = 0 if moves else self._idle_seconds + 1
        return self._idle_seconds >= self.limit

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(1):
            if self.tick():
                self._end()

    def _end(self) -> None:
        frames = _frames(sys._current_frames()[self._main])
        waits = _is_of_jax(frames[-1])
        # Written without the locks of sys.stderr, which the stuck thread may hold.
        os.write(2, "\n".join(_report(self._process, self._idle_seconds, frames)).encode() + b"\n")
        time.sleep(SECONDS_TO_REPORT * (3 if waits else 1))
        os._exit(HUNG)


def _report(process: str, seconds: int, frames: list[FrameType]) -> list[str]:
    """What to print about a process: whether it is stuck or waits, and the lines where it stands.

    Source files are not opened, since a stuck file system may be what is wrong.
    """
    stands = (
        "it waits in JAX, as one does for others; look for a process that stands elsewhere, or "
        "says nothing"
        if _is_of_jax(frames[-1])
        else "it stands outside of JAX, so if others wait, they wait for it; look at these lines"
    )
    lines = [
        f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        for frame in frames
    ]
    return [
        f"train: {process} has completed no step for {seconds} s, and --watchdog allows no more; "
        f"{stands}:",
        *lines,
    ]


def _frames(innermost: FrameType) -> list[FrameType]:
    """The frames of a thread from the loop of steps on, at most so many, innermost last."""
    frames, frame = [innermost], innermost.f_back
    while frame and len(frames) < FRAMES_SHOWN and not _is_of(frames[-1], "jaxpar.train.screen"):
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _is_of_jax(frame: FrameType) -> bool:
    return _is_of(frame, "jax") or _is_of(frame, "jaxlib")


def _is_of(frame: FrameType, module: str) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name == module or name.startswith(f"{module}.")
