"""Frames arrive as they were sent, and nothing else is taken for a frame."""

import contextlib
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.grading.channel import ProtocolError, receive, send_blob, send_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN, st.binary(max_size=100))
def test_frames_come_back(value: object, blob: bytes) -> None:
    pipe = io.BytesIO()
    send_json(pipe, value)
    send_blob(pipe, blob)
    pipe.seek(0)
    assert receive(pipe) == value
    assert receive(pipe) == blob
    assert receive(pipe) is None


def frame(kind: bytes, payload: bytes, length: int | None = None) -> bytes:
    return struct.pack(">cI", kind, len(payload) if length is None else length) + payload


@pytest.mark.parametrize(
    "stream",
    [
        b"J",
        frame(b"J", b"{}", length=3),
        frame(b"X", b"{}"),
        frame(b"J", b"{"),
        frame(b"J", b"NaN"),
        frame(b"J", b"[1, Infinity]"),
        frame(b"J", b"[" * 40 + b"]" * 40),
        frame(b"J", b"[" * 100_000),
        frame(b"J", b"\xff"),
        frame(b"B", b"", length=1 << 30),
        b"Traceback (most recent call last)",
    ],
)
def test_everything_else_is_refused(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        receive(io.BytesIO(stream))


def test_json_is_counted_before_it_is_read() -> None:
    pipe, lengths = io.BytesIO(), []
    send_json(pipe, {"a": 1})
    send_blob(pipe, b"bytes")
    send_json(pipe, [])
    pipe.seek(0)
    for _ in range(3):
        receive(pipe, spend=lengths.append)
    assert lengths == [len('{"a": 1}'), len("[]")]


def test_a_blob_has_a_limit() -> None:
    with pytest.raises(ProtocolError, match="5 bytes"):
        receive(io.BytesIO(frame(b"B", b"12345")), max_blob_bytes=4)


@given(st.binary(max_size=64))
def test_no_bytes_break_the_reader_of_frames(stream: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        receive(io.BytesIO(stream))
