"""Results as they were before a run, kept until it has ended, however often it was killed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from jaxpar.classroom.records import moved
from jaxpar.classroom.results import load


class Before:
    """A folder of links to results; a new result takes the place of the file, not of the link."""

    def __init__(self, results: Path) -> None:
        """Uses a folder inside the folder of results."""
        self._students, self._folder = results / "students", results / "before"

    def keep(self) -> None:
        """Keeps what there is, unless a run that began before has not ended.

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
            except OSError:  # not every file system has links
                shutil.copyfile(path, new / path.name)
        new.rename(self._folder)

    def forget(self) -> None:
        """The run has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def difference(self, name: str, result: dict[str, Any]) -> int | None:
        """Points now minus points before, on what was graded both times; None if nothing was."""
        pairs = self._pairs(name, result)
        return sum(new["score"] - old["score"] for old, new in pairs) if pairs else None

    def moved(self, name: str, result: dict[str, Any]) -> list[str]:
        """The exercises where the same file has another verdict now."""
        return [new["exercise"] for old, new in self._pairs(name, result) if moved(old, new)]

    def _pairs(
        self, name: str, result: dict[str, Any]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The verdicts on each exercise before and now."""
        before = load(self._folder / f"{name}.json") or {"exercises": []}
        old = {record["exercise"]: record for record in before["exercises"]}
        return [
            (old[new["exercise"]], new) for new in result["exercises"] if new["exercise"] in old
        ]
