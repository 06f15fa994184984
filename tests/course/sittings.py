"""Makes happen in a sitting what a learner does: saves, keys, and the end of a judgement."""

from __future__ import annotations

from dataclasses import replace

from jaxpar.course.catalog import Exercise, exercise
from jaxpar.course.check import Verdicts
from jaxpar.course.events import JudgementEnded, Saved, Typed
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.session import Session
from tests.course.fakes import verdict, write

VALUE, PROGRAM = exercise("device_coordinates"), exercise("add_rank")


def start(course: Course) -> Session:
    return Session(course, Verdicts(course.verdicts), LearnerRecord(course.state))


def save(session: Session, row: Exercise, source: str | bytes) -> None:
    write(session.course, row, source)
    session.handle(Saved((row,)))


def type_keys(session: Session, *texts: str) -> None:
    for text in texts:
        session.handle(Typed(text))


def finish(session: Session, passes: bool, runs: bool = True) -> None:
    """Does what the judging thread does: keeps the verdict, then posts it."""
    job = session.job
    assert job
    result = verdict(job.exercise, passes)
    result = result if runs else replace(result, status="error", measured=None)
    session.verdicts.put(job.exercise.where, job.submission, result)
    session.handle(JudgementEnded(job.number, result))


def turn_to(session: Session, row: Exercise) -> None:
    """Makes an exercise the current one, by saving its file without a change."""
    session.handle(Saved((row,)))
    assert session.current == row
