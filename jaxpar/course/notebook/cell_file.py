"""The file of an exercise, as a cell of a notebook writes it; what others wrote there is kept."""

from __future__ import annotations

import json
from pathlib import Path

from jaxpar.course.backups import back_up
from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.command import command
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.files import write_atomically
from jaxpar.grading.notebook_cells import ExerciseCell, exercise_cells
from jaxpar.grading.submission import Submission, SubmissionError, checked, is_stub


def answer_of(cell: str) -> ExerciseCell | None:
    """The answer in a cell, exactly as grading would take it from the saved notebook."""
    notebook = {"cells": [{"cell_type": "code", "source": cell}]}
    return next(exercise_cells(json.dumps(notebook).encode()), None)


def write_answer(course: Course, row: Exercise, source: str, record: LearnerRecord) -> list[str]:
    """Writes the source of a cell into the exercise's file; returns what there is to say of it.

    What a cell wrote there before is replaced. Whatever else the file held is copied first, and a
    cell that is still the stub replaces no answer.

    Raises:
        BadUseError: the cell holds nothing to judge, or could not be written; the file is as it
            was.
    """
    path = course.file(row)
    submission = _checked(row, Submission(path, source.encode(errors="surrogatepass")))
    before = Submission(path, _read(path))
    if before.source == submission.source:
        return []
    holds_answer = bool(before.source.strip()) and not is_stub(before, row.id)
    if holds_answer and is_stub(submission, row.id):
        raise BadUseError(
            f"exercise: {row.file} holds an answer, and this cell is still the stub, so the file "
            f"is as it was; copy your answer here, or run `{command()} reset {row.id}` first"
        )
    notes = []
    if holds_answer and before.digest != record.cell(row.id):
        backup = back_up(course, path.name, before.source, "exercise")
        notes.append(f"What was in {row.file} before is kept as {backup.relative_to(course.root)}.")
    try:
        write_atomically(path, submission.source, public=True)
    except OSError as error:
        raise BadUseError(
            f"exercise: cannot write {path} ({error.strerror}); it is as it was"
        ) from None
    return [*notes, record.remember_cell(row.id, submission.digest)]


def _checked(row: Exercise, submission: Submission) -> Submission:
    lines = map(bytes.strip, submission.source.splitlines())
    if all(line.startswith(b"#") for line in lines if line):
        raise BadUseError(
            f"exercise: there is no code in the cell; write the function {row.id} below its "
            "first line"
        )
    try:
        return checked(submission)
    except SubmissionError as error:
        raise BadUseError(f"exercise: {error}") from None


def _read(path: Path) -> bytes:
    """What is in the file; nothing if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise BadUseError(
            f"exercise: cannot read {path} ({error.strerror}); it is as it was"
        ) from None
