"""A verdict as JSON and as plain lines; `terminal_writer` draws it in tables and colours.

These writers are for a learner; those for a class are in `jaxpar.classroom.reports`. A writer shows
what the verdict holds, and judges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from jaxpar.grading.verdict import Measured, PropertyVerdict, Verdict

LINE = 120
TITLES = {
    "wire_bytes": "what each device sends in one call, forward, on {}",
    "temp_bytes": "what intermediate results take, forward and backward, on {}",
    "makespan": "the makespan of {}",
}
NO_VALUES = (
    "An array has no value while a program is made of the function; `jaxpar run {}` shows values."
)
TRACER = re.compile(r"Tracer\(|Traced<")


def to_json(verdict: Verdict, best: int | None = None) -> dict[str, Any]:
    """Returns what `jaxpar check --json` prints; `best` is the lowest number reached."""
    return {
        "exercise": verdict.exercise,
        "status": verdict.status,
        "score": verdict.score,
        "max_score": verdict.max_score,
        "properties": [asdict(row) for row in verdict.properties],
        "diagnosis": verdict.diagnosis,
        "seconds": verdict.seconds,
        "measured": verdict.measured and asdict(verdict.measured),
        "best": best,
    }


def headline(verdict: Verdict) -> str:
    """Returns points, status, time and seed in one line."""
    return (
        f"{verdict.exercise}: {verdict.status}, {verdict.score} of {verdict.max_score} points "
        f"({verdict.seconds:.1f} s, seed {verdict.seed})"
    )


def failure_lines(verdict: Verdict, row: PropertyVerdict | None) -> list[str]:
    """Returns what a failed property says, then the diagnosis unless it says the same."""
    diagnosis = verdict.diagnosis.splitlines()
    if row is None:
        return diagnosis
    lines = [] if row.message == verdict.diagnosis else [f"{row.name}: {row.message}"]
    for word, value in (("expected", row.expected), ("got", row.got)):
        if value:
            lines += [f"  {word:<8}  {line}" for line in value.splitlines()]
    return [*lines, "", *diagnosis] if lines and diagnosis else lines + diagnosis


def measured_rows(
    measured: Measured, predicted: int | None, best: int | None
) -> list[tuple[str, str]]:
    """Returns a number: predicted, measured, by the library, and the learner's best before."""
    rows = (
        ("predicted", predicted if measured.quantity == "wire_bytes" else None),
        ("measured", measured.value),
        ("library", measured.library),
        ("your best", best if measured.challenge else None),
    )
    return [(word, measured.in_words(number)) for word, number in rows if number is not None]


def new_best(verdict: Verdict, best: int | None) -> str:
    """Returns that a right answer is lower than the learner's best before, or an empty text."""
    found = verdict.measured
    if not (verdict.passed and found and found.challenge and best is not None):
        return ""
    return f"Your best now: {found.in_words(found.value)}." if found.value < best else ""


def plain_lines(
    verdict: Verdict, predicted: int | None = None, best: int | None = None
) -> Iterator[str]:
    """Yields the lines of the verdict without colour or boxes.

    Args:
        verdict: the verdict.
        predicted: the bytes that the learner predicted, if any.
        best: the lowest number that the learner had reached before, if it is a challenge.
    """
    yield headline(verdict)
    for row in verdict.properties:
        note = f"  {_one_line(row.message)}".rstrip()
        yield f"  {row.status:<10}  {row.name:<13}  {row.score}/{row.max_score}{note}"
    if lines := failure_lines(verdict, verdict.first_failure()):
        yield from ("", *lines)
    if verdict.measured:
        yield from ("", title_of(verdict.measured))
        for word, number in measured_rows(verdict.measured, predicted, best):
            yield f"  {word:<10} {number}"
        if line := new_best(verdict, best):
            yield line
    if verdict.printed:
        yield from ("", "your program printed")
        yield from (f"  {line}" for line in verdict.printed.splitlines())
        yield from without_values(verdict)


def without_values(verdict: Verdict) -> Iterator[str]:
    """Yields where to see values, if the answer printed arrays that had none."""
    if TRACER.search(verdict.printed):
        yield NO_VALUES.format(verdict.exercise)


def title_of(measured: Measured) -> str:
    """What the measured number is, and in which case."""
    return TITLES[measured.quantity].format(measured.case)


def _one_line(text: str) -> str:
    line = first_line(text)
    return line if len(line) <= LINE else f"{line[:LINE]}..."


def first_line(text: str) -> str:
    """The first line of a text."""
    return text.partition("\n")[0]
