"""Derives stubs, which a learner starts from, from the library and the contracts."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jaxpar.contracts.base import Contract, load
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.command import command
from jaxpar.course.exercise_rules import rule_lines
from jaxpar.files import write_atomically
from jaxpar.grading.submission import Submission, is_stub

WIDTH = 100
HIDDEN_SECTIONS = ("Comm:", "Memory:")
STANDARD_NAMES = {"lax": "jax", "Array": "jax"}


def build(root: Path) -> list[str]:
    """Writes every stub that differs, but not over an answer; returns the names written."""
    written = []
    for row in EXERCISES:
        data, path = stub(row).encode(), root / row.file
        found = _read(path)
        if found != data and (not found or is_stub(Submission(path, found), row.id)):
            write_atomically(path, data)
            written.append(row.file)
    return written


def stale(root: Path) -> dict[str, str]:
    """Returns the files under `root` that differ from their stubs, each with what to do."""
    found = {row: _read(root / row.file) for row in EXERCISES}
    return {
        row.file: f"it holds an answer; `{command()} reset {row.id}` keeps a copy of it"
        if data and not is_stub(Submission(root / row.file, data), row.id)
        else f"run `{command()} dev build`"
        for row, data in found.items()
        if data != stub(row).encode()
    }


def stub(row: Exercise) -> str:
    """Returns the text of one stub."""
    contract = load(row.where)
    function = _definition(contract.reference)
    rules = list(rule_lines(contract))
    refuses = contract.errors or any(line.endswith("raises ValueError") for line in rules)
    hidden = HIDDEN_SECTIONS if refuses else (*HIDDEN_SECTIONS, "Raises:")
    comment = "\n".join(f"# {line}".rstrip() for line in rules)
    imports = _imports(contract, function)
    return "\n".join((
        _head(row, contract),
        comment,
        *(["", *imports] if imports else []),
        "",
        "",
        *_signature(function),
        textwrap.indent(f'"""{_docstring(contract.reference, hidden)}"""', "    ", _not_blank),
        *_body(contract.task),
        "",
    ))  # fmt: skip


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _head(row: Exercise, contract: Contract) -> str:
    title = f"Exercise {row.id} (lesson {row.lesson}): {row.title}."
    task = textwrap.fill(f"Your task: {contract.task}.", WIDTH - 1)
    way = f"Save it while `jaxpar` runs, or check it with `jaxpar check {row.id}`."
    return f'"""{title}\n\n{task}\n\n{way}\n"""\n'


def _definition(function: Callable) -> ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _annotations(function: ast.FunctionDef) -> list[ast.expr]:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    found = [*(argument.annotation for argument in arguments), function.returns]
    return [annotation for annotation in found if annotation is not None]


def _imports(contract: Contract, function: ast.FunctionDef) -> list[str]:
    """Returns the imports that the signature needs, and those that every SPMD answer uses."""
    names = {
        node.id: _origin(contract.reference, node.id)
        for annotation in _annotations(function)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name)
    }
    whole = {name for name in names if names[name] == name}
    named = {name: module for name, module in names.items() if name not in whole}
    if contract.kind in ("program", "specs"):
        whole.add("jax")
    if contract.kind == "program":
        named |= STANDARD_NAMES
        whole.add("jax.numpy as jnp")
    modules = {module: [n for n in named if named[n] == module] for module in named.values()}
    blocks: list[list[str]] = [[], [f"import {module}" for module in sorted(whole)], []]
    for module in sorted(set(modules) - {"builtins"}):
        line = f"from {module} import {', '.join(sorted(modules[module]))}"
        blocks[_isort_block(module)].append(line)
    return "\n\n".join("\n".join(block) for block in blocks if block).splitlines()


def _isort_block(module: str) -> int:
    """Returns the position of a module: Python's own first, then those of others, then ours."""
    package = module.partition(".")[0]
    return 0 if package in sys.stdlib_module_names else 1 + (package == "jaxpar")


def _origin(function: Callable, name: str) -> str:
    """Returns the module from which a stub must import `name`, or the name itself of a module."""
    module = inspect.getmodule(function)
    assert module is not None
    if name not in vars(module):
        return "builtins"
    if inspect.ismodule(vars(module)[name]):
        return name
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            return str(node.module)
    return module.__name__


def _signature(function: ast.FunctionDef) -> Iterator[str]:
    """Yields the lines of the signature, broken as the formatter would break them."""
    given = function.args
    parts = list(_with_defaults(given.args, given.defaults))
    named = list(_with_defaults(given.kwonlyargs, given.kw_defaults))
    parts = [part.replace("'", '"') for part in (*parts, *["*"][: len(named)], *named)]
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    returns = returns.replace("'", '"')
    line = f"def {function.name}({', '.join(parts)}){returns}:"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"def {function.name}("
    arguments = f"    {', '.join(parts)}"
    yield from [arguments] if len(arguments) <= WIDTH else [f"    {part}," for part in parts]
    yield f"){returns}:"


def _with_defaults(
    arguments: Sequence[ast.arg], defaults: Sequence[ast.expr | None]
) -> Iterator[str]:
    """Yields each argument as it is written; the last ones have these defaults."""
    none: list[ast.expr | None] = [None] * (len(arguments) - len(defaults))
    for argument, default in zip(arguments, [*none, *defaults], strict=True):
        yield ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _docstring(function: Callable, hidden_sections: tuple[str, ...]) -> str:
    """Returns the docstring without what the learner is to predict, and what is not judged."""
    kept: list[str] = []
    hidden = False
    for line in (inspect.getdoc(function) or "").splitlines():
        if line and not line.startswith(" "):
            hidden = line.startswith(hidden_sections)
        if not hidden or not line:
            kept.append(line)
    text = "\n".join(kept).strip()
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return f"{text}\n" if "\n" in text else text


def _body(task: str) -> list[str]:
    line = f'    raise NotImplementedError("{task}")'
    if len(line) <= WIDTH:
        return [line]
    return ["    raise NotImplementedError(", f'        "{task}"', "    )"]


def _not_blank(line: str) -> bool:
    return bool(line.strip())
