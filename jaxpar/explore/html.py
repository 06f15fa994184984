"""Answers of the explorers as HTML: when the site is built, and by the same code in the browser."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from jaxpar.drawing.inline_svg import titled, width_of
from jaxpar.explore import answer

NUMERIC = ' class="numeric"'


def answer_json(name: str, form: str) -> str:
    """The answer to a form in JSON, as JSON of the answer and of its HTML."""
    answered = answer(name, json.loads(form))
    return json.dumps({"answer": answered, "html": answer_html(answered)}, allow_nan=False)


def answer_html(answered: dict[str, Any]) -> str:
    """What an answer shows: its picture, its numbers, what is to be noted, and its tables.

    No line is blank, since a blank line ends HTML within Markdown.
    """
    return "\n".join(line for part in _parts(answered) for line in part.splitlines() if line)


def _parts(answered: dict[str, Any]) -> Iterator[str]:
    if "svg" in answered:
        yield _picture(answered["svg"], answered["title"])
    if answered.get("numbers"):
        rows = "\n".join(
            f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>"
            for label, value in answered["numbers"]
        )
        yield f'<dl class="numbers">\n{rows}\n</dl>'
    if answered.get("notes"):
        notes = "\n".join(f"<li>{escape(note)}</li>" for note in answered["notes"])
        yield f'<ul class="notes">\n{notes}\n</ul>'
    for table in answered.get("tables", ()):
        yield _table(**table)


def _picture(svg: str, title: str) -> str:
    """A picture that shrinks a little to fit, and scrolls within the page beyond that."""
    width = f'style="--width: {width_of(svg)}px"'
    attributes = f'class="picture" {width} tabindex="0" role="region" aria-label="{escape(title)}"'
    return f"<div {attributes}>\n{titled(svg, title)}\n</div>"


def _table(title: str, headers: list[str], rows: list[list[str]], numeric: list[bool]) -> str:
    """A table with its caption; numeric columns are aligned at the right."""
    head = _row("th", headers, numeric, ' scope="col"')
    body = "\n".join(_row("td", row, numeric) for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">\n'
        f'<table class="figures">\n'
        f"<caption>{escape(title)}</caption>\n"
        f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(tag: str, cells: list[str], numeric: list[bool], more: str = "") -> str:
    written = "".join(
        f"<{tag}{NUMERIC if is_number else ''}{more}>{escape(cell)}</{tag}>"
        for cell, is_number in zip(cells, numeric, strict=True)
    )
    return f"<tr>{written}</tr>"
