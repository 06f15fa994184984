"""What happens in a sitting: saves, keys, and the end of a judgement."""

from __future__ import annotations

from dataclasses import replace

from jaxpar.course.catalog import Exercise, exercise
from jaxpar.course.checking import Verdicts
from jaxpar.course.events import Judged, Saved, Typed
from jaxpar.course.folder import Course
from jaxpar.course.memory import Memory
from jaxpar.course.session import Session
from tests.course.fakes import verdict, write

VALUE, PROGRAM = exercise("device_coordinates"), exercise("add_rank")


def start(course: Course) -> Session:
    return Session(course, Verdicts(course.verdicts), Memory(course.state))


def save(session: Session, row: Exercise, source: str | bytes) -> None:
    write(session.course, row, source)
    session.handle(Saved((row,)))


def type_keys(session: Session, *texts: str) -> None:
    for text in texts:
        session.handle(Typed(text))


def finish(session: Session, passes: bool, runs: bool = True) -> None:
    """What the judging thread does: keeps the verdict, then posts it."""
    job = session.job
    assert job
    result = verdict(job.exercise, passes)
    result = result if runs else replace(result, status="error", sent=None)
    session.verdicts.put(job.exercise.where, job.submission, result)
    session.handle(Judged(job.number, result))


def turn_to(session: Session, row: Exercise) -> None:
    """Makes an exercise the current one by a save that changes nothing."""
    session.handle(Saved((row,)))
    assert session.current == row
