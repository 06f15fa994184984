"""A lesson as a page: one HTML file that loads nothing, or Markdown for the site."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from jaxpar.course.catalog import BadUseError, Lesson
from jaxpar.course.command import command
from jaxpar.course.folder import Course
from jaxpar.course.page.parts import Part, from_json
from jaxpar.drawing.pages import render
from jaxpar.files import write_atomically

PACKAGE = "jaxpar.course.page"
IMPORTS = "What this lesson imports"
FOLDED = "Code that asks, draws or checks"


def lesson_parts(course: Course, row: Lesson) -> list[Part]:
    """Runs a lesson in a process of its own; returns the parts of its page.

    Raises:
        BadUseError: the lesson is missing, or it failed.
    """
    path = course.file(row)
    if not path.is_file():
        raise BadUseError(f"lesson: {path} is missing; `{command()} init` puts it back")
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder) / "parts.json"
        ran = subprocess.run(
            [sys.executable, "-m", "jaxpar.course.page.recorder", path, recorded],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            why = (ran.stderr.strip() or f"exit code {ran.returncode}").splitlines()[-1]
            raise BadUseError(f"lesson: {path} failed ({why}); `{command()} lesson` shows where")
        return from_json(recorded.read_text(encoding="utf-8"))


def write_page(course: Course, row: Lesson, path: Path) -> None:
    """Runs a lesson, and writes it as one file that stands alone.

    Raises:
        BadUseError: the lesson is missing or failed, or the file cannot be written.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise BadUseError(
            f"lesson: --html: cannot write {path}; name a file in a folder that exists"
        )
    page = to_html(row, lesson_parts(course, row))
    try:
        write_atomically(path, page.encode(), public=True)
    except OSError as error:
        raise BadUseError(f"lesson: --html: cannot write {path} ({error.strerror})") from None


def to_html(row: Lesson, parts: Sequence[Part]) -> str:
    """One file with everything in it."""
    light, dark = (HtmlFormatter(style=name) for name in ("xcode", "github-dark"))
    return render(
        PACKAGE,
        "lesson.html",
        title=f"Lesson {row.number}: {row.title.lower()}",
        body=Markup("\n".join(_html(part, *_fold(parts, part)) for part in parts)),
        style=Markup(resource("page.css")),
        script=Markup(resource("predict.js")),
        highlight=Markup(light.get_style_defs(".highlight")),
        dark_highlight=Markup(dark.get_style_defs(".highlight")),
    )


def to_markdown(parts: Sequence[Part]) -> str:
    """Markdown in which all but prose and code is HTML."""
    return "\n\n".join(_markdown(part, *_fold(parts, part)) for part in parts) + "\n"


def resource(name: str) -> str:
    """The text of a file that pages of lessons need."""
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _fold(parts: Sequence[Part], part: Part) -> tuple[str, ...]:
    """What stands in place of a part until it is opened, if it is folded."""
    if part is next((one for one in parts if one.kind == "code"), None):
        return (IMPORTS,)
    return (FOLDED,) if part.kind == "fold" else ()


def _html(part: Part, fold: str = "") -> str:
    match part.kind:
        case "prose":
            return _prose(part.text)
        case "html":
            return part.text
        case "printed":
            return f'<pre class="printed" tabindex="0">{escape(part.text, quote=False)}</pre>'
    code = highlight(part.text, PythonLexer(), HtmlFormatter()).replace("<pre", '<pre tabindex="0"')
    return f"<details><summary>{fold}</summary>\n{code}</details>" if fold else code


def _prose(text: str) -> str:
    """Markdown as HTML whose headings have names, as those of the site have."""
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = reader.parse(text)
    for heading, content in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            words = re.sub(r"[^\w\s-]", "", content.content.lower())
            heading.attrSet("id", re.sub(r"[\s-]+", "-", words).strip("-"))
    return reader.renderer.render(tokens, reader.options, {})


def _markdown(part: Part, fold: str = "") -> str:
    match part.kind:
        case "prose":
            return part.text.replace("<details>", '<details markdown="1">')
        case "html":
            return part.text
        case "printed":
            return f"```text\n{part.text}\n```"
    code = f"```python\n{part.text}\n```"
    if not fold:
        return code
    return f'<details markdown="1"><summary>{fold}</summary>\n\n{code}\n\n</details>'
