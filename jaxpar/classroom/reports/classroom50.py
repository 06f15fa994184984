"""A student's result in the format `result/v1` of Classroom 50.

Source: https://github.com/foundation50/classroom50, wiki, Advanced Autograding
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jaxpar.classroom.records import all_results
from jaxpar.classroom.untrusted_text import safe_line, safe_text

SCHEMA = "classroom50/result/v1"
IDENTITY = {
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
    "review": "REVIEW_URL",
}


def result(result: dict[str, Any], runner: Mapping[str, str]) -> dict[str, Any]:
    """Returns a student's result for Classroom 50.

    Args:
        result: the student's result.
        runner: the environment of Classroom 50's runner, which knows whose submission it is.
            Elsewhere these fields are missing, and no collector takes the file.
    """
    known = {name: runner[variable] for name, variable in IDENTITY.items() if runner.get(variable)}
    if "submission" in known:
        known.setdefault("review", known.get("commit", ""))
        known["datetime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "schema": SCHEMA,
        **known,
        "score": result["score"],
        "max-score": result["max_score"],
        "tests": [
            {
                "test-name": safe_line(f"{found.exercise}: {found.name}"),
                "passed": found.status == "pass",
                "score": found.score,
                "max-score": found.max_score,
                "output": safe_text(found.text),
            }
            for found in all_results(result)
        ],
    }
