"""Which variant of each exercise a course folder has, as a file in it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from jaxpar.course.catalog import BadUseError, Exercise

FILE = "variants.json"


def variants_file(rows: Sequence[Exercise]) -> dict[str, bytes]:
    """Returns the file for a course folder, by its name; none if no exercise is varied."""
    numbers = {row.id: row.variant for row in rows if row.variant}
    return {FILE: (json.dumps(numbers, indent=1) + "\n").encode()} if numbers else {}


def read_variants(root: Path) -> dict[str, int]:
    """Returns the variant of each exercise that a course folder has in another form than written.

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
