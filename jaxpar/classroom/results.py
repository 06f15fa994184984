"""The folder of results: one JSON file for each student, from which every report is written.

The grader writes a student's result when all its records are there. This file also locks the folder
for one grader, and keeps the results of the previous run until a new run has ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from jaxpar.classroom.handins import Handin
from jaxpar.classroom.marks import MARKS
from jaxpar.classroom.records import verdict_moved
from jaxpar.classroom.untrusted_text import printable, safe_line
from jaxpar.files import write_atomically

MOST_NAME = 200
MOST_SPELLED = 60
MOST_LOST = 5  # exercises that a message names
# What a run that was killed early may have left; any other folder is results once it has a result.
_BEGUN = {".lock", "students", "journal", "before", ".before", MARKS}
_RESULT = {"student": str, "score": int, "max_score": int, "level": int, "exercises": list}
_RECORD = {"exercise": str, "status": str, "score": int, "max_score": int, "properties": list}
_PLAIN_NAME = re.compile(r"[\w@+=,-][\w@+=,. -]{0,150}", re.ASCII)


class Results:
    """A folder of results; reading it again gives what was written."""

    def __init__(self, folder: Path) -> None:
        """Uses this folder, which need not exist."""
        self.folder = folder
        self.students = folder / "students"

    def write(self, handin: Handin, records: Sequence[dict[str, Any]], level: int) -> None:
        """Writes the result of one student.

        Raises:
            OSError: the folder cannot be written; the result is as it was.
        """
        data = {
            "student": printable(handin.student, MOST_NAME),
            "score": sum(r["score"] for r in records),
            "max_score": sum(r["max_score"] for r in records),
            "level": level,
            "exercises": list(records),
            "ignored": [printable(path, MOST_NAME) for path in handin.ignored],
            "notes": handin.notes,
        }
        text = json.dumps(data, indent=1)
        write_atomically(self.students / file_name(handin.student), text.encode())

    def records(self, student: str) -> dict[str, dict[str, Any]]:
        """Returns the records of an earlier run by their exercise."""
        data = load_result(self.students / file_name(student))
        return {r["exercise"]: r for r in data["exercises"]} if data else {}

    def has_verdict(self, student: str) -> bool:
        """Tells whether something of a student was judged in an earlier run."""
        return any(record.get("submission_hash") for record in self.records(student).values())

    def level(self, student: str) -> int:
        """Returns the level of isolation of an earlier run, or 0 if there was none."""
        data = load_result(self.students / file_name(student))
        return data["level"] if data else 0

    def check_folder(self) -> None:
        """Checks that this folder is empty, not there, or a folder of results.

        Raises:
            ValueError: it holds something else, which grading would spoil.
        """
        names = set(os.listdir(self.folder)) if self.folder.is_dir() else set()
        results = sorted(self.students.glob("[!.]*.json")) if names else []
        for path in results:
            load_checked(path)
        if not results and names - _BEGUN:
            shown = ", ".join(sorted(map(safe_line, names - _BEGUN))[:MOST_LOST])
            raise ValueError(
                f"grade: {self.folder} is no folder of results: it holds {shown}; use an --out "
                "that is empty, does not exist yet, or was written by `jaxpar grade`"
            )

    def check_secret(self, is_of_secret: Callable[[dict[str, Any]], bool], file: Path) -> None:
        """Checks that a secret is the one with which these results were judged.

        Args:
            is_of_secret: tells whether a record's seed was drawn with the secret.
            file: where the secret is.

        Raises:
            ValueError: it is another one, so that everybody would be judged again.
        """
        for result in self:
            for record in result["exercises"]:
                if record.get("seed_id") and not is_of_secret(record):
                    raise ValueError(
                        f"grade: {self.folder} was judged with another secret than that in {file}; "
                        "name the same --secret-file as before, or use another --out to judge "
                        "everybody again"
                    )

    @property
    def judged(self) -> bool:
        """Whether there is any verdict here."""
        return any(record.get("seed_id") for result in self for record in result["exercises"])

    def check_kept(self, students: Iterable[str], exercises: Collection[str]) -> None:
        """Checks that a run on these exercises drops no verdict of these students.

        Raises:
            ValueError: a student has a verdict on another exercise.
        """
        known = (name for student in students for name in self.records(student))
        lost = [name for name in dict.fromkeys(known) if name not in exercises]
        if lost:
            more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
            raise ValueError(
                f"grade: {self.folder} has verdicts on {', '.join(lost[:MOST_LOST])}{more}, which "
                "this run would drop; name these exercises, too (what was judged is not judged "
                "again), or use another --out, which --merge can join with this one"
            )

    def remove_half_written(self) -> None:
        """Removes the temporary files of a run that was killed."""
        for path in self.students.glob(".*"):
            path.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the result of every student in the order of their files, one at a time."""
        return (result for _, result in self.named())

    def named(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each result with the name of its file, which is unique to the student."""
        for path in sorted(self.students.glob("*.json")):
            if data := load_result(path):
                yield path.stem, data

    def others(self, students: Iterable[str]) -> list[str]:
        """Returns the students who have a result here and are none of these."""
        these = {file_name(student).removesuffix(".json") for student in students}
        return [result["student"] for name, result in self.named() if name not in these]


class EarlierResults:
    """The results as they were before a run, kept until it ends, however often it is killed.

    They are links: a new result takes the place of the file, and the link still leads to the old.
    """

    def __init__(self, results: Results) -> None:
        """Uses a folder inside the folder of results."""
        self._students, self._folder = results.students, results.folder / "before"

    def keep(self) -> None:
        """Keeps the present results, unless those from before an unfinished run are kept already.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._folder.exists():
            return
        new = self._folder.with_name(".before")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for path in self._students.glob("*.json"):
            try:
                os.link(path, new / path.name)
            except OSError:  # Not every file system has links.
                shutil.copyfile(path, new / path.name)
        new.rename(self._folder)

    def forget(self) -> None:
        """Removes the earlier results once the run has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def difference(self, name: str, result: dict[str, Any]) -> int | None:
        """Returns the points gained on what was graded both times, or None if nothing was."""
        pairs = self._pairs(name, result)
        return sum(new["score"] - old["score"] for old, new in pairs) if pairs else None

    def moved(self, name: str, result: dict[str, Any]) -> list[str]:
        """Returns the exercises where the same file has another verdict now."""
        return [
            new["exercise"] for old, new in self._pairs(name, result) if verdict_moved(old, new)
        ]

    def gone(self, name: str, result: dict[str, Any]) -> list[str]:
        """Returns the exercises that had a verdict, and for which nothing is there now."""
        return [
            new["exercise"]
            for old, new in self._pairs(name, result)
            if old.get("submission_hash") and new["status"] == "not-submitted"
        ]

    def _pairs(
        self, name: str, result: dict[str, Any]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Returns the records before and now of each exercise that has both."""
        before = load_result(self._folder / f"{name}.json") or {"exercises": []}
        old = {record["exercise"]: record for record in before["exercises"]}
        return [
            (old[new["exercise"]], new) for new in result["exercises"] if new["exercise"] in old
        ]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a folder of results for one grader, until the block or this process ends.

    Raises:
        ValueError: another grader holds the folder, or it cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not os.listdir(folder):  # Whoever opens it to others later has a reason to.
            folder.chmod(0o700)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ValueError(f"grade: {folder}: {error.strerror}; use another --out") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "unknown"
            raise ValueError(
                f"grade: {folder} is being written by another grader (process {holder}); wait "
                "until it has ended, or use another --out"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def file_name(student: str) -> str:
    """Returns the name of a student's file, in which unusual characters are spelled in bytes."""
    if _PLAIN_NAME.fullmatch(student):
        return f"{student}.json"
    data = student.encode(errors="surrogateescape")
    spelled = "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"%{byte:02x}"
        for byte in data[:MOST_SPELLED]
    )
    rest = hashlib.sha256(data).hexdigest()[:16] if len(data) > MOST_SPELLED else ""
    return f"{spelled}{rest}.json"


def load_checked(path: Path) -> dict[str, Any]:
    """Returns a student's result.

    Raises:
        ValueError: the file lacks what a result must have.
    """
    data = load_result(path)
    if not _has(data, _RESULT) or not all(_has(r, _RECORD) for r in data["exercises"]):
        raise ValueError(
            f"grade: {path} is not a student's result; if grading wrote it, remove it and grade "
            "again, else use another --out"
        )
    return data


def _has(data: Any, kinds: Mapping[str, type]) -> TypeGuard[dict[str, Any]]:
    return isinstance(data, dict) and all(isinstance(data.get(n), k) for n, k in kinds.items())


def load_result(path: Path) -> dict[str, Any] | None:
    """Returns the result in a file, or None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
