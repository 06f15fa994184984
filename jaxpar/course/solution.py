"""The reference of an exercise, as its source."""

from __future__ import annotations

import inspect
from pathlib import Path

from jaxpar.contracts.base import Contract


def solution(contract: Contract) -> tuple[str, str]:
    """The source of the reference, and the file of the library that it is in."""
    reference = contract.reference
    file = Path(inspect.getsourcefile(reference) or "")
    package = reference.__module__.partition(".")[0]
    inside = file.parts[len(file.parts) - file.parts[::-1].index(package) :]
    return inspect.getsource(reference), "/".join((package, *inside))
