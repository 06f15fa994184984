"""The name by which the learner's shell finds this program, for messages that say what to type."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def command() -> str:
    """`jaxpar` if the shell finds this installation by that name, or else the path to type."""
    script = Path(sys.argv[0])
    if script.name not in ("jaxpar", "jaxpar.exe"):
        return "jaxpar"
    found = shutil.which("jaxpar")
    if found and Path(found).resolve() == script.resolve():
        return "jaxpar"
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)
