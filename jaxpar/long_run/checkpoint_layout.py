"""Checkpoints as files: which of them are whole, and which chunks a device must read of one."""

import itertools
import math
import re
import zlib
from collections.abc import Mapping, Sequence

Files = Mapping[str, tuple[int, int]]
"""Files by their names, each with its size in bytes and the crc32 of its bytes."""

Ranges = tuple[tuple[int, int], ...]
"""For each dim where a block starts, and where it stops."""


def fingerprint(data: bytes) -> tuple[int, int]:
    """The size and the crc32 of a file, by which a damaged one is known.

    Source: Koopman 2002 (32-Bit Cyclic Redundancy Codes for Internet Applications), section 2
    """
    return len(data), zlib.crc32(data)


def newest_whole(
    found: Mapping[str, Mapping[str, tuple[int, int]]],
    manifests: Mapping[str, Mapping[str, tuple[int, int]]],
) -> int | None:
    """The step of the newest checkpoint that is whole, or None if none is.

    A checkpoint is a folder named step_N, where N is the number of its step, in decimal digits and
    without zeros before them. A folder of any other name, such as step_N.tmp, is none. `found` has
    the files of each folder as they are on the disk, with the size and the crc32 of each.
    `manifests` has the same of what was written, by all processes together; a folder whose manifest
    is missing was not completed. A checkpoint is whole if every file of its manifest is found with
    that size and that crc32. Other files in its folder do not matter.

    Source: Orbax documentation, "Checkpoint format guide"
    """
    steps = {
        int(folder.removeprefix("step_")): folder
        for folder in found
        if re.fullmatch(r"step_(0|[1-9][0-9]*)", folder)
    }
    for step in sorted(steps, reverse=True):
        folder = steps[step]
        if folder in manifests and _is_whole(found[folder], manifests[folder]):
            return step
    return None


def _is_whole(files: Files, manifest: Files) -> bool:
    return all(files.get(name) == written for name, written in manifest.items())


def block_range(size: int, blocks: int, index: int) -> tuple[int, int]:
    """Where block `index` of a dim starts and stops; all but the last ones are equal.

    Math: ceil(size/blocks) elements, as far as there are any
    Source: TensorStore documentation, "Chunk layout"
    """
    block = -(-size // blocks)
    return min(index * block, size), min((index + 1) * block, size)


def chunks_to_read(
    shape: Sequence[int], saved: Sequence[int], wanted: Sequence[int], part: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]]:
    """What a device reads of an array that was saved in chunks: its part, and no byte besides.

    The array has the sizes `shape`. It was saved in saved[k] chunks along dim k, and is to be split
    into wanted[k] parts along dim k, of which the device takes the one with the index part[k]. A
    dim of size s that is cut into c blocks has ceil(s/c) elements in each; so the last ones may be
    smaller, or empty.

    Returns a triple for each chunk that has elements of the part, in ascending order of the chunk's
    indices, the last dim fastest. It has the indices of the chunk, the range (start, stop) of each
    dim to be read, counted from the start of the chunk, and the same counted from the start of the
    part. An array without dims is one chunk.

    Math: chunk, range - chunk's start, range - part's start, where range is what both have
    Source: TensorStore documentation, "Chunk layout"

    Raises:
        ValueError: there are not as many numbers for each argument, a size is negative, there are
            fewer than 1 chunks or parts along a dim, or there is no such part.
    """
    _check(shape, saved, wanted, part)
    own = [block_range(*along) for along in zip(shape, wanted, part, strict=True)]
    found = []
    for chunk in itertools.product(*map(range, saved)):
        blocks = [block_range(*along) for along in zip(shape, saved, chunk, strict=True)]
        both = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(blocks, own, strict=True)]
        if math.prod(max(stop - start, 0) for start, stop in both):
            found.append((chunk, _counted_from(blocks, both), _counted_from(own, both)))
    return found


def _counted_from(blocks: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Ranges of an array, counted from where these blocks start."""
    pairs = zip(blocks, ranges, strict=True)
    return tuple((start - first, stop - first) for (first, _), (start, stop) in pairs)


def _check(
    shape: Sequence[int], saved: Sequence[int], wanted: Sequence[int], part: Sequence[int]
) -> None:
    given = f"shape {list(shape)}, saved {list(saved)}, wanted {list(wanted)}, part {list(part)}"
    if not len(shape) == len(saved) == len(wanted) == len(part):
        raise ValueError(f"chunks_to_read: {given}; give one number for each dim")
    for size, chunks, parts, index in zip(shape, saved, wanted, part, strict=True):
        if size < 0 or chunks < 1 or parts < 1:
            raise ValueError(f"chunks_to_read: {given}; give sizes from 0, and 1 chunk or more")
        if not 0 <= index < parts:
            raise ValueError(f"chunks_to_read: {given}; part {index} must be from 0 to {parts - 1}")
