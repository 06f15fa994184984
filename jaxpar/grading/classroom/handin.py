"""What a student handed in: a folder, of which the exercise files are read once and the rest not.

Nothing in it is followed, waited for, imported or run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jaxpar.grading.submission import Submission, SubmissionError, read_within

MOST_FOLDERS_DEEP = 4
MOST_ENTRIES = 10_000
MOST_LISTED = 100
MISSING = "not handed in"


@dataclass
class Handin:
    """One student's folder, as it was when it was read.

    Attributes:
        student: the name of the folder.
        files: by exercise, what is judged.
        refused: by exercise, why what is there is not judged.
        ignored: other files, by their path in the folder.
    """

    student: str
    files: dict[str, Submission] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def students(submissions: Path) -> list[str]:
    """The names of the folders, in order.

    Raises:
        ValueError: there is no such folder, or none in it.
    """
    try:
        with os.scandir(submissions) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise ValueError(
            f"grade: {submissions}: {error.strerror}; give a folder with one folder per student"
        ) from None
    shown = sorted(name for name in names if not name.startswith("."))
    if not shown:
        raise ValueError(
            f"grade: {submissions} holds no folders; it must hold one folder per student, with "
            "that student's exercise files"
        )
    return shown


def read_handin(folder: Path, exercises: Collection[str]) -> Handin:
    """Reads the files of these exercises; one that cannot be judged is named, and why."""
    handin = Handin(folder.name)
    places: dict[str, list[str]] = {}
    wanted = {f"{name}.py": name for name in exercises}
    for directory, path, name in _entries(folder, handin):
        exercise = wanted.get(name)
        if exercise is None:
            _ignore(handin, path)
            continue
        places.setdefault(exercise, []).append(path)
        if len(places[exercise]) > 1:
            handin.files.pop(exercise, None)
            handin.refused[exercise] = f"handed in twice: {' and '.join(places[exercise][:2])}"
            continue
        try:
            handin.files[exercise] = read_within(directory, name)
        except SubmissionError as error:
            handin.refused[exercise] = str(error)
    return handin


def _entries(folder: Path, handin: Handin) -> Iterator[tuple[int, str, str]]:
    """Every file: a descriptor of its folder, its path in the hand-in, its name."""
    seen = 0
    for where, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        inside = Path(where).relative_to(folder)
        hidden = [name for name in folders if name.startswith(".") or name == "__pycache__"]
        links = [name for name in folders if _is_link(name, descriptor)]
        deep = list(folders) if len(inside.parts) >= MOST_FOLDERS_DEEP else []
        for name in sorted({*hidden, *links, *deep}):
            _ignore(handin, f"{inside / name}/")
            folders.remove(name)
        folders.sort()
        for name in sorted([*files, *links]):
            seen += 1
            if seen > MOST_ENTRIES:
                _ignore(handin, f"more than {MOST_ENTRIES} files; the rest was not read")
                return
            yield descriptor, str(inside / name), name


def _is_link(name: str, folder: int) -> bool:
    return os.path.islink(f"/proc/self/fd/{folder}/{name}")


def _ignore(handin: Handin, path: str) -> None:
    if len(handin.ignored) < MOST_LISTED:
        handin.ignored.append(path)
