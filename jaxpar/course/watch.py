"""`jaxpar` alone: judges the exercise at hand whenever its file is saved.

This file joins the parts of a sitting: it feeds events to a `session`, shows its screen, and tells
the judging thread which job the session wants.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console, RenderableType
from watchfiles import watch as watch_files

from jaxpar.course.check import Judge, Verdicts, open_judge
from jaxpar.course.command import command
from jaxpar.course.events import Event, Resized, Saved, Trouble, Typed
from jaxpar.course.folder import Course, exercise_of
from jaxpar.course.judge_thread import JudgeThread
from jaxpar.course.keyboard import Keyboard, goes_on, single_keys
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.screens import screen
from jaxpar.course.session import Session
from jaxpar.course.terminal_fit import fit_to_terminal

SETTLE_MILLISECONDS = 50
SIGNAL_SECONDS = 0.5


def watch(
    course: Course,
    console: Console,
    plain: bool = False,
    manual: bool = False,
    open_judge: Callable[[], AbstractContextManager[Judge]] = open_judge,
) -> None:
    """Runs a sitting until the learner quits, and leaves no child process behind."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    verdicts = Verdicts(course.verdicts)
    session = Session(course, verdicts, LearnerRecord(course.state), manual=manual)
    show = PlainScreen(console) if plain else RedrawnScreen(console)
    judging = JudgeThread(open_judge, verdicts, events.put)
    signals = _signals(lambda: events.put(Resized()))
    keyboard = Keyboard(lambda text: events.put(Typed(text)), single=not plain)
    with keyboard, signals, _saves(course.root, events.put):
        judging.start()
        try:
            event = None
            while not session.done:
                judging.want(session.job)  # at the start, a file that was written before
                session.more = show(session, isinstance(event, Typed))
                event = _next(events)
                session.handle(event)
                if session.wants_values:
                    session.wants_values = False
                    _show_values(session, console, keyboard)
        except KeyboardInterrupt:
            pass
        finally:
            judging.stop()
    show.close()


def _show_values(session: Session, console: Console, keyboard: Keyboard) -> None:
    """Runs the current function in this terminal, and waits until the learner has seen it."""
    console.clear()
    with keyboard.lent():
        # Ctrl-C is for the function: it reaches every process of the terminal, also this one.
        before = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            run = [sys.executable, "-m", "jaxpar.cli", "run", session.current.id]
            subprocess.run(run, cwd=session.course.root, check=False)
        finally:
            signal.signal(signal.SIGINT, before)
        if keyboard.single:
            console.print("\nEnter goes back ", style="dim", end="")
            with single_keys(wanted=True):
                goes_on()


def _next(events: queue.SimpleQueue[Event]) -> Event:
    """The next event, awaited in short turns: between two of them Python handles signals."""
    while True:
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=SIGNAL_SECONDS)


class RedrawnScreen:
    """Draws the whole screen afresh."""

    def __init__(self, console: Console) -> None:
        """Draws on `console`; what stood there can still be scrolled back to."""
        self._console = console
        console.print("\n" * console.height)

    def __call__(self, session: Session, asked: bool) -> bool:
        """Draws the screen; returns whether there is another page."""
        shown, more = fit_to_terminal(session, self._console)
        self._console.clear()
        self._console.print(shown, end="")
        return more

    def close(self) -> None:
        """Says that nothing is lost."""
        self._console.print(f"\nSaved files stay as they are. `{command()}` takes you back here.")


class PlainScreen:
    """Prints the parts that changed, as lines, and each time what can be typed."""

    def __init__(self, console: Console) -> None:
        """Prints on `console`."""
        self._console = console
        self._parts: dict[str, str] = {}

    def __call__(self, session: Session, asked: bool) -> bool:
        """Prints what differs from the last time, and answers what was typed.

        There is never another page.
        """
        shown = screen(session, plain=True)
        parts = {
            "head": self._text([*shown.head, ""]),
            "body": self._text(shown.body),
            "rest": self._text([*shown.said, "", *shown.foot]),
        }
        news = [parts[name] for name in ("head", "body") if parts[name] != self._parts.get(name)]
        if asked or parts != self._parts:
            self._parts = parts
            self._console.out(*news, parts["rest"], sep="", end="", highlight=False)
        return False

    def _text(self, part: Sequence[RenderableType]) -> str:
        """Returns a part as the terminal would wrap it; elsewhere, each line stays whole."""
        with self._console.capture() as capture:
            for renderable in part:
                self._console.print(renderable, soft_wrap=not self._console.is_terminal)
        return capture.get()

    def close(self) -> None:
        """Does nothing: the last lines stay as they are."""


@contextlib.contextmanager
def _signals(resized: Callable[[], None]) -> Iterator[None]:
    """Ends the sitting in good order on SIGTERM and SIGHUP, and reports a resized terminal."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    handlers: dict[int, Any] = {signal.SIGTERM: end}
    if sys.platform != "win32":
        handlers |= {signal.SIGHUP: end, signal.SIGWINCH: lambda number, frame: resized()}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _saves(root: Path, post: Callable[[Event], None]) -> Iterator[None]:
    """Posts the exercises whose files change, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        try:
            for changes in watch_files(
                root / "exercises", stop_event=stop, step=SETTLE_MILLISECONDS, raise_interrupt=False
            ):
                found = {exercise_of(Path(path)) for _, path in changes}
                rows = tuple(row for row in found if row)
                if rows:
                    post(Saved(rows))
        except (OSError, RuntimeError, ValueError) as error:
            post(Trouble(f"saves are no longer noticed ({error}); quit and start jaxpar again"))

    thread = threading.Thread(target=run, name="saves", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=2)
