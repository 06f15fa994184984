"""Records what was proved in full, so that `make test` repeats only what has changed since.

Every test belongs to a subject: an exercise or a lesson where its mark `subject` names one, else
its own file. The record beside this file holds, for each subject, a hash of everything that its
proof depends on: the Python files that it reaches through imports, without comments and docstrings,
the data in their folders that they may read, and the versions of Python and JAX. Where that hash is
in the record, tests marked `full` are left out, and each test function runs with its first
parameters only; where it is not, everything runs. What is marked `always` is never left out: it
looks at files that no import shows.

`make test` and `make test-all` record each subject as soon as all of its tests have passed, so a
run that is stopped keeps what it has proved; a subject of which a test fails leaves the record.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections import Counter
from functools import cache
from importlib.metadata import version
from pathlib import Path

from jaxpar.course.catalog import EXERCISES, LESSONS

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("proofs.json")
JUDGE = ("jaxpar/grading/in_process.py", "tests/contracts/test_contracts.py")
EXERCISE = re.compile(r"jaxpar/contracts/\w+/(?!common\.|__init__\.)\w+\.py")
FOLDERS = ("jaxpar", "tests", "web")
OURS = re.compile(rf"(?:{'|'.join(FOLDERS)})(?:\.\w+)*")


def environment() -> str:
    """What a record holds for: the minor versions of Python and JAX."""
    minor = ".".join(version("jax").split(".")[:2])
    return f"python {sys.version_info[0]}.{sys.version_info[1]}, jax {minor}"


def contract_of(where: str) -> str:
    """The subject of an exercise: the file of its contract."""
    return where.partition("@")[0].replace(".", "/") + ".py"


def subjects() -> list[str]:
    """Every lesson, every exercise and every file of tests."""
    tests = (ROOT / "tests").rglob("test_*.py")
    return [
        *(lesson.file for lesson in LESSONS),
        *(contract_of(exercise.where) for exercise in EXERCISES),
        *(path.relative_to(ROOT).as_posix() for path in sorted(tests)),
    ]


@cache
def is_proved(subject: str) -> bool:
    """Whether a subject is as it was when it was last proved in full, with this Python and JAX."""
    return recorded().get(subject) == subject_hash(subject)


def recorded() -> dict[str, str]:
    """The hash of each subject when it was last proved in full, with this Python and JAX."""
    return _read().get(environment(), {})


@cache
def subject_hash(subject: str) -> str:
    """The hash of all that the proof of a subject depends on.

    Args:
        subject: a Python file, from the root: a lesson, a test, or the contract of an exercise.
    """
    files = set(_reached(subject))
    if EXERCISE.fullmatch(subject):
        files |= _reached(subject.replace("jaxpar/", "tests/", 1)) | _reached(JUDGE[0]) | {JUDGE[1]}
    parts = [f"{file} {_file_hash(file)}" for file in sorted(files | _data_beside(files))]
    return _hash("\n".join(parts))[:16]


class Recorder:
    """Records subjects during a run; their hashes are those from before it."""

    def __init__(self) -> None:
        """Takes the hash of every subject."""
        self._hashes = {name: subject_hash(name) for name in subjects()}
        self._passed: Counter[str] = Counter()
        self._failed: set[str] = set()

    def ended(self, subject: str, tests: int, *, passed: bool) -> None:
        """Takes the end of one test of a subject that has so many `tests`."""
        if not passed:
            self._failed.add(subject)
            self._write(subject, None)
            return
        self._passed[subject] += 1
        if self._passed[subject] == tests and subject not in self._failed:
            self._write(subject, self._hashes.get(subject))

    def _write(self, subject: str, value: str | None) -> None:
        """Sets what is recorded of a subject; None removes it, as it does what is no subject."""
        proved = recorded() | {subject: value}
        kept = {name: proved[name] for name in proved if name in self._hashes and proved[name]}
        text = json.dumps(_read() | {environment(): kept}, indent=1, sort_keys=True) + "\n"
        new = RECORD.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(RECORD)


def _read() -> dict[str, dict[str, str]]:
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


@cache
def _reached(file: str) -> frozenset[str]:
    """A file, the files of ours that it imports or names, the files that these name, and so on."""
    found, waiting = set(), [file]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += _named(here)
    return frozenset(found)


@cache
def _named(file: str) -> tuple[str, ...]:
    """The files of ours whose modules a file imports, or names in a text because it starts them."""
    names: set[str] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= _modules_in(node.value, file)
    return tuple(found for name in names for found in _files_of(name))


def _modules_in(text: str, file: str) -> set[str]:
    """The modules that a text names: a text that is a name; in a test, all names in the text."""
    if file.startswith("tests/"):
        return {"jaxpar.cli" if name == "jaxpar" else name for name in OURS.findall(text)}
    module = text.partition(":")[0]  # the path of a function
    return {module} if "." in module and OURS.fullmatch(module) else set()


def _data_beside(files: set[str]) -> set[str]:
    """The data that one of these files may read."""
    return {data for data, readers in _readers().items() if readers & files}


@cache
def _readers() -> dict[str, frozenset[str]]:
    """All files of ours that are not Python's, each with those that may read it.

    These are the Python files of its nearest package which name it, or all if none of them does.
    """
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))
    others = (path for path in files if "node_modules" not in path.parts and path != RECORD)
    data = (path for path in others if path.suffix not in (".py", ".pyc"))
    found = {}
    for path in data:
        beside = {one.relative_to(ROOT).as_posix() for one in _package_of(path).glob("*.py")}
        naming = {one for one in beside if path.name in (ROOT / one).read_text(encoding="utf-8")}
        found[path.relative_to(ROOT).as_posix()] = frozenset(naming or beside)
    return found


def _package_of(path: Path) -> Path:
    return next(parent for parent in path.parents if parent == ROOT or any(parent.glob("*.py")))


@cache
def _files_of(module: str) -> tuple[str, ...]:
    """The file of a module of ours, and the `__init__.py` of the packages around it."""
    parts = module.split(".")
    if parts[0] not in FOLDERS:
        return ()
    places = [Path(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    paths = [*(place / "__init__.py" for place in places), places[-1].with_suffix(".py")]
    return tuple(path.as_posix() for path in paths if (ROOT / path).is_file())


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@cache
def _file_hash(file: str) -> str:
    """The hash of what in a file can change a proof.

    Docstrings count in contracts only, where they are sentences for the learner.
    """
    if not file.endswith(".py"):
        return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
    tree = _tree(file)
    if not EXERCISE.fullmatch(file):
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and _is_text(body[0]):
                del body[0]
    return _hash(ast.dump(tree))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
