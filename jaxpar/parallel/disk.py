"""Files of one process for the state of an optimizer: what offload needs of a disk."""

import json
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils

try:
    import fcntl
except ImportError:  # Windows: no locks, and a folder cannot be synchronized
    fcntl = None

ROOM = "give a folder that can be written, on a disk with room for the optimizer's state"
AGAIN = "begin anew in an empty folder, or from a checkpoint"

Like = jax.ShapeDtypeStruct
"""Shape, dtype and layout of a leaf."""


class DiskStore:
    """Files in a folder, one for each leaf and process; a process writes what its devices hold.

    A file is overwritten where it lies, so the disk needs room for the state once. That the files
    are of one step is said by one more, removed before the first of them changes, and put back
    when all have reached the disk: what a crash left half-written is refused. This is no
    checkpoint, because the parameters of that step are not here.

    Source: Rajbhandari et al. 2021 (ZeRO-Infinity), section 5

    Raises:
        ValueError: the folder cannot be written or read, or another run uses it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / f"process-{jax.process_index()}"
        self._sealed = self._folder / "sealed.json"
        with self._told("use"):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_WRONLY | os.O_CREAT, 0o666)
        weakref.finalize(self, os.close, self._lock)
        self._take()
        with self._told("read", AGAIN):
            found = json.loads(self._sealed.read_text()) if self._sealed.exists() else {}
        self._steps: int = found.get("steps", 0)
        self._leaves: dict[str, Any] = found.get("leaves", {})
        self._whole, self._compared = bool(found), False

    def put(self, key: str, leaf: Array) -> None:
        """Writes the parts of the leaf that this process holds, each once."""
        shards = {_spans(one.index, leaf.shape): one.data for one in leaf.addressable_shards}
        size = sum(shard.nbytes for shard in shards.values())
        with self._told(f"write {size} bytes to"):
            self._break_seal()
            self._leaves.pop(key, None)  # until it is written
            # Not by a map: on a full disk, writing to a map ends the process without a word.
            with open(os.open(self._folder / key, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
                for span in sorted(shards):
                    file.write(np.asarray(shards[span]).reshape(-1).view(np.uint8).data)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        self._leaves[key] = _entry(leaf, shards)

    def get(self, key: str, like: Like) -> Array:
        """Reads each device's part from a memory map of the file."""
        where = like.sharding.addressable_devices_indices_map(like.shape)
        spans = sorted({_spans(index, like.shape) for index in where.values()})
        self._check(key, _entry(like, spans))
        shape = (len(spans), *like.sharding.shard_shape(like.shape))
        with self._told("read", AGAIN):
            saved = np.memmap(self._folder / key, like.dtype, "r", shape=shape)

        def part(index: Any) -> np.ndarray:
            return np.array(saved[spans.index(_spans(index, like.shape))])  # the file will change

        return jax.make_array_from_callback(like.shape, like.sharding, part)

    def seal(self) -> None:
        """Writes that the files are of one step."""
        if self._whole:
            return
        self._steps += 1
        temporary = self._sealed.with_suffix(".new")
        with self._told("write to"):
            with temporary.open("w") as file:
                json.dump({"steps": self._steps, "leaves": self._leaves}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._sealed)
            self._sync()
        self._whole = True

    def _break_seal(self) -> None:
        if self._whole:
            self._sealed.unlink(missing_ok=True)
            self._sync()
        self._whole, self._compared = False, True

    def _sync(self) -> None:
        """Makes the folder itself reach the disk: what was removed from it and renamed."""
        if fcntl is None:
            return
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _take(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"offload: {self._folder} is in use by another run; give each run its own folder"
            ) from None

    def _check(self, key: str, wanted: Any) -> None:
        """Refuses what is not of one step, or not of this shape, dtype and layout."""
        if not self._compared and jax.process_count() > 1:
            steps = multihost_utils.process_allgather(np.int32(self._steps)).tolist()
            if len(set(steps)) > 1:
                raise ValueError(
                    f"offload: the processes hold states of different steps, {steps}, in "
                    f"{self._folder.parent}; {AGAIN}"
                )
        self._compared = True
        if key not in self._leaves:
            raise ValueError(
                f"offload: {self._folder} holds no whole state: a run ended while it wrote, or "
                f"none has begun (leaf {key} is missing); {AGAIN}"
            )
        if self._leaves[key] != wanted:
            raise ValueError(
                f"offload: leaf {key} in {self._folder} is {self._leaves[key]}; this run wants "
                f"{wanted}; use the mesh, model and optimizer that it was written with"
            )

    @contextmanager
    def _told(self, doing: str, do: str = ROOM) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(f"offload: cannot {doing} {self._folder}: {reason}; {do}") from error


def _spans(index: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The first and last position of a part, in each dim."""
    return tuple(one.indices(size)[:2] for one, size in zip(index, shape, strict=True))


def _entry(leaf: Array | Like, spans: Iterable[Any]) -> dict[str, Any]:
    """What must be equal for a file to be read as this leaf; plain data."""
    parts = [[list(span) for span in part] for part in sorted(spans)]
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype), "parts": parts}
