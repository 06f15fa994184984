"""One sitting of a learner, as a state machine: events in, state for the screen out.

It starts nothing and waits for nothing. `watch` passes events to `handle`, draws the screen from
this state, and has `job` judged, which says what should be judged now.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from jaxpar.contracts.base import Contract, load
from jaxpar.course.backups import reset
from jaxpar.course.catalog import BadUseError, Exercise, Lesson, exercise, lesson
from jaxpar.course.check import Verdicts
from jaxpar.course.events import Event, Job, JudgementEnded, Saved, Trouble, Typed
from jaxpar.course.folder import Course
from jaxpar.course.keyboard import END_OF_INPUT
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.prediction import parse_bytes
from jaxpar.course.progress import Standing, at_hand, next_row, progress
from jaxpar.course.solution import hints_left, next_hint
from jaxpar.course.typed_words import WORDS, TypedWords
from jaxpar.grading.submission import Submission, SubmissionError, is_stub, read_submission
from jaxpar.grading.verdict import Verdict

NO_MORE_HINTS = "there are no more hints; s shows the solution"
NO_OTHER = "there is no other exercise left to solve"
LINE_VIEWS = ("predict", "list")  # where a line is typed, and not one letter
View = Literal["lesson", "exercise", "predict", "list", "solution", "reset?", "give up?"]


@dataclass
class Session:
    """Where the learner is.

    Attributes:
        rows: every exercise and how it stands.
        current: the exercise at hand.
        view: what the screen is about.
        submission: the file as it was last read; None if it could not be read.
        problem: why it could not be read, in one line.
        verdict: the verdict on `submission`.
        best: the learner's best number before that verdict, if the exercise is a challenge.
        job: what is to be judged now.
        notice: one line about the last event.
        hints: how many hints are on the screen.
        words: what was typed so far.
        page: the page that is shown of a view that is longer than the screen.
        more: whether there is another page; whoever draws the screen sets this.
        done: whether the sitting is over.
    """

    course: Course
    verdicts: Verdicts
    record: LearnerRecord
    contract_of: Callable[[str], Contract] = load
    view: View = "exercise"
    submission: Submission | None = None
    problem: str = ""
    verdict: Verdict | None = None
    best: int | None = None
    job: Job | None = None
    notice: str = ""
    hints: int = 0
    words: TypedWords = field(default_factory=TypedWords)
    page: int = 0
    more: bool = False
    done: bool = False
    rows: list[Standing] = field(init=False)
    current: Exercise = field(init=False)
    _lessons_shown: set[str] = field(default_factory=set)
    _jobs: int = 0

    def __post_init__(self) -> None:
        """Goes to the exercise at hand."""
        self.rows = progress(self.course, self.verdicts)
        row = at_hand(self.rows, self.record)
        self._go(row.exercise)
        if not row.open:
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
            case JudgementEnded(number, verdict, problem) if self.job and number == self.job.number:
                self.job, self.page = None, 0
                self.notice = problem or self.notice
                self._take(verdict)
                self.hints = 0 if verdict and verdict.passed else self.hints
                self._refresh()
                if self.view == "exercise":
                    self._turn()
            case Typed(text):
                self._type(text)
            case Trouble(line):
                self.notice = line

    def _saved(self, exercises: tuple[Exercise, ...]) -> None:
        """Reads the current file again, or goes to the exercise of another file that was saved."""
        if self.current in exercises:
            self._read()
        elif len(exercises) == 1:
            self._go(exercises[0], lesson_first=False)
            self._refresh()

    def _go(self, row: Exercise, lesson_first: bool = True) -> None:
        """Makes another exercise the current one, and shows its lesson first if that is new."""
        self.current, self.submission, self.hints, self.words.line = row, None, 0, ""
        self.record.remember_place(row.id)
        self._read()
        fresh = all(r.status == "todo" for r in self.rows if r.exercise.lesson == row.lesson)
        known = row.lesson in self._lessons_shown or self.record.lesson_run(row.lesson)
        if lesson_first and fresh and not known:
            self._lessons_shown.add(row.lesson)
            self.view = "lesson"

    def _turn(self) -> None:
        """Shows the exercise, or asks for a prediction before it shows what a program sends."""
        found = self.verdict and self.verdict.measured
        sends = found is not None and found.quantity == "wire_bytes"
        self.view = "predict" if sends and not self.record.asked(self.current.id) else "exercise"

    def _refresh(self) -> None:
        self.rows = progress(self.course, self.verdicts)

    def _read(self) -> None:
        """Reads the current file, and judges it if it has changed."""
        try:
            submission = read_submission(self.course.file(self.current))
        except SubmissionError as error:
            self.problem = str(error)
            self.submission = self.verdict = self.job = None
            self.view = "exercise"
            return
        self.problem = ""
        if self.submission is None or submission.digest != self.submission.digest:
            self._judge(submission)

    def _judge(self, submission: Submission) -> None:
        """Takes a changed file: looks its verdict up, or wants it judged now."""
        self.submission, self.verdict, self.job = submission, None, None
        self.notice, self.page = "", 0
        if b"\r\n" in submission.source and os.linesep == "\n":
            self.notice = "the line ends of this file are CRLF; they are read as LF"
        if self.started:
            self._take(self.verdicts.get(self.current.where, submission))
            if self.verdict is None:
                self._jobs += 1
                self.job = Job(self._jobs, self.current, submission)
        self._turn()

    def _take(self, verdict: Verdict | None) -> None:
        """Takes a verdict; the learner's best before it is shown beside it, and kept up to date."""
        self.verdict, self.best = verdict, self.record.best(self.current.id)
        if verdict:
            self.notice = self.record.remember_best(verdict) or self.notice

    def _type(self, text: str) -> None:
        if text == END_OF_INPUT:
            self._quit()
            return
        word = self.words.take(text, as_line=self.view in LINE_VIEWS)
        if word is None:
            return
        self.notice = ""
        if self.view in ("reset?", "give up?"):
            self._confirm(word)
            return
        page, self.page = self.page, 0
        name = next((name for name in WORDS if word in (name, name[0])), "")
        if name:
            getattr(self, f"_{name}")()
        elif self.more and not word:
            self.page = page + 1
        elif self.view == "predict":
            self._predict(word)
        elif word:
            self._go_to(word)
        else:
            self._turn()
            self._read()

    def _predict(self, answer: str) -> None:
        try:
            prediction = parse_bytes(answer) if answer else None
        except ValueError as error:
            self.notice = str(error)
            return
        self.notice = self.record.remember_prediction(self.current.id, prediction)
        self._turn()

    def _go_to(self, word: str) -> None:
        """Goes to an exercise by its name; a single letter is a name only where lines are typed."""
        if len(word) == 1 and self.view not in LINE_VIEWS:
            self.notice = f"{word!r} means nothing here; the words are {', '.join(WORDS)}"
            return
        try:
            self._go(exercise(word))
        except BadUseError as error:
            self.notice = str(error)

    def _confirm(self, word: str) -> None:
        view = self.view
        self._turn()
        if word not in ("y", "yes"):
            self.notice = "nothing was changed"
        elif view == "reset?":
            self._put_stub_back()
        else:
            self.notice = self.record.remember_seen(self.current.id)
            self._refresh()
            self.view = "solution"

    def _hint(self) -> None:
        self._turn()
        last = not hints_left(self.record, self.contract)
        self.hints, trouble = next_hint(self.record, self.contract)
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
        left = hints_left(self.record, self.contract)
        if (self.verdict and self.verdict.passed) or self.record.seen(self.current.id):
            self.view = "solution"
        elif left:
            self.notice = f"the solution comes after passing, or after the last hint: {left} to go"
        else:
            self.view = "give up?"

    def _quit(self) -> None:
        self.done = True
