"""A student's result as the results.json of Gradescope.

Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxpar.classroom.records import PropertyResult, adjustment_results, property_results
from jaxpar.classroom.sandbox.levels import LEVEL_NAMES, NOT_ISOLATED
from jaxpar.classroom.untrusted_text import safe_line, safe_text


def results(result: dict[str, Any]) -> dict[str, Any]:
    """Returns what Gradescope shows to a student, in plain text throughout."""
    return {
        "score": result["score"],
        "output": safe_text("\n".join(_summary(result))),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": safe_line(f"{found.exercise}: {found.name}"),
                "number": f"{number}.{part}",
                "score": found.score,
                "max_score": found.max_score,
                "status": "passed" if found.status == "pass" else "failed",
                "output": safe_text(found.text),
            }
            for number, group in enumerate(_groups(result), 1)
            for part, found in enumerate(group, 1)
        ],
    }


def _groups(result: dict[str, Any]) -> Iterator[Iterable[PropertyResult]]:
    """Yields what each exercise earned, and last what concerns none of them."""
    yield from map(property_results, result["exercises"])
    yield adjustment_results(result)


def _summary(result: dict[str, Any]) -> Iterator[str]:
    yield f"{result['score']} of {result['max_score']} points."
    if result["level"] == NOT_ISOLATED:
        yield f"Graded {LEVEL_NAMES[NOT_ISOLATED]}."
    if result["ignored"]:
        yield f"Not looked at: {', '.join(map(safe_line, result['ignored']))}"
