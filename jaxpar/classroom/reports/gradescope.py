"""Gradescope's results.json: https://gradescope-autograders.readthedocs.io/en/latest/specs/."""

from __future__ import annotations

from typing import Any

from jaxpar.classroom.checks import checks
from jaxpar.classroom.sandbox.levels import NAMES, NONE
from jaxpar.classroom.untrusted_text import line, text


def results(result: dict[str, Any]) -> dict[str, Any]:
    """What Gradescope shows a student of a result; formats are plain text throughout."""
    return {
        "score": result["score"],
        "output": text("\n".join(_words(result))),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": line(f"{check.exercise}: {check.name}"),
                "number": f"{number}.{part}",
                "score": check.score,
                "max_score": check.max_score,
                "status": "passed" if check.status == "pass" else "failed",
                "output": text(check.text),
            }
            for number, record in enumerate(result["exercises"], 1)
            for part, check in enumerate(checks(record), 1)
        ],
    }


def _words(result: dict[str, Any]) -> list[str]:
    words = [f"{result['score']} of {result['max_score']} points."]
    if result["level"] == NONE:
        words.append(f"Graded {NAMES[NONE]}.")
    if result["ignored"]:
        words.append(f"Not looked at: {', '.join(map(line, result['ignored']))}")
    return words
