"""The house style that ruff does not check: ASCII, old JAX idioms, and docstring sections."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.always

ROOT = Path(__file__).parents[1]
FOLDERS = ("jaxpar", "tests", "benchmarks", "lessons", "exercises", "web")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

OLD_NAMES = {
    "PRNGKey",
    "device_put_replicated",
    "device_put_sharded",
    "pbroadcast",
    "pjit",
    "pvary",
    "xmap",
}
OLD_PATHS = ("jax.experimental.shard_map", "jax.experimental.pjit", "jax.tree_map")
HISTORY_LESSONS = ("01", "02")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def dotted(node: ast.AST) -> str:
    """Returns the dotted name of an attribute or a name, as in `a.b.c`, else the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def old_idioms(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of every JAX idiom that the project does not use."""
    history = path.parent.name == "lessons" and path.name.startswith(HISTORY_LESSONS)
    banned = OLD_NAMES if history else OLD_NAMES | {"pmap"}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted(node)
            if name in OLD_PATHS or name.rpartition(".")[2] in banned:
                yield node.lineno, name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in banned or f"{node.module}.{alias.name}".startswith(OLD_PATHS):
                    yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.startswith(OLD_PATHS))
        elif isinstance(node, ast.keyword):
            unchecked = isinstance(node.value, ast.Constant) and node.value.value is False
            unchecked = unchecked and not history  # lesson 02 shows what the check prevents
            if node.arg == "check_rep" or (node.arg == "check_vma" and unchecked):
                yield node.value.lineno, f"{node.arg}="
        elif isinstance(node, ast.With):
            for item in node.items:
                if dotted(item.context_expr).rpartition(".")[2].endswith("mesh"):
                    yield node.lineno, "with mesh:"


def public_functions(folder: str) -> list[tuple[Path, ast.FunctionDef]]:
    """Return the public functions of the public modules of a package."""
    return [
        (path, node)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.name.startswith("_")
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


def test_lines_are_short_and_ascii() -> None:
    wrong = [
        place(path, number)
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100 or not line.isascii()
    ]
    assert not wrong


def test_current_jax_only() -> None:
    wrong = [f"{place(path, line)} {name}" for path in FILES for line, name in old_idioms(path)]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "from jax.experimental.shard_map import shard_map",
        "import jax.experimental.pjit",
        "jax.tree_map(f, x)",
        "jax.random.PRNGKey(0)",
        "from jax import pmap",
        "jax.shard_map(f, check_vma=False)",
        "with self.mesh:\n    pass",
    ],
)
def test_an_old_idiom_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(line)
    assert list(old_idioms(tmp_path / "old.py"))


@pytest.mark.parametrize("folder", ["jaxpar/collectives", "jaxpar/parallel", "jaxpar/long_run"])
def test_parallel_functions_say_what_they_send_and_hold(folder: str) -> None:
    """A function that takes no arrays sends nothing, and need not say so."""
    wrong = [
        f"{place(path, node.lineno)} {node.name}: {section}"
        for path, node in public_functions(folder)
        for section in ("Source:", *["Comm:", "Memory:"] * ("Array" in ast.unparse(node.args)))
        if section not in (ast.get_docstring(node) or "")
    ]
    assert not wrong


LIGHT = [folder for folder in ("cost", "schedules") if (ROOT / "jaxpar" / folder).is_dir()]


@pytest.mark.parametrize("folder", ["", *LIGHT])
def test_imports_nothing_heavy(folder: str) -> None:
    """In a fresh process, `jaxpar` alone brings no JAX and no numpy, formulas bring no JAX."""
    files = sorted((ROOT / "jaxpar" / folder).glob("*.py")) if folder else []
    modules = ["jaxpar", *(f"jaxpar.{folder}.{path.stem}" for path in files)]
    code = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    assert not ({"jax"} if folder else {"jax", "numpy"}) & set(loaded.stdout.split())
