"""The class as JUnit XML: a suite for each student, a case for each property."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from jaxpar.classroom.gradebook import GradebookEntry
from jaxpar.classroom.records import PropertyResult, all_results
from jaxpar.classroom.untrusted_text import safe_line, safe_text

TAGS = {"fail": "failure", "not-judged": "skipped", "infrastructure": "error"}


def document(gradebook: Iterable[GradebookEntry]) -> Iterator[bytes]:
    """Yields the parts of the XML file, one for each student."""
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n'
    for entry in gradebook:
        suite = _suite(entry)
        ElementTree.indent(suite, " ", level=1)
        yield b" " + ElementTree.tostring(suite, "utf-8") + b"\n"
    yield b"</testsuites>\n"


def _suite(entry: GradebookEntry) -> ElementTree.Element:
    results = list(all_results(entry.result))
    counts = Counter(TAGS.get(found.status) for found in results)
    suite = ElementTree.Element(
        "testsuite",
        name=safe_line(entry.result["student"]),
        tests=str(len(results)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    suite.extend(map(_case, results))
    return suite


def _case(found: PropertyResult) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=safe_line(found.exercise), name=safe_line(found.name)
    )
    if tag := TAGS.get(found.status):
        message = safe_line(found.text.partition("\n")[0])
        ElementTree.SubElement(case, tag, message=message).text = safe_text(found.text)
    return case
