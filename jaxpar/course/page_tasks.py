"""What a page says of each exercise that is judged in it."""

from __future__ import annotations

import inspect
from typing import Any

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.stubs import stub
from jaxpar.explore.verdict import JUDGED


def tasks() -> list[dict[str, Any]]:
    """The exercises that are judged in a page, in the order of the course, as plain data."""
    judged = {id for ids in JUDGED.values() for id in ids}
    return [_task(row) for row in EXERCISES if row.id in judged]


def _task(row: Exercise) -> dict[str, Any]:
    contract = load(row.where)
    return {
        "id": row.id,
        "lesson": row.lesson,
        "title": row.title,
        "minutes": row.minutes,
        "kind": row.kind,
        "points": row.points,
        "stub": stub(row),
        "docstring": inspect.getdoc(contract.reference) or "",
        "task": contract.task,
        "hints": list(contract.hints),
        "mistakes": len(contract.mistakes),
        "minimal": contract.minimal,
        "harder": contract.harder,
    }
