"""Offload to disk: a store that keeps the optimizer's state in files, one folder per process."""

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

USE_ANOTHER_FOLDER = "give a writable folder, on a disk with room for the optimizer's state"
START_AGAIN = "begin anew in an empty folder, or from a checkpoint"

LeafType = jax.ShapeDtypeStruct
"""The shape, dtype and sharding of a leaf."""


class DiskStore:
    """A folder with one file for each leaf and process, in which a process writes its own shards.

    A file is overwritten in place, so the disk needs room for only one copy of the state. One more
    file, the seal, says that all the others belong to the same step. It is removed before the first
    of them changes, and written again when all of them have reached the disk, so that what a crash
    has left half-written is refused. This is not a checkpoint, because the parameters of that step
    are not stored.

    Source: Rajbhandari et al. 2021 (ZeRO-Infinity), section 5

    Raises:
        ValueError: the folder cannot be written or read, or another run is using it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / f"process-{jax.process_index()}"
        self._seal_file = self._folder / "sealed.json"
        with self._explain_errors("use"):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_WRONLY | os.O_CREAT, 0o666)
        weakref.finalize(self, os.close, self._lock)
        self._lock_folder()
        with self._explain_errors("read", START_AGAIN):
            text = self._seal_file.read_text("utf-8") if self._seal_file.exists() else "{}"
            found = json.loads(text)
        self._steps: int = found.get("steps", 0)
        self._leaves: dict[str, Any] = found.get("leaves", {})
        self._is_sealed = bool(found)
        self._steps_compared = False  # with those of the other processes

    def put(self, key: str, leaf: Array) -> None:
        """Writes the shards of a leaf that this process holds, without repeating equal ones."""
        shards = {_bounds(shard.index, leaf.shape): shard.data for shard in leaf.addressable_shards}
        size = sum(shard.nbytes for shard in shards.values())
        with self._explain_errors(f"write {size} bytes to"):
            self._break_seal()
            self._leaves.pop(key, None)  # until it is written
            # Not through a memory map: on a full disk, that would end the process silently.
            with open(os.open(self._folder / key, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
                for bounds in sorted(shards):
                    file.write(np.asarray(shards[bounds]).reshape(-1).view(np.uint8).data)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        self._leaves[key] = _describe(leaf, shards)

    def get(self, key: str, like: LeafType) -> Array:
        """Reads each device's shard of a leaf from a memory map of its file."""
        indices = like.sharding.addressable_devices_indices_map(like.shape)
        all_bounds = sorted({_bounds(index, like.shape) for index in indices.values()})
        self._check(key, _describe(like, all_bounds))
        shape = (len(all_bounds), *like.sharding.shard_shape(like.shape))
        with self._explain_errors("read", START_AGAIN):
            saved = np.memmap(self._folder / key, like.dtype, "r", shape=shape)

        def shard(index: Any) -> np.ndarray:
            position = all_bounds.index(_bounds(index, like.shape))
            return np.array(saved[position])  # a copy, because the file will change

        return jax.make_array_from_callback(like.shape, like.sharding, shard)

    def seal(self) -> None:
        """Records that all files now belong to the same step."""
        if self._is_sealed:
            return
        self._steps += 1
        temporary = self._seal_file.with_suffix(".new")
        with self._explain_errors("write to"):
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"steps": self._steps, "leaves": self._leaves}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._seal_file)
            self._sync_folder()
        self._is_sealed = True

    def _break_seal(self) -> None:
        if self._is_sealed:
            self._seal_file.unlink(missing_ok=True)
            self._sync_folder()
        self._is_sealed, self._steps_compared = False, True

    def _sync_folder(self) -> None:
        """Makes sure that removed and renamed files have reached the disk."""
        if fcntl is None:
            return
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _lock_folder(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"offload: {self._folder} is in use by another run; give each run its own folder"
            ) from None

    def _check(self, key: str, wanted: Any) -> None:
        """Raises an error if the files are of different steps, or the leaf is not as `wanted`."""
        if not self._steps_compared and jax.process_count() > 1:
            steps = multihost_utils.process_allgather(np.int32(self._steps)).tolist()
            if len(set(steps)) > 1:
                raise ValueError(
                    f"offload: the processes hold states of different steps, {steps}, in "
                    f"{self._folder.parent}; {START_AGAIN}"
                )
        self._steps_compared = True
        if key not in self._leaves:
            raise ValueError(
                f"offload: {self._folder} holds no complete state: a run ended while it wrote, or "
                f"none has begun (leaf {key} is missing); {START_AGAIN}"
            )
        if self._leaves[key] != wanted:
            raise ValueError(
                f"offload: leaf {key} in {self._folder} is {self._leaves[key]}; this run wants "
                f"{wanted}; use the mesh, model and optimizer that it was written with"
            )

    @contextmanager
    def _explain_errors(self, doing: str, do: str = USE_ANOTHER_FOLDER) -> Iterator[None]:
        """Turns an error of the file system into one that says what failed and what to do."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(f"offload: cannot {doing} {self._folder}: {reason}; {do}") from error


def _bounds(index: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The start and the end of a shard, in each dim."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _describe(leaf: Array | LeafType, all_bounds: Iterable[Any]) -> dict[str, Any]:
    """What must be equal for a file to be read as this leaf, as plain data for the seal."""
    parts = [[list(pair) for pair in bounds] for bounds in sorted(all_bounds)]
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype), "parts": parts}
