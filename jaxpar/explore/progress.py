"""The text by which solved exercises move from a page to a clone of the course."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

PREFIX = "jaxpar-progress-1"
MOST_BYTES = 10_000_000
COPY = "copy it again from the page, from its first letter to its last"


def answer(form: Mapping[str, Any]) -> dict[str, Any]:
    """The text to copy, of the form's solved exercises: a source for each id.

    Raises:
        ValueError: they are not.
    """
    return {"title": "Progress", "text": pack(_checked(form.get("solved")))}


def pack(solved: Mapping[str, str]) -> str:
    """One line of text that holds the source of each solved exercise."""
    data = zlib.compress(json.dumps(dict(sorted(solved.items()))).encode(), 9)
    return f"{PREFIX}:{zlib.crc32(data):08x}:{base64.urlsafe_b64encode(data).decode()}"


def unpack(text: str) -> dict[str, str]:
    """The sources by exercise that `pack` made a text of; blanks and line ends do not matter.

    Raises:
        ValueError: the text is not whole, or it is something else.
    """
    words = "".join(text.split()).split(":")
    if len(words) != 3 or words[0] != PREFIX:
        raise ValueError(
            f"progress: {text.strip()[:40]!r} is no progress of this version; it begins with "
            f"{PREFIX}:; {COPY}"
        )
    _, checksum, encoded = words
    try:
        data = base64.b64decode(encoded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if f"{zlib.crc32(data):08x}" != checksum:
        raise ValueError(f"progress: the text is damaged: its checksum is not {checksum}; {COPY}")
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, MOST_BYTES)
        found = json.loads(plain) if unpacker.eof else None
    except (zlib.error, ValueError, RecursionError):
        found = None
    return _checked(found)


def _checked(solved: Any) -> dict[str, str]:
    """The sources by exercise, if they are such."""
    if not isinstance(solved, Mapping) or not all(
        isinstance(id, str) and id.isidentifier() and isinstance(source, str)
        for id, source in solved.items()
    ):
        raise ValueError("progress: it must hold a source for each id of an exercise; " + COPY)
    return dict(solved)
