"""The command line: parses and prints. What it does is in `jaxpar.course`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import click
import typer

from jaxpar import __version__
from jaxpar.course.catalog import BadUse, exercise, lesson
from jaxpar.course.folder import Course, find_course, make_course

PASS, WRONG, BAD_USE = 0, 1, 2

app = typer.Typer(
    name="jaxpar", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
dev = typer.Typer(help="For those who write the course.", rich_markup_mode=None)
app.add_typer(dev, name="dev")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The exercise, as `jaxpar list` names it.")]


def main() -> None:
    """Runs one command; ends with 0 for a pass, 1 for a wrong answer, 2 for bad use."""
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        _bad_use(error.format_message())
    except BadUse as error:
        _bad_use(str(error))
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        code = PASS
    sys.exit(code)


def _bad_use(message: str) -> NoReturn:
    print(message if ":" in message else f"jaxpar: {message}", file=sys.stderr)
    sys.exit(BAD_USE)
