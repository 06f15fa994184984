"""Writes the skeleton of a new exercise: contract, answers, library function and catalog row.

`jaxpar dev new` calls this for those who write the course.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from string import Template

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES, BadUseError, Lesson, lesson
from jaxpar.files import write_atomically

TEMPLATES = Path(__file__).with_name("templates") / "exercise"
NEEDED = {"Array": "jax", "lax": "jax", "Float": "jaxtyping"}
CATALOG = "jaxpar/course/catalog.py"
ROW = """\
    Exercise(
        id="{id}", lesson="{number}", kind="program", minutes=20,
        title="{title}",
    ),
"""


def write_skeleton(root: Path, topic: str, id: str) -> list[str]:
    """Writes a program exercise that passes its own tests, to be changed into another.

    Its function is appended to the library module of the topic's last exercise.

    Args:
        root: the folder of the project.
        topic: the topic of the lesson, or its number.
        id: the name of the exercise and of its function.

    Returns:
        The files written, as they are called from `root`.

    Raises:
        BadUseError: there is no such lesson, or the name is taken or cannot name a function.
    """
    row = lesson(topic)
    _check_name(id)
    words = {"id": id, "title": id.replace("_", " "), "module": _library_module(row)}
    library = words["module"].replace(".", "/") + ".py"
    texts = {
        f"jaxpar/contracts/{row.topic}/{id}.py": _filled("contract", words),
        f"tests/contracts/{row.topic}/{id}.py": _filled("answers", words),
        library: _with_imports((root / library).read_text(encoding="utf-8"))
        + _filled("library", words),
        CATALOG: _with_row((root / CATALOG).read_text(encoding="utf-8"), row, words),
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(root / name, text.encode())
    return list(texts)


def _check_name(id: str) -> None:
    if not id.isidentifier() or not id.islower():
        raise BadUseError(
            f"dev new: {id!r} is no name of a function; use lower case and underscores"
        )
    if id in {exercise.id for exercise in EXERCISES}:
        raise BadUseError(f"dev new: there is an exercise {id} already; choose another name")


def _library_module(row: Lesson) -> str:
    """Returns the module that defines the reference of the lesson's last program exercise."""
    references = (load(asked.where).reference for asked in row.asks if asked.kind == "program")
    found = [inspect.unwrap(reference).__module__ for reference in references]
    return found[-1] if found else f"jaxpar.parallel.{row.topic}"


def _filled(name: str, words: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{name}.py.txt").read_text(encoding="utf-8")).substitute(words)


def _with_imports(source: str) -> str:
    """The source of a library module, with what the function of the skeleton needs imported."""
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    bound = {alias.asname or alias.name for node in imports for alias in node.names}
    lines = source.splitlines(keepends=True)
    place = max(node.end_lineno or 0 for node in imports)
    needed = [
        f"from {origin} import {name}\n" for name, origin in NEEDED.items() if name not in bound
    ]
    return "".join([*lines[:place], *needed, *lines[place:]])


def _with_row(catalog: str, row: Lesson, words: dict[str, str]) -> str:
    """The catalog with one row more, behind the last exercise of the lesson."""
    last = row.asks[-1].id
    start = catalog.index(f'id="{last}"')
    end = catalog.index("    ),\n", start) + len("    ),\n")
    return catalog[:end] + ROW.format(number=row.number, **words) + catalog[end:]
