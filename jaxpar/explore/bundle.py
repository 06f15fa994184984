"""Packs what a browser needs of the library: the modules behind the forms, and their data."""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from jaxpar.explore import FORMS
from jaxpar.explore.verdict import JUDGED, contract_of

PACKAGE = Path(__file__).parents[1]
DATA = ("cost/hardware.toml", "cost/models.toml", "explore/frames.json")
STAND_INS = "explore/browser"
"""What a browser has in place of packages that it cannot have."""
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold


def bundle() -> bytes:
    """A zip to be put on the path of a browser's Python; equal files give equal bytes."""
    files = {f"jaxpar/{name}": PACKAGE / name for name in DATA}
    files |= {str(path.relative_to(PACKAGE.parent)): path for path in modules().values()}
    stand_ins = PACKAGE / STAND_INS
    files |= {str(path.relative_to(stand_ins)): path for path in stand_ins.rglob("*.py")}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name.replace("\\", "/"), FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name].read_bytes())
    return packed.getvalue()


def modules() -> dict[str, Path]:
    """The modules that the forms import, with those that these import, and so on."""
    waiting = ["jaxpar.explore.html", *(f"jaxpar.explore.{name}" for name in FORMS)]
    waiting += [contract_of(id) for ids in JUDGED.values() for id in ids]
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *_imports(ast.parse(path.read_bytes()).body)]
    return found


def _file(name: str) -> Path | None:
    """The file of a module of this package, if it is one."""
    top, _, rest = name.partition(".")
    if top != PACKAGE.name:
        return None
    path = PACKAGE.joinpath(*rest.split(".")) if rest else PACKAGE
    paths = path / "__init__.py", path.with_suffix(".py")
    return next((path for path in paths if path.is_file()), None)


def _imports(statements: list[ast.stmt]) -> Iterator[str]:
    """What statements import when a module is; a function imports its own when it is called."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) != "TYPE_CHECKING":
            yield from _imports(statement.body + statement.orelse)
