"""One sitting of a learner, as a state machine: events in, state for the screen out.

It starts nothing and waits for nothing: `job` says what should be judged now, and whoever runs
the session sees to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from jaxpar.contracts.base import Contract, load
from jaxpar.course.backups import reset
from jaxpar.course.catalog import BadUseError, Exercise, Lesson, lesson
from jaxpar.course.checking import Verdicts
from jaxpar.course.events import Event, Job, Judged, Saved, Trouble, Typed
from jaxpar.course.folder import Course
from jaxpar.course.memory import Memory
from jaxpar.course.prediction import parse_bytes
from jaxpar.course.progress import Row, is_stub, next_row, parsed, progress
from jaxpar.course.solution import hints_left, next_hint
from jaxpar.grading.submission import Submission, SubmissionError, read_submission
from jaxpar.grading.verdict import Verdict

NO_MORE_HINTS = "there are no more hints; s shows the solution"
NO_OTHER = "there is no other exercise left to solve"
WORDS = ("hint", "list", "next", "reset", "solution", "quit")
View = Literal["lesson", "exercise", "predict", "list", "solution", "reset?", "give up?"]


@dataclass
class Session:
    """Where the learner is.

    Attributes:
        rows: every exercise and how it stands.
        current: the exercise at hand.
        view: what the screen is about.
        submission: the file as it was last read, if it could be.
        problem: why it could not, in one line.
        verdict: the verdict on `submission`.
        job: what is to be judged now.
        notice: one line about the last event.
        hints: how many hints are on the screen.
        typed: the prediction as far as it was typed.
        done: whether the sitting is over.
    """

    course: Course
    verdicts: Verdicts
    memory: Memory
    contract_of: Callable[[str], Contract] = load
    view: View = "exercise"
    submission: Submission | None = None
    problem: str = ""
    verdict: Verdict | None = None
    job: Job | None = None
    notice: str = ""
    hints: int = 0
    typed: str = ""
    done: bool = False
    rows: list[Row] = field(init=False)
    current: Exercise = field(init=False)
    _lessons_shown: set[str] = field(default_factory=set)
    _jobs: int = 0
    _rest_of_word: str = ""

    def __post_init__(self) -> None:
        """Goes to the first exercise that is open."""
        self.rows = progress(self.course, self.verdicts)
        row = next_row(self.rows)
        self._go(row.exercise if row else self.rows[0].exercise)
        if row is None:
            self.notice = NO_OTHER

    @property
    def lesson(self) -> Lesson:
        """The lesson of the exercise at hand."""
        return lesson(self.current.lesson)

    @property
    def contract(self) -> Contract:
        """The contract of the exercise at hand."""
        return self.contract_of(self.current.where)

    @property
    def started(self) -> bool:
        """Whether the file holds more than the stub."""
        return self.submission is not None and not is_stub(self.submission, self.current.id)

    def handle(self, event: Event) -> None:
        """Takes one event."""
        match event:
            case Saved(exercises):
                self._saved(exercises)
            case Judged(number, verdict, problem) if self.job and number == self.job.number:
                self.job = None
                self.verdict, self.notice = verdict, problem or self.notice
                self.hints = 0 if verdict and verdict.passed else self.hints
                self._refresh()
            case Typed(text):
                self._type(text)
            case Trouble(line):
                self.notice = line

    def _saved(self, exercises: tuple[Exercise, ...]) -> None:
        """Judges the current file again, or turns to the one other file that was saved."""
        if self.current in exercises:
            self._read()
        elif len(exercises) == 1 and self.view != "predict":
            self._go(exercises[0], lesson_first=False)
            self._refresh()

    def _go(self, row: Exercise, lesson_first: bool = True) -> None:
        """Makes another exercise the current one."""
        self.current, self.submission, self.hints, self.typed = row, None, 0, ""
        self.view = "exercise"
        self._read()
        fresh = all(r.status == "todo" for r in self.rows if r.exercise.lesson == row.lesson)
        known = row.lesson in self._lessons_shown or self.memory.lesson_run(row.lesson)
        if lesson_first and fresh and not known:
            self._lessons_shown.add(row.lesson)
            self.view = "lesson"

    def _refresh(self) -> None:
        self.rows = progress(self.course, self.verdicts)

    def _read(self) -> None:
        """Reads the current file; what is new in it is judged."""
        try:
            submission = read_submission(self.course.file(self.current))
        except SubmissionError as error:
            self.problem = str(error)
            self.submission = self.verdict = self.job = None
            self.view = "exercise"
            return
        self.problem = ""
        if self.submission and submission.digest == self.submission.digest:
            return
        self.submission, self.verdict, self.job = submission, None, None
        self.view, self.notice = "exercise", ""
        if b"\r\n" in submission.source and os.linesep == "\n":
            self.notice = "the line ends of this file are CRLF; they are read as LF"
        if not self.started:
            return
        self.verdict = self.verdicts.get(self.current.where, submission)
        if self.verdict:
            return
        asks = self.contract.communication and not self.memory.asked(self.current.id)
        if asks and parsed(submission.text):  # a syntax error is said at once
            self.view = "predict"
        else:
            self._judge()

    def _judge(self) -> None:
        assert self.submission is not None
        self._jobs += 1
        self.job = Job(self._jobs, self.current, self.submission)

    def _type(self, text: str) -> None:
        text = text.lower()
        notice, self.notice = self.notice, ""
        if self.view == "predict":
            self._predict(text)
        elif len(text) > 1:
            self._rest_of_word = ""
            self._command(text.strip())
        elif self._rest_of_word and text == self._rest_of_word[0]:
            self._rest_of_word = self._rest_of_word[1:]  # a word that is typed out: no new key
            self.notice = notice
        else:
            word = next((word for word in WORDS if word[0] == text), "")
            self._rest_of_word = f"{word[1:]}\n" if word else ""
            self._command(text.strip())

    def _predict(self, text: str) -> None:
        """Edits the prediction; Enter ends it."""
        if text in ("\x7f", "\b"):
            self.typed = self.typed[:-1]
            return
        self.typed += text
        if not self.typed.endswith("\n"):
            return
        answer, self.typed = self.typed.strip(), ""
        if answer in ("q", "quit"):
            self.done = True
            return
        if answer in ("h", "hint"):
            self._hint()
            return
        try:
            prediction = parse_bytes(answer) if answer else None
        except ValueError as error:
            self.notice = str(error)
            return
        self.notice = self.memory.remember_prediction(self.current.id, prediction)
        self.view = "exercise"
        self._judge()

    def _command(self, word: str) -> None:
        if self.view in ("reset?", "give up?"):
            self._confirm(word)
            return
        name = next((name for name in WORDS if word in (name, name[0])), "")
        if name:
            getattr(self, f"_{name}")()
        elif word:
            self.notice = f"{word!r} means nothing here; the words are {', '.join(WORDS)}"
        else:
            self.view = "exercise"
            self._read()

    def _confirm(self, word: str) -> None:
        view, self.view = self.view, "exercise"
        if word not in ("y", "yes"):
            self.notice = "nothing was changed"
        elif view == "reset?":
            self._put_stub_back()
        else:
            self.notice = self.memory.remember_seen(self.current.id)
            self._refresh()
            self.view = "solution"

    def _hint(self) -> None:
        self.view = "predict" if self.view == "predict" else "exercise"
        last = not hints_left(self.memory, self.contract)
        self.hints, trouble = next_hint(self.memory, self.contract)
        self.notice = trouble or (NO_MORE_HINTS if last else "")

    def _list(self) -> None:
        self._refresh()
        self.view = "list"

    def _next(self) -> None:
        self._refresh()
        position = [row.exercise for row in self.rows].index(self.current)
        row = next_row(self.rows[position + 1 :] + self.rows[:position])
        if row:
            self._go(row.exercise)
        else:
            self.notice = NO_OTHER

    def _reset(self) -> None:
        self.view = "reset?"

    def _put_stub_back(self) -> None:
        try:
            backup = reset(self.course, self.current)
        except BadUseError as error:
            self.notice = str(error)
            return
        self.hints = 0
        self._read()
        self._refresh()
        kept = f"; your file is kept as {backup}" if backup else ""
        self.notice = f"the stub is back{kept}"

    def _solution(self) -> None:
        left = hints_left(self.memory, self.contract)
        if (self.verdict and self.verdict.passed) or self.memory.seen(self.current.id):
            self.view = "solution"
        elif left:
            self.notice = f"the solution comes after passing, or after the last hint: {left} to go"
        else:
            self.view = "give up?"

    def _quit(self) -> None:
        self.done = True
