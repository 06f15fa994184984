"""A cache on disk of what is made of a text once: the files are mapped into memory, not read."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import UInt
from numpy.typing import DTypeLike

from jaxpar.files import write_atomically

try:
    import fcntl
except ImportError:  # Windows: no locks, so processes may do the same work
    fcntl = None


def cached(
    key: str, dtype: DTypeLike, parts: Callable[[], Iterable[bytes]]
) -> UInt[np.ndarray, " n"]:
    """The array whose bytes these parts are, joined; they are made only if no process has yet.

    `key` tells them from all others. The array is in a file of the folder `jaxpar` in
    XDG_CACHE_HOME, or else in ~/.cache, which may be removed between runs.

    Memory: one part; the pages of the file that are in use are the system's.

    Raises:
        ValueError: the folder cannot be written.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "jaxpar")
    path = folder / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f"{key}.lock"):
            if not path.exists():
                write_atomically(path, parts())
        return mapped(path, dtype)
    except OSError as error:
        raise ValueError(
            f"text: {folder}: {error.strerror or error}; make room there, or set XDG_CACHE_HOME to "
            "another folder that can be written"
        ) from None


def mapped(path: Path, dtype: DTypeLike = np.uint8) -> UInt[np.ndarray, " n"]:
    """A file as an array, of which pages are read when they are used."""
    if not path.stat().st_size:
        return np.empty(0, dtype)  # nothing can be mapped
    return np.asarray(np.memmap(path, dtype, "r"))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Waits until no other process of this machine is in here with this lock."""
    if not fcntl:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
