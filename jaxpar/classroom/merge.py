"""Merges several folders of results, as where each submission was graded by a job of its own.

`jaxpar grade --merge` calls this instead of the grader, and then writes the reports as usual.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpar.classroom.journal import Journal
from jaxpar.classroom.records import same_verdict
from jaxpar.classroom.results import load_checked
from jaxpar.classroom.untrusted_text import safe_line
from jaxpar.files import write_atomically

NO_VERDICT = ("infrastructure", "not-submitted")


@dataclass
class MergeReport:
    """What an instructor should know of a merge.

    Attributes:
        conflicts: a line for each exercise of a student whose records differ between folders.
        environments: in how many environments an exercise was judged, where in more than one.
    """

    conflicts: list[str] = field(default_factory=list)
    environments: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Returns what an instructor reads."""
        return [
            *(f"  differs: {safe_line(conflict)}" for conflict in self.conflicts),
            *(
                f"  {safe_line(exercise)}: judged in {count} environments: versions of Python, JAX "
                "or jaxpar, or processors, differ"
                for exercise, count in self.environments.items()
            ),
        ]


def merge(folders: Sequence[Path], out: Path) -> MergeReport:
    """Writes every student's result to `out`; of two records on an exercise the later one counts.

    The later record is that of the folder which is named later; what `out` holds already comes
    first. Neither grading that failed nor a missing file ever replaces a judgement. The journals
    come along, so that grading into `out` judges nothing twice.

    Raises:
        ValueError: a folder holds no results, or a file in it is not a result.
        OSError: `out` cannot be written.
    """
    found = _results_by_name(folders)
    report, environments = MergeReport(), {}
    for name, paths in sorted(found.items()):
        students = out / "students"
        earlier = [students / name] if (students / name).is_file() else []
        result = _merged_result([*earlier, *paths], report)
        for record in result["exercises"]:
            environments.setdefault(record["exercise"], set()).add(record.get("environment"))
        write_atomically(students / name, json.dumps(result, indent=1).encode())
    journal = Journal(out / "journal")
    for folder in folders:
        journal.add_all_of(folder / "journal")
    for exercise, seen in environments.items():
        if len(seen - {None}) > 1:
            report.environments[exercise] = len(seen - {None})
    return report


def _results_by_name(folders: Iterable[Path]) -> dict[str, list[Path]]:
    """Returns the files of each student by their name, and checks that each is a result."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        paths = sorted((folder / "students").glob("*.json"))
        if not paths:
            raise ValueError(
                f"grade: {folder} holds no results (students/*.json); name folders that "
                "`jaxpar grade --out` has written"
            )
        for path in paths:
            load_checked(path)
            found.setdefault(path.name, []).append(path)
    return found


def _merged_result(paths: Sequence[Path], report: MergeReport) -> dict[str, Any]:
    """Merges several results of one student into one."""
    results = [load_checked(path) for path in paths]
    records: dict[str, dict[str, Any]] = {}
    for result in results:
        for record in result["exercises"]:
            exercise = record["exercise"]
            before = records.get(exercise)
            records[exercise] = record if before is None else _counting(before, record)
            if before is not None and not same_verdict(before, record):
                report.conflicts.append(
                    f"{result['student']}: {exercise}: {_in_short(before)}, then "
                    f"{_in_short(record)}; {_in_short(records[exercise])} counts"
                )
    return results[-1] | {
        "score": sum(record["score"] for record in records.values()),
        "max_score": sum(record["max_score"] for record in records.values()),
        "level": max(result["level"] for result in results),  # the weakest isolation of all
        "exercises": list(records.values()),
    }


def _counting(before: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Returns the record that counts: the later one, unless only the earlier one is a verdict."""
    only_before = later["status"] in NO_VERDICT and before["status"] not in NO_VERDICT
    return before if only_before else later


def _in_short(record: dict[str, Any]) -> str:
    return f"{record['status']} {record['score']}/{record['max_score']}"
