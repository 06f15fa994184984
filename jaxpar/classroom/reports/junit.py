"""The class as JUnit XML: a suite for each student, a case for each property."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jaxpar.classroom.checks import Check, checks
from jaxpar.classroom.gradebook import Entry
from jaxpar.classroom.untrusted_text import MOST_LINE, line, markup

TAGS = {"fail": "failure", "not-judged": "skipped", "infrastructure": "error"}


def document(entries: Iterable[Entry]) -> Iterator[bytes]:
    """The file, in parts."""
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n'
    for entry in entries:
        yield "\n".join(_suite(entry)).encode()
    yield b"</testsuites>\n"


def _suite(entry: Entry) -> Iterator[str]:
    cases = [check for record in entry.exercises for check in checks(record)]
    counts = {"tests": len(cases)} | {
        name: sum(TAGS.get(check.status) == tag for check in cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    numbers = " ".join(f'{name}="{count}"' for name, count in counts.items())
    yield f' <testsuite name="{_attribute(entry.result["student"])}" {numbers}>'
    yield from map(_case, cases)
    yield " </testsuite>\n"


def _case(check: Check) -> str:
    names = f'classname="{_attribute(check.exercise)}" name="{_attribute(check.name)}"'
    tag = TAGS.get(check.status)
    if tag is None:
        return f"  <testcase {names}/>"
    message = _attribute(check.text.partition("\n")[0])
    inside = f'<{tag} message="{message}">{markup(check.text)}</{tag}>'
    return f"  <testcase {names}>{inside}</testcase>"


def _attribute(value: str) -> str:
    return markup(line(value), MOST_LINE)
