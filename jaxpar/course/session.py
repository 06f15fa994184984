"""One sitting of a learner, as a state machine: events in, state for the screen out.

It starts nothing and waits for nothing. `watch` passes events to `handle`, draws the screen from
this state, and has `job` judged, which says what should be judged now.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from jaxpar.contracts.base import Contract, load
from jaxpar.course.backups import reset
from jaxpar.course.catalog import BadUseError, Exercise, Lesson, exercise, lesson
from jaxpar.course.check import Verdicts
from jaxpar.course.events import Event, Job, JudgementEnded, Saved, Trouble, Typed
from jaxpar.course.exercise_list import ExerciseList
from jaxpar.course.folder import Course
from jaxpar.course.keyboard import DOWN, END_OF_INPUT, ENTER, ESCAPE, PAGE_DOWN, PAGE_UP, UP
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.prediction import parse_bytes
from jaxpar.course.progress import Standing, at_hand, in_numbers, next_row, progress
from jaxpar.course.solution import hints_left, next_hint
from jaxpar.course.typed_words import WORDS, TypedWords
from jaxpar.grading.submission import Submission, SubmissionError, is_stub, read_submission
from jaxpar.grading.verdict import Verdict

NO_MORE_HINTS = "there are no more hints; s shows the solution"
NO_OTHER = "there is no other exercise left to solve"
QUESTIONS = ("reset?", "give up?")
TURNS = {DOWN: 1, PAGE_DOWN: 1, UP: -1, PAGE_UP: -1}
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
        manual: whether a saved file is judged only when Enter is typed.
        job: what is to be judged now.
        waiting: the exercises that are to be judged after that.
        listing: what the list shows, and where its cursor is.
        to_reset: the exercise whose stub is to be put back, once the learner agrees.
        wants_values: whether the current function is to be run in this terminal.
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
    manual: bool = False
    view: View = "exercise"
    submission: Submission | None = None
    problem: str = ""
    verdict: Verdict | None = None
    best: int | None = None
    job: Job | None = None
    waiting: list[Exercise] = field(default_factory=list)
    wants_values: bool = False
    notice: str = ""
    hints: int = 0
    words: TypedWords = field(default_factory=TypedWords)
    page: int = 0
    more: bool = False
    done: bool = False
    rows: list[Standing] = field(init=False)
    current: Exercise = field(init=False)
    to_reset: Exercise = field(init=False)
    listing: ExerciseList = field(init=False)
    _lessons_shown: set[str] = field(default_factory=set)
    _jobs: int = 0
    _checking: bool = False  # until the last of the waiting files is judged
    _from_list: bool = False  # where the question about a reset was asked

    def __post_init__(self) -> None:
        """Goes to the exercise at hand."""
        self.rows = progress(self.course, self.verdicts)
        row = at_hand(self.rows, self.record)
        self.listing, self.to_reset = ExerciseList(self.rows, row.exercise), row.exercise
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
                judged, self.job = self.job.exercise, None
                self.notice = problem or self.notice
                if judged == self.current:
                    self._judged(verdict)
                elif verdict:
                    self.record.remember_best(verdict)
                self._refresh()
                self._judge_waiting()
            case Typed(text):
                self._type(text)
            case Trouble(line):
                self.notice = line

    def _judged(self, verdict: Verdict | None) -> None:
        """Takes the verdict on the current file."""
        self.page = 0
        self._take(verdict)
        self.hints = 0 if verdict and verdict.passed else self.hints
        if self.view == "exercise":
            self._turn()

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
        self.rows = self.listing.rows = progress(self.course, self.verdicts)

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
        if self.job and self.job.exercise != self.current:
            self.waiting.insert(0, self.job.exercise)
        self.submission, self.verdict, self.job = submission, None, None
        self.notice, self.page = "", 0
        if b"\r\n" in submission.source and os.linesep == "\n":
            self.notice = "the line ends of this file are CRLF; they are read as LF"
        if self.started:
            self._take(self.verdicts.get(self.current.where, submission))
            if self.verdict is None and not self.manual:
                self._want(self.current, submission)
        self._turn()
        self._judge_waiting()

    def _want(self, row: Exercise, submission: Submission) -> None:
        self._jobs += 1
        self.job = Job(self._jobs, row, submission)

    def _judge_waiting(self) -> None:
        """Wants the next of the waiting files judged, unless a judgement goes on."""
        while self.waiting and not self.job:
            row = self.waiting.pop(0)
            with contextlib.suppress(SubmissionError):
                self._want(row, read_submission(self.course.file(row)))
        if self._checking and not self.job:
            self._checking, self.notice = False, in_numbers(self.rows)

    def _take(self, verdict: Verdict | None) -> None:
        """Takes a verdict; the learner's best before it is shown beside it, and kept up to date."""
        self.verdict, self.best = verdict, self.record.best(self.current.id)
        if verdict:
            self.notice = self.record.remember_best(verdict) or self.notice

    def _type(self, text: str) -> None:
        if text == END_OF_INPUT:
            self._quit()
        if self.done or self.words.continues(text):
            return
        if self.view == "list" and self.listing.searching:
            for key in text:  # there are several if they arrived in one piece
                self._type_in_list(key)
            return
        if self.view == "list" and (text == ENTER or not text.endswith(ENTER)):
            self._type_in_list(text)
            return
        if text == ESCAPE or text in TURNS:
            self._turn_page(text)
            return
        letter = len(text) == 1 and text.isalpha() and not self.words.line
        word = self.words.take(text, as_line=self.view == "predict" and not letter)
        if word is None:
            return
        self.notice = ""
        if self.view in QUESTIONS:
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
            self._enter()

    def _type_in_list(self, key: str) -> None:
        self.notice = ""
        wish = self.listing.type(key)
        if wish == "leave" or (wish == "open" and self.listing.place == self.current):
            self._enter()
        elif wish == "open":
            self._go(self.listing.place)
        elif wish == "reset":
            self._reset(self.listing.place, from_list=True)

    def _turn_page(self, key: str) -> None:
        """Turns a page, or leaves the view with Escape; nothing else is lost by it."""
        if key == ESCAPE:
            self.words.line = ""
            if self.view != "lesson":
                self._turn()
        elif TURNS[key] < 0 or self.more:
            self.page = max(0, self.page + TURNS[key])

    def _enter(self) -> None:
        """Goes on to the exercise, and has its file judged if that was put off."""
        self._turn()
        self._read()
        if self.manual and self.started and self.submission and not (self.verdict or self.job):
            self._want(self.current, self.submission)

    def _predict(self, answer: str) -> None:
        try:
            prediction = parse_bytes(answer) if answer else None
        except ValueError as error:
            self.notice = str(error)
            return
        self.notice = self.record.remember_prediction(self.current.id, prediction)
        self._turn()

    def _go_to(self, word: str) -> None:
        """Goes to an exercise by its name, of which a single letter is none."""
        if len(word) == 1:
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
        if view == "reset?" and self._from_list:
            self.view = "list"

    def _hint(self) -> None:
        self._turn()
        last = not hints_left(self.record, self.contract)
        self.hints, trouble = next_hint(self.record, self.contract)
        self.notice = trouble or (NO_MORE_HINTS if last else "")

    def _list(self) -> None:
        self._refresh()
        self.view, self.listing = "list", ExerciseList(self.rows, self.current)

    def _values(self) -> None:
        self._turn()
        self.wants_values = True

    def _check(self) -> None:
        """Has every file judged that was never judged as it is."""
        self._list()
        judged_now = self.job and self.job.exercise
        changed = [row.exercise for row in self.rows if row.status == "changed"]
        self.waiting = [row for row in changed if row != judged_now]
        self._checking = True
        self._judge_waiting()

    def _next(self) -> None:
        if self.view == "lesson":  # its exercise is the next one
            self._enter()
            return
        self._refresh()
        position = [row.exercise for row in self.rows].index(self.current)
        row = next_row(self.rows[position + 1 :] + self.rows[:position])
        if row:
            self._go(row.exercise)
        else:
            self.notice = NO_OTHER

    def _reset(self, row: Exercise | None = None, from_list: bool = False) -> None:
        """Asks whether to put a stub back: that of the current exercise, if none is named."""
        self.view, self.to_reset, self._from_list = "reset?", row or self.current, from_list

    def _put_stub_back(self) -> None:
        try:
            backup = reset(self.course, self.to_reset)
        except BadUseError as error:
            self.notice = str(error)
            return
        if self.to_reset == self.current:
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
