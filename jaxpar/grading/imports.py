"""What an answer may import, checked in its text and again while it runs.

The worker calls these functions: it refuses a file by its text, and then closes the library to the
code that it runs. The list of allowed imports is also printed in the stubs.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeGuard

LIBRARIES = ("jax", "numpy", "optax", "flax", "jaxtyping", "jaxpar.mesh")
STANDARD = (
    "__future__", "collections", "dataclasses", "functools", "itertools", "math", "operator",
    "typing",
)  # fmt: skip
SHOWN = 80  # characters of a name, or of a line
CONFLICT_MARKERS = ("<<<<<<< ", ">>>>>>> ")
CONFLICT = (
    "This is a conflict marker: git could not merge two versions, and wrote both of them here. "
    "Keep the lines of one, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>."
)
DENIED_EVENTS = (
    "subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
    "os.system", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree",
    "socket.connect", "socket.bind", "os.kill", "ctypes.dlopen", "ctypes.dlsym",
    "ctypes.dlsym/handle",
)  # fmt: skip

READS = ("open", "os.listdir", "os.scandir")
PYTHONS_OWN = ("/dev/null", "/dev/urandom", "/etc/localtime", "/usr/lib", "/proc/cpuinfo")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def refused_text(text: str, extra: Sequence[str]) -> str:
    """Why a file is not run, from its text alone: its syntax or its imports; empty if it may run.

    Parsing a stranger's file may take much time and memory, so only a process with limits may call
    this.
    """
    try:
        refused = refused_import(text, extra)
    except SyntaxError as error:
        return _syntax_error(text, error)
    except (ValueError, RecursionError, MemoryError) as error:
        return f"Python cannot parse the file: {type(error).__name__}: {error}"
    if refused is None:
        return ""
    line, name = refused
    allowed = allowed_in_words(extra)
    return f"line {line}: an answer may not import {name[:SHOWN]}; it may import {allowed}"


def _syntax_error(text: str, error: SyntaxError) -> str:
    """What is wrong with the text: with its first conflict marker, or where Python stops."""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.startswith(CONFLICT_MARKERS):
            return f"line {number}: {line[:SHOWN]}\n{CONFLICT}"
    number = error.lineno or 0
    where = f"line {number}: SyntaxError: {error.msg}"
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    if not line.strip() or len(line) > SHOWN:
        return where
    caret = f"\n  {' ' * (error.offset - 1)}^" if error.offset else ""
    return f"{where}\n  {line}{caret}"


def refused_import(text: str, extra: Sequence[str]) -> tuple[int, str] | None:
    """The line and the name of the first import that is not allowed, if there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as those about escapes in the learner's strings
        tree = ast.parse(text)
    for line, name in _imports(tree):
        if not _allowed(name, extra):
            return line, name
    return None


def allowed_in_words(extra: Sequence[str]) -> str:
    """Returns what may be imported, as a list for a message."""
    return ", ".join((*LIBRARIES, *extra)) + " and, of Python's own, " + ", ".join(STANDARD[1:])


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        waiting += node.orelse if _only_as_a_script(node) else ast.iter_child_nodes(node)


def _only_as_a_script(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether it is `if __name__ == "__main__":`, whose body never runs in an answer."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _allowed(name: str, extra: Sequence[str]) -> bool:
    if any(part.startswith("_") for part in name.split(".") if part != "__future__"):
        return False
    return any(name == ok or name.startswith(f"{ok}.") for ok in (*LIBRARIES, *STANDARD, *extra))


class _Closed:
    """An import finder that refuses every module of jaxpar that is not loaded yet."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.split(".")[0] == "jaxpar":
            raise ImportError(f"an answer may not import {name}")
        return None


def close_library(reference: str, extra: Sequence[str]) -> None:
    """Makes the reference raise, and the rest of the library unreachable by import or open.

    This keeps honest answers honest; only a sandbox can hold code that sets out to get round it.
    The modules in `extra` stay reachable and must have been imported already. Nothing undoes this
    within the process.
    """
    _replace_reference(reference)
    for name in [n for n in sys.modules if n.split(".")[0] == "jaxpar"]:
        if name not in ("jaxpar", "jaxpar.mesh") and not _needed(name, extra):
            del sys.modules[name]
    sys.meta_path.insert(0, _Closed())
    library = str(Path(__file__).resolve().parents[1])
    readable = _readable(library)

    def audit(event: str, args: tuple) -> None:
        if event == "open" and args[2] & WRITES and args[0] != os.devnull:
            raise PermissionError("an answer may not write to files")
        if event in READS and isinstance(args[0], str | bytes):
            path = os.path.realpath(os.fsdecode(args[0]))
            if path.startswith(library):
                raise PermissionError(f"an answer may not read {os.path.basename(path)}")
            if not f"{path}/".startswith(readable):  # in the same words, whether it is there or not
                raise PermissionError("an answer may not read files")
        if event in DENIED_EVENTS:
            raise PermissionError(f"an answer may not call {event}")

    sys.addaudithook(audit)


def _readable(library: str) -> tuple[str, ...]:
    """Returns what Python itself reads while an answer runs: modules, and its devices."""
    folders = {sys.prefix, sys.base_prefix, *sys.path} - {"", os.path.dirname(library)}
    below = (os.path.join(os.path.realpath(folder), "") for folder in folders)
    return *(folder for folder in below if folder not in ("/", "/usr/")), *PYTHONS_OWN


def learner_builtins(extra: Sequence[str]) -> dict[str, Any]:
    """Returns the builtins for the learner's code, with an `__import__` that checks the list."""

    def guarded(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        from_c = isinstance(fromlist, list)  # a C extension imports what it needs in our frame
        if from_c or (not level and _names(name, fromlist, extra)):
            return builtins.__import__(name, globals, locals, fromlist, level)
        raise ImportError(f"an answer may not import {name}")

    return vars(builtins) | {"__import__": guarded}


def _names(name: str, fromlist: Any, extra: Sequence[str]) -> bool:
    full = [f"{name}.{item}" for item in fromlist or ()] or [name]
    return all(_allowed(item, extra) for item in full)


def _needed(module: str, extra: Sequence[str]) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for name in extra)


def _replace_reference(reference: str) -> None:
    module, _, name = reference.partition(":")
    function = getattr(sys.modules.get(module), name, None)
    if function is None:
        return

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(f"{name}: the library's own {name} is not an answer; write it yourself")

    for loaded in [m for n, m in sys.modules.items() if n.split(".")[0] == "jaxpar"]:
        for key, value in list(vars(loaded).items()):
            if value is function:
                setattr(loaded, key, refused)
