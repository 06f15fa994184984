"""The thread that judges in a sitting, so that keys are answered meanwhile.

`watch` tells it which job the session wants; it posts the verdict as an event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from jaxpar.course.check import Judge, Verdicts
from jaxpar.course.events import Event, Job, JudgementEnded, Trouble
from jaxpar.grading.processes import Cancelled
from jaxpar.grading.verdict import Verdict


class JudgeThread(threading.Thread):
    """Judges the wanted job, and cancels one that is no longer wanted."""

    def __init__(
        self,
        open_judge: Callable[[], AbstractContextManager[Judge]],
        verdicts: Verdicts,
        post: Callable[[Event], None],
    ) -> None:
        """Starts nothing yet; `post` gets the verdicts as events."""
        super().__init__(name="judging", daemon=True)
        self._open, self._verdicts, self._post = open_judge, verdicts, post
        self._changed = threading.Condition()
        self._wanted: Job | None = None
        self._running: Job | None = None
        self._judge: Judge | None = None
        self._stopped = False

    def want(self, job: Job | None) -> None:
        """Sets the job to be judged now, and cancels the judgement of any other job."""
        with self._changed:
            self._wanted = job
            if self._running and self._running != job and self._judge:
                self._judge.cancel()
            self._changed.notify()

    def stop(self) -> None:
        """Cancels what runs, and waits until the children have ended."""
        with self._changed:
            self._stopped = True
        self.want(None)
        self.join(timeout=10)

    def run(self) -> None:
        """Judges until stopped; the children belong to this thread and end with it."""
        try:
            with self._open() as self._judge:
                self._judge.warm()
                while job := self._next_job():
                    self._answer(self._judge, job)
                    self._judge.warm()
        except Exception as error:
            self._post(Trouble(f"judging has stopped ({error}); quit and start jaxpar again"))

    def _next_job(self) -> Job | None:
        with self._changed:
            done, self._running = self._running, None
            self._changed.wait_for(lambda: self._stopped or (self._wanted and self._wanted != done))
            if not self._stopped:
                self._running = self._wanted
            return self._running

    def _answer(self, judge: Judge, job: Job) -> None:
        try:
            verdict = judge.judge(job.exercise, job.submission, None)
        except Cancelled:
            return
        except Exception as error:
            line = f"the judge failed ({type(error).__name__}: {error}); save the file to try again"
            self._post(JudgementEnded(job.number, None, line))
            return
        self._post(JudgementEnded(job.number, verdict, self._remember(job, verdict)))

    def _remember(self, job: Job, verdict: Verdict) -> str:
        try:
            self._verdicts.put(job.exercise.where, job.submission, verdict)
        except OSError as error:
            return f"the verdict could not be saved ({error.strerror}); it counts until you quit"
        return ""
