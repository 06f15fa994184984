"""The exact versions of everything that jaxpar needs, as this environment has them."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement


def constraints() -> str:
    """Returns a constraints file for pip, by which others install what is installed here."""
    return "".join(sorted(f"{name}=={one.version}\n" for name, one in needed().items()))


def needed() -> dict[str, Distribution]:
    """Returns every package that jaxpar needs by its name, as it is installed here."""
    found: dict[str, Distribution] = {}
    wanted, seen = [("jaxpar", "")], set()
    while wanted:
        name, extra = wanted.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            installed = distribution(name)
        except PackageNotFoundError:  # it belongs to an extra that is not installed
            continue
        found[name] = installed
        for line in installed.requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                wanted += [(needed.name, part) for part in ("", *needed.extras)]
    found.pop("jaxpar", None)
    return found
