"""The application that verbs are added to, exit codes, and how results are printed."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.course.catalog import BadUseError

if TYPE_CHECKING:
    from rich.console import Console

WRONG, BAD_USE, LEFT = 1, 2, 130
AS_JSON = "--json"

app = typer.Typer(
    name="jaxpar", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
dev = typer.Typer(help="For those who write the course.", rich_markup_mode=None)
app.add_typer(dev, name="dev")

AsJson = Annotated[bool, typer.Option(AS_JSON, help="Print JSON.")]
More = Annotated[list[str] | None, typer.Argument(hidden=True)]  # the b and c of `--option a b c`


def listed(option: str, first: list[str] | None, more: list[str] | None) -> list[str]:
    """Returns the words given to an option, each once: `--option a b` or `--option a,b`.

    Raises:
        BadUseError: the option was not given, so that the words in `more` belong to nothing.
    """
    if more and not first:
        raise BadUseError(f"jaxpar: {more[0]!r} beside the folder; give one folder, then {option}")
    words = [word for some in (*(first or []), *(more or [])) for word in some.split(",") if word]
    return list(dict.fromkeys(words))


@contextmanager
def errors_as_bad_use() -> Iterator[None]:
    """Turns a ValueError into bad use: its message is printed, and the command ends with 2."""
    try:
        yield
    except ValueError as error:
        raise BadUseError(str(error)) from None


def need_linux(what: str) -> None:
    """Refuses what needs Linux, before any module is imported that only Linux has.

    Raises:
        BadUseError: this is another system.
    """
    if sys.platform != "linux":
        this = f"this is {sys.platform}"
        raise BadUseError(f"{what}: it needs Linux or WSL2, for its sandbox; {this}")


def by_verb(message: str) -> str:
    """The message, which begins with the command if it began with a function of the library."""
    name, _, rest = message.partition(": ")
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "jaxpar")
    of_library = name.isidentifier() and ("_" in name or name[0].isupper())
    return f"{verb}: {rest}" if of_library else message


def tell(error: BaseException, *, alone: bool) -> int:
    """Tells why a process of a run ends, and returns the exit code.

    Raises:
        BadUseError: it was used badly, and is `alone`, so it can end as all other commands do.
    """
    if isinstance(error, KeyboardInterrupt):
        return LEFT
    if isinstance(error, ValueError):
        if alone:
            raise BadUseError(str(error)) from None
        print(by_verb(str(error)), file=sys.stderr)
        return BAD_USE
    traceback.print_exception(error)
    return WRONG


def write_text(verb: str, path: Path, text: str) -> None:
    """Writes a file that an option of the verb names, and says so on standard error.

    Raises:
        ValueError: it cannot be written, or its folder is not there.
    """
    from jaxpar.files import write_atomically

    if not path.parent.is_dir():
        raise ValueError(f"{verb}: {path}: there is no folder {path.parent}; make it first")
    try:
        write_atomically(path, text.encode(), public=True)
    except OSError as error:
        reason = f"{error.strerror}; give a file that can be written"
        raise ValueError(f"{verb}: {path}: {reason}") from None
    warn(f"{path} is written.")


def show(as_json: bool, data: Any, lines: Iterable[str]) -> None:
    """Prints the data as JSON, or the lines."""
    if as_json:
        print_json(data)
    else:
        print_lines(lines)


def warn(line: str) -> None:
    """Prints a line to standard error, unless it is empty."""
    if line and sys.stderr.isatty():
        console(stderr=True).print(line, markup=False)
    elif line:
        print(line, file=sys.stderr)


def print_json(value: Any) -> None:
    """Prints the value as JSON."""
    print(json.dumps(value, indent=2))


def print_lines(lines: Iterable[str], *renderables: Any) -> None:
    """Prints lines, or in a terminal the renderables if there are any.

    In a terminal, lines that are too long are broken between words, and paths of the course are
    links.
    """
    if sys.stdout.isatty():
        from rich.text import Text

        from jaxpar.course.folder import course_around
        from jaxpar.course.links import with_links

        course = course_around(Path.cwd())
        linked = (with_links(Text(line), course.root) if course else line for line in lines)
        console().print(*(renderables or linked), sep="\n", markup=False)
        return
    for line in lines:
        print(line)


def console(stderr: bool = False) -> Console:
    """Returns a console on standard output or standard error.

    rich is imported only here, since most verbs print lines and need not wait for it.
    """
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)
