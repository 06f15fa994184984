"""The pages of the site as Markdown, by their paths."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jaxpar.course.catalog import LESSONS, Lesson
from jaxpar.course.folder import Course
from jaxpar.course.page import lesson_page, parts
from jaxpar.course.page_tasks import tasks
from jaxpar.grading.cache import environment
from web.explorers import FORMS, TITLES, exercise_page, explorer_page

ROOT = Path(__file__).parents[1]
GUIDES = (
    "docs/commands.md", "docs/site.md", "docs/notebooks.md", "docs/testing.md", "docs/classroom.md",
    "docs/cluster.md", "docs/benchmarks.md", "docs/predictions.md", "docs/design.md",
    "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md",
)  # fmt: skip
HOME = """\
# jaxpar

How are models trained that are too large for one device? Here you write the parallel programs
yourself, in JAX, and predict what they cost before you measure it. A judge reads what you wrote:
it counts what each device sends, computes and holds, and says which known mistake an answer is.

It is for people who have trained a network on one device, in PyTorch, in JAX or in anything else.
What it uses of JAX is explained where it is first used. No GPU is needed: eight simulated devices
take the place of eight real ones.

A lesson first asks what a program will send or hold. What was measured opens when you have
predicted it, or have chosen to look. Then come the exercises. Begin with lessons 01 to 05. What
each of the others builds on stands beside it, so that you can go straight to what you need.

[Read a lesson](lessons/{first}.md){{ .md-button .md-button--primary }}
[Change a schedule](explorers/schedule.md){{ .md-button }}
[Solve an exercise](exercises/{exercise}.md){{ .md-button }}

To write programs for eight simulated devices on your own machine, you need Linux, macOS or
Windows, and Python 3.11 or newer. In a clone of the project, type `make learn`.

## Lessons

| | lesson | after | minutes | exercises |
|---|---|---|---:|---:|
{lessons}

## Explorers

Each runs the library itself, in your browser. Its address keeps what you chose, so that you can
send it to somebody.

{explorers}

## Exercises without an installation

These are judged in the page, by the judge that everybody installs. What you solved here moves into
a course folder by a text that you copy. The other exercises need JAX, and so an installation.

{exercises}
"""
EXPLORED = {
    "01": ("layout",), "02": ("collectives",), "03": ("collectives",), "04": ("memory",),
    "08": ("memory",), "09": ("memory",), "10": ("memory", "layout"), "11": ("layout",),
    "15": ("schedule",), "16": ("schedule",), "18": ("memory",), "19": ("memory",),
}  # fmt: skip
"""The explorers that belong to a lesson."""
SOURCE = re.compile(r"\[([^\]]*)\]\(\.\./jaxpar/[^)]*\)")


def pages(kept: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the section, the path and the Markdown of each page, in their order.

    Args:
        kept: the folder with the parts of lessons that have run already.
    """
    yield "", "index.md", _home()
    course = Course(ROOT)
    for row in LESSONS:
        title, *rest = _parts(course, row, kept)
        shown = [title, parts.Part("prose", _beside(row)), *rest]
        yield "Lessons", f"lessons/{row.name}.md", lesson_page.to_markdown(shown)
    for name in FORMS:
        yield "Explorers", f"explorers/{name}.md", explorer_page(name)
    for task in tasks():
        yield "Exercises", f"exercises/{task['id']}.md", exercise_page(task["id"])
    for path in GUIDES:
        yield "Guides", path, SOURCE.sub(r"\1", (ROOT / path).read_text(encoding="utf-8"))


def _home() -> str:
    judged = tasks()
    return HOME.format(
        first=LESSONS[0].name,
        exercise=judged[0]["id"],
        lessons="\n".join(
            f"| {row.number} | [{row.title}](lessons/{row.name}.md) | {', '.join(row.needs)} "
            f"| {row.minutes} | {len(row.asks)} |"
            for row in LESSONS
        ),
        explorers="\n".join(f"- [{TITLES[name]}](explorers/{name}.md)" for name in FORMS),
        exercises="\n".join(
            f"- [{task['title']}](exercises/{task['id']}.md) (lesson {task['lesson']})"
            for task in judged
        ),
    )


def _beside(row: Lesson) -> str:
    """What else the site has for a lesson: an explorer, and exercises that a page judges."""
    links = [f"[{TITLES[name]}](../explorers/{name}.md)" for name in EXPLORED.get(row.number, ())]
    links += [
        f"[solve `{task['id']}` in the page](../exercises/{task['id']}.md)"
        for task in tasks()
        if task["lesson"] == row.number
    ]
    return f"*Beside this lesson:* {', '.join(links)}." if links else ""


def _parts(course: Course, row: Lesson, kept: Path) -> list[parts.Part]:
    """The parts of a lesson; it runs unless nothing has changed since it last did."""
    digest = hashlib.sha256(_library() + course.file(row).read_bytes()).hexdigest()
    file = kept / f"{row.name}-{digest[:16]}.json"
    if not file.is_file():
        print(f"lesson {row.number} runs", flush=True)
        recorded = parts.to_json(lesson_page.lesson_parts(course, row))
        kept.mkdir(parents=True, exist_ok=True)
        for old in kept.glob(f"{row.name}-*.json"):
            old.unlink()
        file.write_text(recorded, encoding="utf-8")
    return parts.from_json(file.read_text(encoding="utf-8"))


@cache
def _library() -> bytes:
    """A hash of the library, and of the packages that it runs on."""
    digest = hashlib.sha256(environment().encode())
    for file in sorted((ROOT / "jaxpar").rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(file.read_bytes())
    return digest.digest()
