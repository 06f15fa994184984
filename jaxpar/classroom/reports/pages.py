"""The HTML pages: each is a single file that loads nothing, and runs only the script in it.

The policy of a page names its style and its script by their hashes, so a string that slipped
through the escaping would be shown, and could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from jaxpar.classroom.class_summary import ClassSummary
from jaxpar.classroom.gradebook import GradebookEntry
from jaxpar.classroom.journal import Journal
from jaxpar.classroom.records import adjustment_results, property_results
from jaxpar.classroom.reports.code_lines import code_lines
from jaxpar.classroom.sandbox.levels import LEVEL_NAMES, NOT_ISOLATED
from jaxpar.classroom.untrusted_text import safe_line, safe_text
from jaxpar.grading.submission import Submission

MOST_MISTAKES = 30
MOST_SOURCE = 8000
STUDENTS = "students"


def class_page(
    title: str, summary: ClassSummary, gradebook: Iterable[GradebookEntry]
) -> Iterator[bytes]:
    """Yields the page of what the class did, property by property, and what it misunderstood."""
    properties = dict.fromkeys(name for e in summary.exercises.values() for name in e.right)
    return render(
        "class.html",
        title=title,
        summary=summary,
        gradebook=gradebook,
        properties=list(properties),
        most_mistakes=MOST_MISTAKES,
        students_folder=STUDENTS,
    )


def student_page(title: str, entry: GradebookEntry, journal: Journal) -> Iterator[bytes]:
    """Yields the page of a student's verdicts in full, with nothing of another student's.

    Beside each verdict stands the code that was judged, which the journal has.
    """
    code = {}
    for record in entry.records:
        source = journal.source(record.get("submission_hash") or "")
        if source is not None:
            code[record["exercise"]] = code_lines(Submission(Path(), source), record)
    return render("student.html", title=title, entry=entry, code=code)


def render(template: str, **values: Any) -> Iterator[bytes]:
    """Yields a page in parts; every string that goes into it is made safe and escaped."""
    return (part.encode() for part in environment().get_template(template).generate(**values))


@cache
def environment() -> Environment:
    """Returns the environment of all templates, in which every value is made safe and escaped."""
    jinja = Environment(
        loader=PackageLoader("jaxpar.classroom.reports"),
        autoescape=True,
        finalize=_made_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"line": safe_line, "lines": _lines, "source": _source}
    jinja.globals |= {
        "style": Markup(file("style.css")),
        "script": Markup(file("sort_tables.js")),
        "policy": Markup(
            f"default-src 'none'; style-src {_hash('style.css')}; "
            f"script-src {_hash('sort_tables.js')}; base-uri 'none'; form-action 'none'"
        ),
        "level_names": LEVEL_NAMES,
        "not_isolated": NOT_ISOLATED,
        "adjustment_results": adjustment_results,
        "property_results": property_results,
    }
    return jinja


def _made_safe(value: Any) -> Any:
    """Returns a value as safe text; what a template has escaped already stays as it is."""
    return value if hasattr(value, "__html__") else safe_text(str(value))


def _lines(text: str) -> Markup:
    return escape(safe_text(text)).replace("\n", Markup("<br>"))


def _source(text: str) -> Markup:
    return escape(safe_text(text, MOST_SOURCE))


def file(name: str) -> str:
    """Returns a file that goes into every page as it is."""
    return (files("jaxpar.classroom.reports") / "templates" / name).read_text("utf-8")


def _hash(name: str) -> str:
    digest = hashlib.sha256(file(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
