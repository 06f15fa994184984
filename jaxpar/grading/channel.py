"""Frames over a pipe: strict JSON or raw bytes, each preceded by its kind and its length.

The judge exchanges its messages with the worker and the reader as such frames. The other end of a
pipe may be under a stranger's control, so that every frame is checked as it arrives.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import IO, Any, NoReturn

HEADER = struct.Struct(">cI")
MAX_JSON_BYTES = 1 << 22
MAX_BLOB_BYTES = 1 << 28
MAX_MODULE_BYTES = 1 << 21
MAX_DEPTH = 32
END_OF_OUTPUT = b"\0"
"""On standard error: all is printed that belongs to what was answered so far."""


class ProtocolError(ValueError):
    """The other side sent something that is not a frame of the declared kind."""


def send_json(pipe: IO[bytes], value: Any) -> None:
    """Sends one JSON frame."""
    _send(pipe, b"J", json.dumps(value, allow_nan=False).encode())


def send_blob(pipe: IO[bytes], value: bytes) -> None:
    """Sends one frame of raw bytes."""
    _send(pipe, b"B", value)


def receive(
    pipe: IO[bytes],
    max_blob_bytes: int = MAX_BLOB_BYTES,
    spend: Callable[[int], object] = lambda _: None,
) -> Any:
    """Returns the next frame: JSON as plain data, a blob as bytes; None at the end of the stream.

    Args:
        pipe: the stream to read from.
        max_blob_bytes: the most that a blob may have.
        spend: called with the length of a JSON frame before it is read; it may raise
            ProtocolError, so that the frame is not read.

    Raises:
        ProtocolError: the frame is broken, too long, or not strict JSON.
    """
    header = pipe.read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise ProtocolError("the stream ends within a frame header")
    kind, length = HEADER.unpack(header)
    limit = {b"J": MAX_JSON_BYTES, b"B": max_blob_bytes}.get(kind)
    if limit is None or length > limit:
        raise ProtocolError(f"frame of kind {kind!r} and {length} bytes")
    if kind == b"J":
        spend(length)
    payload = pipe.read(length)
    if len(payload) < length:
        raise ProtocolError("the stream ends within a frame")
    return payload if kind == b"B" else _parse(payload)


def printable(text: str) -> str:
    """Returns text with a question mark for each character that could control a terminal.

    Raises:
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} where text must be")
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _send(pipe: IO[bytes], kind: bytes, payload: bytes) -> None:
    pipe.write(HEADER.pack(kind, len(payload)) + payload)
    pipe.flush()


def _parse(payload: bytes) -> Any:
    try:
        value = json.loads(payload, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not strict JSON: {error}") from None
    if _deeper_than(value, MAX_DEPTH):
        raise ProtocolError(f"JSON nested deeper than {MAX_DEPTH}")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


def _deeper_than(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper_than(item, depth - 1) for item in items)
