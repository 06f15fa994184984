"""Runs a lesson in this process and records what it shows, as parts of a page.

`lesson_parts` runs this module as a process, with the path of a lesson and that of a new file.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup
from rich.console import Group
from rich.table import Table

from jaxpar.course.cells import namespace_of, read_cells
from jaxpar.course.output import going_to
from jaxpar.course.page.parts import Part, to_json
from jaxpar.course.prediction import EXAMPLES, UNITS, Kind
from jaxpar.course.questions import RIGHT
from jaxpar.course.table import html_table
from jaxpar.drawing.inline_svg import titled, width_of
from jaxpar.drawing.pages import render
from jaxpar.drawing.picture import Picture
from jaxpar.inspector import Report
from jaxpar.inspector import render as render_report

PACKAGE = "jaxpar.course.page"
SHOWS = ("ask", "compare", "draw", "exercises", "show", "show_report")


@dataclass
class Recorder:
    """Takes the output of a lesson.

    Attributes:
        lesson: the name of the lesson.
        parts: what was shown so far.
        printed: takes what the lesson prints.
        questions: the questions so far, in order.
    """

    lesson: str
    parts: list[Part] = field(default_factory=list)
    printed: io.StringIO = field(default_factory=io.StringIO)
    questions: list[str] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Adds a part below what was printed before it."""
        lines = self.printed.getvalue().strip("\n")
        self.printed.seek(0)
        self.printed.truncate()
        self.parts += [Part("printed", lines)] if lines else []
        self.parts.append(part)

    def code(self, source: str) -> None:
        """Adds the source of a function of the library."""
        self.add(Part("code", source))

    def table(self, title: str, table: Table) -> None:
        """Adds a table with its caption."""
        self._add_html(html_table(title, table))

    def report(self, report: Report) -> None:
        """Adds the tables of a report, and its sentences."""
        shown = render_report(report)
        for one in shown.renderables if isinstance(shown, Group) else [shown]:
            if isinstance(one, Table):
                self._add_html(html_table(str(one.title or ""), one))
            else:
                self.add(Part("printed", str(one).strip("\n")))

    def picture(self, name: str, picture: Picture) -> None:
        """Adds a picture in colour."""
        title = picture.to_text().split("\n", 1)[0]
        svg = picture.to_svg()
        values = {"title": title, "svg": Markup(titled(svg, title)), "width": width_of(svg)}
        self._add_html(render(PACKAGE, "picture.html", name=name, **values))

    def question(self, text: str, kind: Kind) -> None:
        """Adds a question, with a field for its answer where the page can keep it."""
        self.questions.append(text)
        self._add_html(
            render(
                PACKAGE,
                "question.html",
                key=self._key(text),
                text=text,
                units=json.dumps({name: float(size) for name, size in UNITS[kind].items()}),
                example=EXAMPLES[kind],
            )
        )

    def answer(self, text: str, measured: float, parts: Mapping[str, str], words: str) -> None:
        """Adds what is right, and what it is made of."""
        self._add_html(
            render(
                PACKAGE,
                "answer.html",
                key=self._key(text),
                right=RIGHT,
                measured=float(measured),
                words=words.split("\n", 1)[0],
                parts=parts,
            )
        )

    def _key(self, text: str) -> str:
        """The name of a question, under which a browser keeps what was predicted."""
        return f"{self.lesson}-{self.questions.index(text) + 1}"

    def _add_html(self, html: str) -> None:
        self.add(Part("html", "\n".join(line for line in html.splitlines() if line.strip())))


def record(path: Path) -> list[Part]:
    """Runs a lesson; returns the parts of its page."""
    recorder, namespace = Recorder(path.stem), namespace_of(path)
    with going_to(recorder), contextlib.redirect_stdout(recorder.printed):
        for cell in read_cells(path):
            if cell.kind == "markdown":
                recorder.add(Part("prose", cell.source))
            else:
                kind = "fold" if _only_shows(cell.source) else cell.kind
                recorder.add(Part(kind, cell.source.strip("\n")))
                cell.run(path, namespace)
    recorder.add(Part("prose", ""))
    return recorder.parts[:-1]


def _only_shows(source: str) -> bool:
    """Whether all that code does is to ask, or to show, what stands below it on the page."""
    calls = (getattr(statement, "value", None) for statement in ast.parse(source).body)
    return all(isinstance(call, ast.Call) and _name(call.func) in SHOWS for call in calls)


def _name(called: ast.expr) -> str:
    """The last part of the name of what is called."""
    return getattr(called, "attr", getattr(called, "id", ""))


if __name__ == "__main__":
    lesson_file, recorded_file = map(Path, sys.argv[1:])
    # `command` spells the program that a reader types.
    sys.argv[0] = "jaxpar"
    recorded_file.write_text(to_json(record(lesson_file)), encoding="utf-8")
