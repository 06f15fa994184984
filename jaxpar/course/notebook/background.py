"""A judge in a thread of its own, on which whoever asks it waits.

The children of a judge die with the thread that started them, and the cells of a notebook may run
in several.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack

from jaxpar.course.catalog import Exercise
from jaxpar.course.check import Judge
from jaxpar.grading.processes import Cancelled
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict

TURN_SECONDS = 0.2


class BackgroundJudge:
    """Judges one answer after another; its children end with this process."""

    def __init__(self, open_judge: Callable[[], AbstractContextManager[Judge]]) -> None:
        """Starts nothing yet."""
        opened = ExitStack()
        atexit.register(opened.close)
        self._judge = opened.enter_context(open_judge())
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judging")

    def warm(self) -> None:
        """Prepares the next judgement, without waiting for it."""
        self._thread.submit(self._judge.warm)

    def judge(self, row: Exercise, submission: Submission, seed: int | None) -> Verdict:
        """Returns the verdict on one file; Ctrl-C stops the judgement."""
        stopped = threading.Event()
        try:
            judging = self._thread.submit(self._judge_unless, stopped, row, submission, seed)
            self.warm()
            while not judging.done():  # in short turns, between which Python handles Ctrl-C
                wait([judging], TURN_SECONDS)
        except KeyboardInterrupt:
            stopped.set()
            self.cancel()
            raise
        return judging.result()

    def _judge_unless(
        self, stopped: threading.Event, row: Exercise, submission: Submission, seed: int | None
    ) -> Verdict:
        if stopped.is_set():
            raise Cancelled
        return self._judge.judge(row, submission, seed)

    def cancel(self) -> None:
        """Stops the running judgement."""
        self._judge.cancel()
