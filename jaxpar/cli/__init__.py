"""The command line: parses and prints. What it does is in `jaxpar.course` and below.

Each module here adds its verbs, that is, its commands, to the application in `base` when it is
imported. `jaxpar --help` must answer at once, so a verb imports what it needs only when it runs.
"""

from __future__ import annotations

import io
import sys

try:
    # Each of these modules adds its verbs when it is imported.
    from jaxpar.cli import (  # noqa: F401
        check,
        classroom,
        export,
        generate,
        grade,
        learn,
        load,
        memory,
        notebook,
        plan,
        report,
        schedule,
        serve,
        similarity,
        step,
        tools,
        train,
    )
    from jaxpar.cli.base import AS_JSON, BAD_USE, by_verb, print_json, warn
    from jaxpar.cli.base import app as app
    from jaxpar.course.catalog import BadUseError
except KeyboardInterrupt:
    sys.exit(130)  # the exit code of an interrupted verb


def main() -> None:
    """Runs one command; ends with 0 for a pass, 1 for a wrong answer, 2 for bad use."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that is not in its encoding is a "?"
            stream.reconfigure(errors="replace")
    try:
        app()
    except BadUseError as error:
        message = by_verb(str(error))
        if AS_JSON in sys.argv:
            print_json({"error": message})
        else:
            warn(message)
        sys.exit(BAD_USE)
