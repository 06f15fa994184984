"""A student's own code, line by line, with what was found at each line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from jaxpar.classroom.records import property_results
from jaxpar.classroom.untrusted_text import safe_line
from jaxpar.grading.submission import Submission

MOST_LINES = 2000
_LINE = re.compile(r"\bline (\d{1,6})\b")


@dataclass(frozen=True)
class CodeLine:
    """One line of an answer.

    Attributes:
        number: its number, from 1.
        text: the line.
        findings: what was found there.
    """

    number: int
    text: str
    findings: tuple[str, ...]


def code_lines(submission: Submission, record: dict[str, Any]) -> list[CodeLine]:
    """Returns the lines of an answer, each with the findings of its record that name it."""
    found: dict[int, list[str]] = {}
    for result in property_results(record):
        for sentence in result.text.split("\n"):
            for number in dict.fromkeys(map(int, _LINE.findall(sentence))):
                found.setdefault(number, []).append(f"{result.name}: {safe_line(sentence)}")
    lines = submission.text.removesuffix("\n").split("\n")[:MOST_LINES]
    return [
        CodeLine(number, line, tuple(dict.fromkeys(found.get(number, ()))))
        for number, line in enumerate(lines, 1)
    ]
