"""A cache of verdicts on disk, by what they depend on: the file, the contract, and the library.

At home, watch mode, `jaxpar check` and pytest look here before they have a file judged.
"""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

from jaxpar.files import write_atomically
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "flax")
ABOVE = ("train", "course", "classroom", "cli")  # whom no judgement depends on
TRANSIENT = ("timeout", "memory", "killed", "infrastructure")


@cache
def environment(*, without: tuple[str, ...] = ()) -> str:
    """Returns a hash of the library's sources, and of the versions of all that they run on.

    Args:
        without: folders of the library whose sources are left out as well.
    """
    digest = hashlib.sha256(f"{platform.python_version()} {platform.machine()}".encode())
    for package in PACKAGES:
        digest.update(f"{package}={version(package)};".encode())
    root = Path(__file__).resolve().parents[1]
    for file in sorted(root.rglob("*.py")):
        place = file.relative_to(root)
        if place.parts[0] not in (*ABOVE, *without):
            digest.update(str(place).encode() + file.read_bytes())
    return digest.hexdigest()


class VerdictCache:
    """A folder of verdicts; a file whose content does not belong to its name is ignored."""

    def __init__(self, folder: Path) -> None:
        """Uses this folder, which need not exist."""
        self._folder = folder

    def get(self, where: str, submission: Submission) -> Verdict | None:
        """Returns the verdict on exactly these bytes, or None if it is not known."""
        key = _key(where, submission)
        try:
            data = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            return Verdict.from_dict(data["verdict"]) if data["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, where: str, submission: Submission, verdict: Verdict) -> None:
        """Keeps a verdict, unless it is one that another run might not repeat.

        Raises:
            OSError: the folder cannot be written.
        """
        if verdict.status in TRANSIENT:
            return
        key = _key(where, submission)
        text = json.dumps({"key": key, "verdict": verdict.to_dict()})
        write_atomically(self._folder / f"{key}.json", text.encode())


def _key(where: str, submission: Submission) -> str:
    text = f"{where}\n{submission.digest}\n{environment()}"
    return hashlib.sha256(text.encode()).hexdigest()
