"""What students handed in: of all files only those with an answer are read, each once.

This is the first step of grading a class, and what it reads goes to the grader. No link is
followed, no pipe is waited for, and nothing is imported or run. An answer is a file with the name
of its exercise, or a cell of a notebook that begins with `%%exercise`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from jaxpar.classroom.handin_entries import Entry, FolderPlace, Place, Unseen, walk
from jaxpar.grading.notebook_cells import exercise_cells
from jaxpar.grading.submission import (
    MAX_SOURCE_BYTES,
    Submission,
    SubmissionError,
    UnreadableError,
    checked,
)

MOST_LISTED = 100
MOST_FOUND = 8  # places in which the answer to one exercise is looked at
MOST_NAMED = 3
NOTEBOOK = ".ipynb"
MOST_NOTEBOOK_BYTES = 8_000_000
MOST_NOTEBOOKS = 20
MISSING = "not handed in"
LATE = "handed in late"
NO_FOLDER = "the student has no folder"
# What browsers, file managers and people add to the name of a file.
_ADDED = r"(?:[ ._-]*(?:\(\d+\)|\d{1,3}|copy|final|fixed|new|v\d+))*(?:\.(?:py|txt|ipynb))+"
# How a stub ends: nothing stands between its docstring and this. No text of a student is parsed.
_STUB_END = re.compile(
    rb'"""\n    raise NotImplementedError\((?:"[^"\n]*"|\n        "[^"\n]*"\n    )\)\s*\Z'
)


@dataclass(frozen=True)
class Work:
    """All that one student handed in, not yet read.

    Attributes:
        student: the name by which results know the student.
        places: where it is.
        late: whether the system from which it was downloaded calls it late.
    """

    student: str
    places: tuple[Place, ...]
    late: bool = False


@dataclass
class Handin:
    """One student's work, as it was when it was read.

    Attributes:
        student: the name by which results know the student.
        files: the file to judge, by its exercise.
        refused: the reason why there is no file to judge, by exercise.
        unreadable: what this machine could not read, by exercise.
        ignored: the paths of all other files.
        notes: what a person should know of it.
    """

    student: str
    files: dict[str, Submission] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def work_in(folder: Path) -> Work:
    """Returns the work of a student who has a folder."""
    return Work(folder.name, (FolderPlace(folder),))


def read_handin(work: Work, exercises: Collection[str]) -> Handin:
    """Reads the answers to these exercises, and notes why one cannot be judged."""
    return _Reading(work, exercises).handin()


@dataclass(frozen=True)
class _Found:
    """An answer, or why the file that should hold it cannot be judged."""

    where: str
    answer: Submission | SubmissionError


class _Reading:
    """Looks through the work of one student."""

    def __init__(self, work: Work, exercises: Collection[str]) -> None:
        self._work = work
        self._found: dict[str, list[_Found]] = {name: [] for name in exercises}
        self._similar: dict[str, str] = {}
        self._ignored: list[str] = []
        self._unseen: list[Unseen] = []
        self._notebooks = 0

    def handin(self) -> Handin:
        """Returns what was found."""
        for place in self._work.places:
            for entry in walk(place):
                self._look_at(entry)
        handin = Handin(self._work.student, ignored=self._ignored)
        for exercise, found in self._found.items():
            answer = _the_answer(found) if found else self._why_missing(exercise)
            if isinstance(answer, Submission):
                handin.files[exercise] = answer
            elif isinstance(answer, UnreadableError):
                handin.unreadable[exercise] = str(answer)
            else:
                handin.refused[exercise] = str(answer)
        if self._work.late:
            handin.notes.append(LATE)
        return handin

    def _look_at(self, entry: Entry | Unseen) -> None:
        if isinstance(entry, Unseen):
            if not entry.expected:
                self._unseen.append(entry)
            if entry.path and entry.path not in self._ignored:
                self._ignore(entry.path)
            return
        name = entry.path.name
        if name.removesuffix(".py") in self._found and name.endswith(".py"):
            self._add(name.removesuffix(".py"), _read(entry))
        elif name.endswith(NOTEBOOK) and not entry.is_folder:
            self._look_into_notebook(entry)
        elif not entry.is_folder:
            self._note_similar(entry.path)
            self._ignore(str(entry.path))

    def _look_into_notebook(self, entry: Entry) -> None:
        self._notebooks += 1
        try:
            if self._notebooks > MOST_NOTEBOOKS:
                raise SubmissionError(f"more than {MOST_NOTEBOOKS} notebooks")
            cells = list(exercise_cells(entry.read(MOST_NOTEBOOK_BYTES)))
        except ValueError as error:
            by_machine = isinstance(error, UnreadableError)
            self._look_at(Unseen(str(entry.path), str(error), by_machine=by_machine))
            return
        answers = [cell for cell in cells if cell.exercise in self._found]
        for cell in answers:
            where = f"{entry.path}, cell {cell.number}"
            source = cell.source.encode(errors="surrogatepass")
            self._add(cell.exercise, _Found(where, _checked(f"{cell.exercise}.py", source)))
        if not answers:
            self._note_similar(entry.path)
            self._ignore(str(entry.path))

    def _add(self, exercise: str, found: _Found) -> None:
        if len(self._found[exercise]) < MOST_FOUND:
            self._found[exercise].append(found)

    def _note_similar(self, path: PurePosixPath) -> None:
        """Remembers a file whose name differs from an exercise's only by what is often added."""
        for exercise in self._found:
            if re.fullmatch(re.escape(exercise) + _ADDED, path.name, re.IGNORECASE):
                self._similar.setdefault(exercise, str(path))

    def _ignore(self, path: str) -> None:
        if len(self._ignored) < MOST_LISTED:
            self._ignored.append(path)

    def _why_missing(self, exercise: str) -> SubmissionError:
        """Returns why there is no answer: somewhere nobody could look, or it is not there."""
        by_machine = [unseen for unseen in self._unseen if unseen.by_machine]
        if by_machine:
            return UnreadableError(_places(by_machine))
        if exercise in self._similar:
            name = self._similar[exercise]
            return SubmissionError(f"{MISSING} by its name, but there is {name}")
        if self._unseen:
            return SubmissionError(f"{MISSING}; not looked into: {_places(self._unseen)}")
        return SubmissionError(MISSING if self._work.places else NO_FOLDER)


def _read(entry: Entry) -> _Found:
    name = entry.path.name
    try:
        return _Found(str(entry.path), _checked(name, entry.read(MAX_SOURCE_BYTES)))
    except SubmissionError as error:
        return _Found(str(entry.path), error)


def _checked(name: str, source: bytes) -> Submission | SubmissionError:
    try:
        return checked(Submission(Path(name), source))
    except SubmissionError as error:
        return error


def _the_answer(found: list[_Found]) -> Submission | SubmissionError:
    """Returns the answer if there is one alone, or if all are the same.

    Stubs are none where something is written elsewhere: in the notebook of a lesson, say, whose
    exercises were solved in files.
    """
    first, *others = [one for one in found if not _is_stub(one)] or found
    different = next((one for one in others if _bytes(one) != _bytes(first)), None)
    if different is not None:
        return SubmissionError(f"handed in twice: {first.where} and {different.where}")
    return first.answer


def _is_stub(found: _Found) -> bool:
    return isinstance(found.answer, Submission) and bool(_STUB_END.search(found.answer.source))


def _bytes(found: _Found) -> object:
    """Returns what two places must have in common to hold the same answer."""
    return found.answer.source if isinstance(found.answer, Submission) else found


def _places(some: list[Unseen]) -> str:
    """Returns the first few places with the reasons."""
    words = [f"{one.path} ({one.why})" if one.path else one.why for one in some]
    more = [f"{len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return ", ".join(words[:MOST_NAMED] + more)
