"""What students handed in: folders, of which only the exercise files are read, each once.

This is the first step of grading a class, and what it reads goes to the grader. No link in a folder
is followed, no pipe is waited for, and nothing is imported or run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jaxpar.grading.submission import Submission, SubmissionError, read_within

MOST_DEEP = 4
MOST_ENTRIES = 10_000
MOST_LISTED = 100
MISSING = "not handed in"
# Opening waits for nothing: what has become a link or a pipe meanwhile is refused.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Handin:
    """One student's folder, as it was when it was read.

    Attributes:
        student: the name of the folder.
        files: the file to judge, by its exercise.
        refused: the reason why there is no file to judge, by exercise.
        ignored: the paths in the folder of all other files.
    """

    student: str
    files: dict[str, Submission] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def student_folders(submissions: Path) -> list[str]:
    """Returns the names of the folders in order, and those of links, which nobody follows.

    Raises:
        ValueError: the folder does not exist, or holds no folder.
    """
    try:
        with os.scandir(submissions) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) or e.is_symlink()]
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


def check_results_apart(submissions: Path, out: Path) -> None:
    """Raises ValueError if results are to go where they would be taken for a student's folder."""
    if out.resolve().is_relative_to(submissions.resolve()):
        raise ValueError(
            f"grade: {out} is in the folder of submissions, where it would be taken for a "
            "student's; use an --out beside it"
        )


def read_handin(folder: Path, exercises: Collection[str]) -> Handin:
    """Reads the files of these exercises, and notes why a file cannot be judged."""
    handin = Handin(folder.name)
    wanted = {f"{name}.py": name for name in exercises}
    places: dict[str, list[Path]] = {}
    try:
        directory = os.open(folder, _FOLDER)
    except FileNotFoundError:
        handin.refused = dict.fromkeys(exercises, "the student has no folder")
        return handin
    except OSError as error:
        reason = "is a link" if folder.is_symlink() else f"cannot be opened ({error.strerror})"
        handin.refused = dict.fromkeys(exercises, f"the student's folder {reason}")
        return handin
    try:
        for seen, (inside, path, is_folder) in enumerate(_walk(directory, Path(), handin)):
            exercise = wanted.get(path.name)
            if seen == MOST_ENTRIES:
                _ignore(handin, f"more than {MOST_ENTRIES} files; the rest was not read")
                break
            if exercise is not None:
                places.setdefault(exercise, []).append(path)
                _read(handin, exercise, inside, places[exercise])
            elif not is_folder:
                _ignore(handin, str(path))
    finally:
        os.close(directory)
    return handin


def _read(handin: Handin, exercise: str, inside: int, paths: list[Path]) -> None:
    """Reads the file of an exercise, unless several of that name were found."""
    if len(paths) > 1:
        handin.files.pop(exercise, None)
        handin.refused[exercise] = f"handed in twice: {paths[0]} and {paths[1]}"
        return
    try:
        handin.files[exercise] = read_within(inside, paths[0].name)
    except SubmissionError as error:
        handin.refused[exercise] = str(error)


def _walk(directory: int, above: Path, handin: Handin) -> Iterator[tuple[int, Path, bool]]:
    """Yields the parent's descriptor and the path of each entry, and whether it is a folder."""
    with os.scandir(directory) as entries:
        some = itertools.islice(entries, MOST_ENTRIES + 1)
        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in some)
    for name, is_folder in found:
        path = above / name
        yield directory, path, is_folder
        if not is_folder:
            continue
        try:
            if name.startswith(".") or name == "__pycache__" or len(path.parts) > MOST_DEEP:
                raise OSError
            below = os.open(name, _FOLDER, dir_fd=directory)
        except OSError:
            _ignore(handin, f"{path}/")
            continue
        try:
            yield from _walk(below, path, handin)
        finally:
            os.close(below)


def _ignore(handin: Handin, path: str) -> None:
    if len(handin.ignored) < MOST_LISTED:
        handin.ignored.append(path)
