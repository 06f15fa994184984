"""What the course remembers of a learner: place, lessons, hints, solutions, predictions, bests.

One small file for each fact, so that two watchers of one course never undo each other's writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jaxpar.files import write_atomically
from jaxpar.grading.verdict import Verdict


@dataclass(frozen=True)
class LearnerRecord:
    """Facts under the state folder of a course; what cannot be read counts as not remembered.

    What cannot be written is remembered until the process ends. Each `remember_...` returns what
    went wrong in one line, or an empty text.
    """

    folder: Path
    _unwritten: dict[tuple[str, str], str] = field(default_factory=dict)

    def place(self) -> str | None:
        """The exercise that was last at hand."""
        return self._read("place", "exercise")

    def remember_place(self, id: str) -> str:
        """Records the exercise at hand."""
        return self._write("place", "exercise", id)

    def hints_shown(self, id: str) -> int:
        """How many hints of an exercise were shown."""
        text = self._read("hints", id) or ""
        return int(text) if text.isdecimal() else 0

    def remember_hints(self, id: str, count: int) -> str:
        """Records how many hints were shown."""
        return self._write("hints", id, str(count))

    def seen(self, id: str) -> bool:
        """Whether the solution was shown before the exercise was solved."""
        return self._read("seen", id) is not None

    def remember_seen(self, id: str) -> str:
        """Records that the solution was shown before the exercise was solved."""
        return self._write("seen", id, "seen")

    def lesson_run(self, number: str) -> bool:
        """Whether a lesson was run to its end."""
        return self._read("lessons", number) is not None

    def remember_lesson(self, number: str) -> str:
        """Records that a lesson was run to its end."""
        return self._write("lessons", number, "run")

    def asked(self, id: str) -> bool:
        """Whether a prediction was asked for."""
        return self._read("predictions", id) is not None

    def prediction(self, id: str) -> int | None:
        """The bytes that the learner predicted, if any."""
        text = self._read("predictions", id) or ""
        return int(text) if text.isdecimal() else None

    def remember_prediction(self, id: str, count: int | None) -> str:
        """Records a prediction, or that there was none."""
        return self._write("predictions", id, "skipped" if count is None else str(count))

    def best(self, id: str) -> int | None:
        """The lowest number that a right answer to a challenge has reached, if any."""
        text = self._read("bests", id) or ""
        return int(text) if text.isdecimal() else None

    def remember_best(self, verdict: Verdict) -> str:
        """Records the number of a challenge, if the answer is right and none was lower before."""
        found = verdict.measured
        if not (verdict.passed and found and found.challenge):
            return ""
        before = self.best(verdict.exercise)
        if before is not None and before <= found.value:
            return ""
        return self._write("bests", verdict.exercise, str(found.value))

    def cell(self, id: str) -> str | None:
        """The digest of what a notebook last wrote into the file of an exercise."""
        return self._read("cells", id)

    def remember_cell(self, id: str, digest: str) -> str:
        """Records the digest of what a notebook writes into the file of an exercise."""
        return self._write("cells", id, digest)

    def _read(self, kind: str, id: str) -> str | None:
        if (kind, id) in self._unwritten:
            return self._unwritten[kind, id]
        try:
            return (self.folder / kind / id).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None

    def _write(self, kind: str, id: str, text: str) -> str:
        try:
            write_atomically(self.folder / kind / id, f"{text}\n".encode("ascii"))
        except OSError as error:
            self._unwritten[kind, id] = text
            return f"{self.folder} cannot be written ({error.strerror}); this is not saved"
        self._unwritten.pop((kind, id), None)
        return ""
