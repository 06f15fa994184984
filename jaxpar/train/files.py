"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes a text in place of a file, so that a process that dies leaves the one or the other.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_name(f".{path.name}")
    with new.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
