"""The command line: parses and prints. What it does is in `jaxpar.course` and below."""

from __future__ import annotations

import sys

try:
    # Importing them adds their verbs.
    from jaxpar.cli import (  # noqa: F401
        classroom,
        grade,
        learn,
        memory,
        plan,
        schedule,
        similarity,
        tools,
        train,
    )
    from jaxpar.cli.base import AS_JSON, BAD_USE, print_json, warn
    from jaxpar.cli.base import app as app
    from jaxpar.course.catalog import BadUseError
except KeyboardInterrupt:
    sys.exit(130)  # as verbs end that are interrupted: nothing has begun


def main() -> None:
    """Runs one command; ends with 0 for a pass, 1 for a wrong answer, 2 for bad use."""
    try:
        app()
    except BadUseError as error:
        if AS_JSON in sys.argv:
            print_json({"error": str(error)})
        else:
            warn(str(error))
        sys.exit(BAD_USE)
