"""The name by which the learner's shell finds this program, for messages that say what to type."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def command(folder: Path | None = None) -> str:
    """`jaxpar` if the shell finds this installation by that name, or else the path to type.

    Args:
        folder: where it is typed; None if that is here.
    """
    script = Path(sys.argv[0])
    if script.name not in ("jaxpar", "jaxpar.exe") or len(script.parts) == 1:
        return "jaxpar"
    found = shutil.which("jaxpar")
    if found and Path(found).resolve() == script.resolve():
        return "jaxpar"
    here = Path.cwd()
    near = (here / script).is_relative_to(here)
    return os.path.relpath(here / script, folder or here) if near else str(script)
