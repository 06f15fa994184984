"""Write what README.md, docs/commands.md and docs/design.md derive from the project itself.

A generated part stands between `<!-- NAME -->` and `<!-- end of NAME -->`; what surrounds it is
written by hand. Run this from anywhere with `python docs/generate.py`; a test holds the pages
against what it would write.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from jaxpar.cli import app
from jaxpar.course.catalog import LESSONS, PLANNED

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jaxpar"


def pages() -> dict[Path, str]:
    """Return every page that has generated parts, as it must be.

    Raises:
        ValueError: a page has no place for a part, or has a place for an unknown one.
    """
    return {
        path: _filled(path, parts)
        for path, parts in (
            (ROOT / "README.md", {"lessons": lessons()}),
            (ROOT / "docs" / "commands.md", commands()),
            (ROOT / "docs" / "design.md", {"layers": layers(), "files": files()}),
        )
    }


def lessons() -> str:
    """Return the table of lessons with their exercises, and the lessons that are planned."""
    rows = [
        [row.number, f"[{row.title}]({row.file})", ", ".join(f"`{one.id}`" for one in row.asks)]
        for row in LESSONS
    ]
    planned = [f"{number} {topic}" for number, topic in PLANNED.items()]
    table = _table(["#", "lesson", "exercises"], rows)
    return f"{table}\n\nPlanned: {', '.join(planned)}."


def commands() -> dict[str, str]:
    """Return what the help says of each command, by the command."""
    return {name: _described(name, command) for name, command in _commands("jaxpar", _group())}


def layers() -> str:
    """Return the table of the packages, in the layers that import-linter holds."""
    rows = [
        [str(number), f"`{path.relative_to(PACKAGE)}{'/' * path.is_dir()}`", summary(path)]
        for number, layer in enumerate(_layers(), 1)
        for path in layer
    ]
    return _table(["layer", "package", "what it is"], rows)


def files() -> str:
    """Return a table of the files in each folder, packages in the order of their layers."""
    packages = [path for layer in _layers() for path in layer if path.is_dir()]
    parts = []
    for top in (PACKAGE, *packages):
        folders = [top] if top == PACKAGE else [top, *_folders(top)]
        for folder in folders:
            rows = [[f"`{path.name}`", summary(path)] for path in _files(folder)]
            parts += [
                f"### {folder.relative_to(ROOT)}/",
                f"{summary(folder) or 'Files that are no modules'}.",
                _table(["file", "what it is"], rows),
            ]
    return "\n\n".join(parts)


def summary(path: Path) -> str:
    """Return what a module, a package or a data file says of itself first, without full stop.

    That is the first line of a docstring, or the first sentence of a file's first comment.
    """
    if path.is_dir():
        path /= "__init__.py"
    text = path.read_text("utf-8") if path.exists() else ""
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].removesuffix(".")
    comment = re.search(r"(?:^\{?# .*\n)+", text, re.MULTILINE)
    words = re.sub(r"^\{?#|#\}$", "", comment[0], flags=re.MULTILINE).split() if comment else []
    return " ".join(words).partition(". ")[0].removesuffix(".")


def _layers() -> Iterator[list[Path]]:
    """Yield the packages and modules of each layer, from the top down; one may be still missing."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["type"] == "layers")
    for layer in contract["layers"]:
        names = [name.strip(" ()") for name in re.split(r"[|:]", layer)]
        places = [PACKAGE / f"{name}{end}" for name in names for end in ("", ".py")]
        yield [path for path in places if path.exists()]


def _folders(top: Path) -> list[Path]:
    """Return the folders below a package that hold files, without caches."""
    return sorted(path for path in top.rglob("*") if path.is_dir() and list(_files(path)))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the modules of a folder but `__init__`, which speaks for the folder, and its data."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith((".", "__init__.")) or path.suffix == ".pyc"
        if path.is_file() and not hidden:
            yield path


def _group() -> Any:
    return typer.main.get_command(app)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command that can be typed, with its name in full."""
    children = getattr(command, "commands", {})
    if not children or getattr(command, "invoke_without_command", False):
        yield name, command
    for child in children:
        yield from _commands(f"{name} {child}", children[child])


def _described(name: str, command: Any) -> str:
    """Return the usage of a command, its help, and its arguments and options."""
    params = [one for one in command.params if not one.hidden and one.name != "help"]
    arguments = [one for one in params if not one.opts[0].startswith("-")]
    words = [
        name,
        *(_value(one) if one.required else f"[{_value(one)}]" for one in arguments),
        *(_option(one) for one in params if one.required and one not in arguments),
        *["[OPTIONS]"] * (len(params) > len(arguments)),
    ]
    rows = [[f"`{_option(one)}`", one.help or "", _default(one)] for one in params]
    parts = [f"```\n{' '.join(words)}\n```", _paragraphs(command.help)]
    parts += [_table(["", "what it says", "unless given"], rows)] if rows else []
    return "\n\n".join([*parts, *_examples(command.epilog or "")])


def _paragraphs(text: str) -> str:
    """Return the help as Markdown, a paragraph on a line: Markdown keeps no other breaks."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _examples(epilog: str) -> Iterator[str]:
    r"""Yield the commands of an epilog, which begins with \b: its lines stay as they are."""
    lines = [line.strip() for line in epilog.strip("\b\n").splitlines()]
    examples = [line for line in lines if line.startswith("jaxpar ")]
    if examples:
        yield "\n".join(["```", *examples, "```"])


def _value(param: Any) -> str:
    """Return what stands for the value of an argument or option."""
    return param.metavar or param.name.upper()


def _option(param: Any) -> str:
    """Return an option with all its names, or an argument, as they are typed."""
    if not param.opts[0].startswith("-"):
        return _value(param)
    names = ", ".join([*param.opts, *param.secondary_opts])
    return names if param.is_flag else f"{names} {_value(param)}"


def _default(param: Any) -> str:
    """Return what holds where the option is not given, if that is a value."""
    if getattr(param, "is_flag", False):
        return f"`{param.opts[0]}`" if param.default and param.secondary_opts else ""
    return "" if param.default in (None, ()) else f"`{param.default}`"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
    )


def _filled(path: Path, parts: dict[str, str]) -> str:
    """Return a page with its generated parts as they must be."""
    text = path.read_text("utf-8")
    found = re.findall(r"^<!-- end of (.*) -->$", text, re.MULTILINE)
    if sorted(found) != sorted(parts):
        missing, unknown = sorted(set(parts) - set(found)), sorted(set(found) - set(parts))
        raise ValueError(
            f"{path.relative_to(ROOT)}: no place for {missing}, and one for {unknown}; each part "
            "has one place, between `<!-- NAME -->` and `<!-- end of NAME -->`"
        )
    for name, part in parts.items():
        place = rf"(?<=^<!-- {name} -->\n).*(?=^<!-- end of {name} -->$)"
        text = re.sub(
            place, lambda _, part=part: f"\n{part}\n\n", text, flags=re.DOTALL | re.MULTILINE
        )
    return text


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, "utf-8")
