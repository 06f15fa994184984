"""Zip files of strangers: read in memory, member by member, and never unpacked to the disk.

A member is read only if somebody asks for it, and only as far as it may be large, so that no size
or number which a zip file claims is believed.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from jaxpar.grading.submission import SubmissionError

SUFFIXES = (".zip",)
MOST_BYTES = 32_000_000
_ENCRYPTED = 0x1
# What the parser and the decompressor raise where a zip file is broken.
BROKEN = (
    BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError, NotImplementedError,
    RuntimeError, struct.error, UnicodeError, IndexError,
)  # fmt: skip


def opened(data: bytes) -> ZipFile:
    """Returns the zip file with these bytes.

    Raises:
        SubmissionError: it is broken.
    """
    try:
        return ZipFile(io.BytesIO(data))
    except BROKEN:
        raise SubmissionError("a zip file that cannot be opened") from None


def members(archive: ZipFile) -> Iterator[tuple[PurePosixPath, ZipInfo]]:
    """Yields the path of each member, which leads nowhere outside the archive, and the member."""
    for member in archive.infolist():
        parts = member.filename.replace("\\", "/").split("/")
        inside = [part for part in parts if part not in ("", ".", "..")]
        if inside:
            yield PurePosixPath(*inside), member


def member_bytes(archive: ZipFile, member: ZipInfo, most_bytes: int) -> bytes:
    """Returns the bytes of a member.

    Raises:
        SubmissionError: it is larger than that, encrypted or broken, or compressed in a way of
            which a few bytes can take any amount of memory.
    """
    if member.flag_bits & _ENCRYPTED:
        raise SubmissionError("encrypted in its zip file")
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise SubmissionError("compressed in its zip file by another method than deflate")
    try:
        with archive.open(member) as file:
            data = file.read(most_bytes + 1)
    except BROKEN:
        raise SubmissionError("broken in its zip file") from None
    if len(data) > most_bytes:
        raise SubmissionError(f"larger than {most_bytes} bytes")
    return data
