"""A folder of checkpoints: which there are, and whether each is as it was written. No JAX here.

    folder/step-00000100/arrays/...       what orbax writes
    folder/step-00000100/manifest.json    written last: what the checkpoint is of, and its files
    folder/tokenizer.json                 a copy of the tokenizer, if the run has one

A folder without a manifest is half-written. The manifest has the size and the CRC-32 of every file,
since what reads the arrays takes a flipped bit for a number, and a CRC-32 of its own contents.
"""

import json
import re
import shutil
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxpar.files import write_atomically

ARRAYS, MANIFEST, TOKENIZER = "arrays", "manifest.json", "tokenizer.json"
STEP, DAMAGED = re.compile(r"step-(\d{8,})"), "damaged-"
OURS = re.compile(rf"\..*|({DAMAGED})?{STEP.pattern}|{re.escape(TOKENIZER)}")
PARTS = re.compile(rf"\..*|{ARRAYS}.*|{re.escape(MANIFEST)}")
CHUNK_BYTES = 1 << 20


class DamagedError(Exception):
    """A checkpoint is not as it was written; the message names the file, and what is wrong."""


def folder_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"step-{step:08}"


def steps_in(folder: Path) -> list[int]:
    """The steps of all checkpoints that have a manifest, oldest first."""
    return [step for step in _started(folder) if (folder_of(folder, step) / MANIFEST).exists()]


def strangers_in(folder: Path) -> list[str]:
    """What is in a folder, and in its checkpoints, that no training run wrote; no hidden files."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    inside = [file for path in found if STEP.fullmatch(path.name) for file in _listed(path)]
    return [
        path.relative_to(folder).as_posix()
        for path, ours in [*((one, OURS) for one in found), *((one, PARTS) for one in inside)]
        if not ours.fullmatch(path.name)
    ]


def write_manifest(folder: Path, step: int, about: dict[str, Any]) -> int:
    """Makes a checkpoint valid whose arrays are written, and returns its bytes.

    `about` is what `read_manifest` shall return, as data for JSON.
    """
    here = folder_of(folder, step)
    files = sorted(path for path in (here / ARRAYS).rglob("*") if path.is_file())
    sizes = {path.relative_to(here).as_posix(): _size_and_crc(path) for path in files}
    contents = {"step": step, "about": about, "files": sizes}
    text = json.dumps({"crc32": _crc_of(contents), "contents": contents}, indent=1)
    write_atomically(here / MANIFEST, text.encode(), public=True)
    return sum(size for size, _ in sizes.values())


def read_manifest(folder: Path, step: int) -> dict[str, Any]:
    """What a checkpoint is of, after each of its files was compared with the manifest.

    Raises:
        DamagedError: something is missing, or is not as it was written.
    """
    here = folder_of(folder, step)
    try:
        found = json.loads((here / MANIFEST).read_text("utf-8"))
        contents, crc = found["contents"], found["crc32"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DamagedError(f"{MANIFEST} cannot be read") from None
    if crc != _crc_of(contents) or contents["step"] != step:
        raise DamagedError(f"{MANIFEST} was changed after it was written")
    for name, (size, crc) in contents["files"].items():
        try:
            now, crc_now = _size_and_crc(here / name)
        except FileNotFoundError:
            raise DamagedError(f"{name} is missing") from None
        except OSError as error:
            raise DamagedError(f"{name}: {error.strerror}") from None
        if now != size:
            raise DamagedError(f"{name} has {now} bytes, not {size}")
        if crc_now != crc:
            raise DamagedError(f"{name} has other bytes than were written")
    return contents["about"]


def newest_whole(folder: Path) -> int | None:
    """The step of the newest checkpoint that is as it was written; None: there is none."""
    for step in reversed(steps_in(folder)):
        with suppress(DamagedError):
            read_manifest(folder, step)
            return step
    return None


def keep_newest(folder: Path, count: int) -> None:
    """Removes all but the newest checkpoints; each becomes half-written before it goes."""
    for step in steps_in(folder)[:-count]:
        (folder_of(folder, step) / MANIFEST).unlink()
        shutil.rmtree(folder_of(folder, step))


def remove_half_written(folder: Path) -> None:
    """Removes what an earlier run was about to write, or to remove, when it was killed."""
    for step in set(_started(folder)) - set(steps_in(folder)):
        shutil.rmtree(folder_of(folder, step))


def set_aside(folder: Path, step: int) -> None:
    """Renames a damaged checkpoint, so that a later one of the same step has its place."""
    here = folder_of(folder, step)
    target = folder / f"{DAMAGED}{here.name}"
    if target.exists():
        shutil.rmtree(target)
    here.replace(target)


def _listed(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def _started(folder: Path) -> list[int]:
    """The steps of all checkpoints, half-written ones too, oldest first."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match[1]) for match in map(STEP.fullmatch, names) if match)


def _size_and_crc(path: Path) -> tuple[int, int]:
    size, crc = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return size, crc


def _crc_of(contents: Any) -> int:
    return zlib.crc32(json.dumps(contents, sort_keys=True).encode())
