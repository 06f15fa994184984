"""Several folders of results made one: where each submission was a job of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpar.classroom import records as record
from jaxpar.classroom.journal import Journal
from jaxpar.classroom.untrusted_text import line
from jaxpar.grading.files import write_atomically

NUMBERS = ("score", "max_score")


@dataclass
class Merged:
    """What came of it.

    Attributes:
        conflicts: records of the same exercise that differ between folders, one line each.
        environments: by exercise, in how many environments it was judged, where more than one.
    """

    conflicts: list[str] = field(default_factory=list)
    environments: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What an instructor reads."""
        return [
            *(f"  differs: {line(words)}" for words in self.conflicts),
            *(
                f"  {line(exercise)}: judged in {count} environments: versions of Python, JAX or "
                "jaxpar, or processors, differ"
                for exercise, count in self.environments.items()
            ),
        ]


def merge(folders: Sequence[Path], out: Path) -> Merged:
    """Writes every student's result to `out`; of two records on an exercise the later one counts.

    What was judged and its evidence come along, so that grading into `out` judges nothing twice.
    Later means: of a folder that is named later; what `out` holds already comes first. Grading
    that failed, or a file that was not there, never replaces a judgement.

    Raises:
        ValueError: a folder holds no results, or a result that is not one.
        OSError: `out` cannot be written.
    """
    found = _found(folders)
    merged, environments = Merged(), {}
    for name, paths in sorted(found.items()):
        students = out / "students"
        earlier = [students / name] if (students / name).is_file() else []
        result = _one([*earlier, *paths], merged)
        for made in result["exercises"]:
            environments.setdefault(made["exercise"], set()).add(made.get("environment"))
        write_atomically(students / name, json.dumps(result, indent=1).encode())
    journal = Journal(out / "journal")
    for folder in folders:
        journal.take(folder / "journal")
    for exercise, seen in environments.items():
        if len(seen - {None}) > 1:
            merged.environments[exercise] = len(seen - {None})
    return merged


def _found(folders: Iterable[Path]) -> dict[str, list[Path]]:
    """By the file name of a result, where it is; nothing is written if one of them is none."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        paths = sorted((folder / "students").glob("*.json"))
        if not paths:
            raise ValueError(
                f"grade: {folder} holds no results (students/*.json); name folders that "
                "`jaxpar grade --out` has written"
            )
        for path in paths:
            _load(path)
            found.setdefault(path.name, []).append(path)
    return found


def _one(paths: Sequence[Path], merged: Merged) -> dict[str, Any]:
    """One student's result out of several."""
    results = [_load(path) for path in paths]
    records: dict[str, dict[str, Any]] = {}
    for result in results:
        for made in result["exercises"]:
            before = records.get(made["exercise"])
            records[made["exercise"]] = made if before is None else _later(before, made)
            if before is not None and not record.same(before, made):
                taken = records[made["exercise"]]
                merged.conflicts.append(
                    f"{result['student']}: {made['exercise']}: {_words(before)}, then "
                    f"{_words(made)}; {_words(taken)} counts"
                )
    made = list(records.values())
    return results[-1] | {
        "score": sum(r["score"] for r in made),
        "max_score": sum(r["max_score"] for r in made),
        "level": max(result["level"] for result in results),  # the weakest isolation of all
        "exercises": made,
    }


def _later(before: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    judged = made["status"] not in ("infrastructure", "not-submitted")
    return made if judged or before["status"] in ("infrastructure", "not-submitted") else before


def _words(made: dict[str, Any]) -> str:
    return f"{made['status']} {made['score']}/{made['max_score']}"


def _load(path: Path) -> dict[str, Any]:
    """A student's result, if it has what one must have."""
    try:
        data = json.loads(path.read_bytes())
        right = all(
            isinstance(made["exercise"], str)
            and isinstance(made["status"], str)
            and all(isinstance(made[name], int) for name in NUMBERS)
            for made in data["exercises"]
        ) and isinstance(data["level"], int)
        right = right and isinstance(data["student"], str)
    except (OSError, ValueError, KeyError, TypeError):
        right = False
    if not right:
        raise ValueError(f"grade: {path} is not a student's result; grade that submission again")
    return data
