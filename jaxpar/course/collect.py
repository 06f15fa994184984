"""Packs a student's exercise files as one zip file to hand in, and nothing else of theirs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.check import Verdicts
from jaxpar.course.folder import Course
from jaxpar.course.progress import status
from jaxpar.files import write_atomically
from jaxpar.grading.submission import SubmissionError, is_stub, read_submission

HANDIN = "handin.zip"
STANDING = {
    "pass": "passes here",
    "fail": "does not pass here",
    "changed": "not checked since it was changed",
}


@dataclass(frozen=True)
class Collected:
    """What was packed.

    Attributes:
        file: the zip file.
        packed: by exercise, whether its file passes here.
        left_out: by exercise, why its file is not in the zip file.
    """

    file: str
    packed: dict[str, str]
    left_out: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Returns the lines that are printed for the student."""
        files = "file" if len(self.packed) == 1 else "files"
        return [
            f"{self.file}: {len(self.packed)} {files} to hand in",
            *(f"  {id:<32} {words}" for id, words in self.packed.items()),
            *(f"  {id:<32} LEFT OUT: {words}" for id, words in self.left_out.items()),
        ]


def collect(course: Course, out: Path) -> Collected:
    """Packs the files of a course folder that hold an answer.

    Raises:
        BadUseError: there is no answer, or the zip file cannot be written.
    """
    if out.suffix != ".zip":
        raise BadUseError(f"collect: {out} would be a zip file; use --out {out.name}.zip")
    verdicts = Verdicts(course.verdicts)
    sources: dict[str, bytes] = {}
    packed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for row in course.exercises:
        try:
            sources[row.file] = _answer(course, row)
            packed[row.id] = STANDING.get(status(course, verdicts, row), "")
        except SubmissionError as reason:
            left_out[row.id] = str(reason)
    if not packed:
        raise BadUseError(f"collect: no exercise in {course.root} is solved yet; write one first")
    try:
        write_atomically(out, _zipped(sources))
    except OSError as error:
        raise BadUseError(f"collect: cannot write {out} ({error.strerror})") from None
    return Collected(str(out), packed, left_out)


def _answer(course: Course, row: Exercise) -> bytes:
    path = course.file(row)
    if not path.exists() and not path.is_symlink():
        raise SubmissionError("missing")
    try:
        submission = read_submission(path)
    except SubmissionError as reason:
        raise SubmissionError(str(reason).removeprefix(f"{path}: ")) from None
    if is_stub(submission, row.id):
        raise SubmissionError("not written yet")
    return submission.source


def _zipped(sources: Mapping[str, bytes]) -> bytes:
    """Returns a zip file with the default date, so that the same answers make the same file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in sorted(sources.items()):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100644 << 16  # Everybody may read what is unpacked.
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
