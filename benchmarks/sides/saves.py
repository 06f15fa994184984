"""Saves and loads a training state when it is asked, and tells what each took.

The state is that of a decoder with AdamW, in float32, over eight devices or processes.
"""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jaxpar.model import Settings

DEVICES = 8
SETTINGS = Settings(layers=8, d_model=512)


class Saver(NamedTuple):
    """One way of saving and loading.

    Attributes:
        save: saves into a new folder, and returns when the checkpoint is complete.
        save_behind: begins to save, and returns what waits until the checkpoint is complete.
        load: replaces the state by what a folder holds, and returns when it is there.
    """

    save: Callable[[Path], Any]
    save_behind: Callable[[Path], Callable[[], Any]]
    load: Callable[[Path], Any]


class Taken(NamedTuple):
    """Seconds by the clock, and the bytes on disk of a checkpoint."""

    save: float
    blocks: float
    load: float
    stored_bytes: float


def serve(saver: Saver, folder: Path) -> None:
    """Answers every line of stdin with what one turn has taken."""
    old: tuple[Path, ...] = ()
    for number, _ in enumerate(sys.stdin):
        first, second = folder / f"{number}-save", folder / f"{number}-behind"
        save, _ = timed(saver.save, first)
        # Otherwise each turn fills memory that the system must find first. All processes are here.
        for path in old:
            shutil.rmtree(path, ignore_errors=True)  # another process may be faster
        old = first, second
        blocks, wait = timed(saver.save_behind, second)
        wait()
        load, _ = timed(saver.load, second)
        stored = sum(path.stat().st_size for path in first.rglob("*") if path.is_file())
        print(*Taken(save, blocks, load, stored), flush=True)


def timed(do: Callable[[Path], Any], folder: Path) -> tuple[float, Any]:
    """The seconds that it takes, and what it returns."""
    start = time.perf_counter()
    found = do(folder)
    return time.perf_counter() - start, found
