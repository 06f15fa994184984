"""Pages of the explorers, and of the exercises that are judged in the page, as Markdown."""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from jaxpar.course.catalog import exercise, lesson
from jaxpar.course.page_tasks import tasks
from jaxpar.explore import answer, collectives, defaults, layout, memory, schedule
from jaxpar.explore.html import answer_html

TEMPLATES = Path(__file__).with_name("templates")
FORMS = {"schedule": schedule, "memory": memory, "layout": layout, "collectives": collectives}
"""The modules of the explorers, by the names of their forms."""
TITLES = {
    "schedule": "Explore pipeline schedules",
    "memory": "Explore memory and plans",
    "layout": "Explore layouts",
    "collectives": "Explore collectives",
}
ABOUT = {
    "schedule": "Each row is a device of a pipeline, and each cell is what it computes for one "
    "microbatch. Beneath them stands how many activations each device keeps in flight.",
    "memory": "The bars show what one step of training stores on the fullest device, and what its "
    "time goes to. Change the mesh, the ZeRO stage or what is recomputed, and see what fits.",
    "layout": "An array is split over the devices of a mesh by giving axes of the mesh to dims of "
    "the array. The picture shows which block each device then holds.",
    "collectives": "Each step shows what every device sends and receives. A letter stands for the "
    "part of one device, so that a sum of four parts reads abcd.",
}


def explorer_page(name: str) -> str:
    """The page of an explorer, which shows the answer to its controls as they are at first.

    Args:
        name: the name of its form, as in `jaxpar.explore`.

    Raises:
        ValueError: the first form has no answer.
    """
    controls = FORMS[name].CONTROLS
    first = answer(name, defaults(controls))
    if "error" in first:
        raise ValueError(f"explorer {name}: {first['error']}; mend the defaults of its controls")
    drawn = {"svg", "numbers", "notes", "tables"}
    kept = {field: value for field, value in first.items() if field not in drawn}
    return _render(
        "explorer.md",
        name=name,
        title=TITLES[name],
        about=ABOUT[name],
        controls=controls,
        answer_html=Markup(answer_html(first)),
        first=Markup(json.dumps(kept, allow_nan=False).replace("<", "\\u003c")),
    )


def exercise_page(id: str) -> str:
    """The page of an exercise: its task, an editor that holds its stub, hints, and its verdict.

    Raises:
        ValueError: no exercise with this id is judged in a page.
    """
    task = _tasks().get(id)
    if not task:
        raise ValueError(f"exercise {id}: no page judges it; use one of {', '.join(_tasks())}")
    stub = task["stub"]
    return _render(
        "exercise.md",
        exercise=task,
        lesson=lesson(task["lesson"]),
        title=_capital(task["title"]),
        task=f"{_capital(task['task'])}.",
        file=exercise(id).file,
        rows=stub.count("\n") + 2,
        stub=_without_blank_lines(stub),
    )


@cache
def _tasks() -> dict[str, dict[str, Any]]:
    return {task["id"]: task for task in tasks()}


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _code(text: str) -> Markup:
    """Text as HTML in which what stands between backticks is code, as in Markdown."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)))


def _without_blank_lines(text: str) -> Markup:
    """The text as HTML without blank lines, which would end the HTML within Markdown."""
    return Markup(escape(text).replace("\n\n", "\n&#10;"))


def _render(template: str, **values: object) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = _code
    return environment.get_template(template).render(**values)
