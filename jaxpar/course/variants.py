"""Which variant of each exercise a course has: chosen by its secret, told to its students."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jaxpar.course.catalog import BadUseError, Exercise

FILE = "variants.json"


def chosen(rows: Sequence[Exercise], secret: bytes) -> list[Exercise]:
    """The exercises as the course with this secret has them."""
    from jaxpar.classroom.seeds import choice
    from jaxpar.contracts.base import variants

    counts = {row.id: variants(row.where) for row in rows}
    return [replace(row, variant=choice(secret, row.id, counts[row.id])) for row in rows]


def told(rows: Sequence[Exercise]) -> bytes:
    """The file in the course folder that says so."""
    numbers = {row.id: row.variant for row in rows if row.variant}
    return (json.dumps(numbers, indent=1) + "\n").encode()


def given(root: Path) -> dict[str, int]:
    """By exercise, the variant that a course folder has; what is not named is as written.

    Raises:
        BadUseError: the file is broken.
    """
    path = root / FILE
    try:
        numbers = json.loads(path.read_bytes())
        return {str(id): int(number) for id, number in numbers.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        raise BadUseError(
            f"course: {path} cannot be read; put back the file that your course gave you"
        ) from None
