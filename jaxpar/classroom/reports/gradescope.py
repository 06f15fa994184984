"""A student's result as the results.json of Gradescope.

Source: https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxpar.classroom.records import property_results
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
            for number, record in enumerate(result["exercises"], 1)
            for part, found in enumerate(property_results(record), 1)
        ],
    }


def _summary(result: dict[str, Any]) -> Iterator[str]:
    yield f"{result['score']} of {result['max_score']} points."
    if result["level"] == NOT_ISOLATED:
        yield f"Graded {LEVEL_NAMES[NOT_ISOLATED]}."
    if result["ignored"]:
        yield f"Not looked at: {', '.join(map(safe_line, result['ignored']))}"
