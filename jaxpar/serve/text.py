"""Text while tokens of it come: decoding token by token, and strings that end it. No JAX."""

import codecs
from collections.abc import Sequence
from typing import Protocol

BYTES = 256


class Decoder(Protocol):
    """What makes text of the tokens of one request, in the order in which they come."""

    def feed(self, token: int) -> str:
        """The text that is certain with this token; part of a character waits for the rest."""
        ...

    def end(self) -> str:
        """What still waits, once there are no more tokens."""
        ...


class Vocabulary(Protocol):
    """What makes tokens of a text, and text of tokens.

    Attributes:
        ends: tokens at which a text ends.
    """

    ends: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text.

        Raises:
            ValueError: it has what no token stands for.
        """
        ...

    def decoder(self) -> Decoder:
        """A decoder for one request."""
        ...


class ByteVocabulary:
    """Each byte of a text in UTF-8 is a token."""

    ends: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        """The bytes of a text."""
        try:
            return list(text.encode())
        except UnicodeEncodeError as error:
            raise ValueError(
                f"ByteVocabulary: character {error.start} of the text is half of a surrogate pair; "
                "send whole characters"
            ) from None

    def decoder(self) -> Decoder:
        """A decoder for one request."""
        return _ByteDecoder()


class _ByteDecoder:
    """Bytes that are not UTF-8, and tokens that are no bytes, become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The characters that are complete."""
        if token < BYTES:
            return self._decoder.decode(bytes([token]))
        return self.end() + "\ufffd"

    def end(self) -> str:
        """U+FFFD if a character is not complete."""
        return self._decoder.decode(b"", final=True)


class Stops:
    """Ends a text before the first of some strings, which come in pieces.

    That is the string whose end comes first, so the result does not depend on where pieces end.

    Attributes:
        found: whether one has come.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held, self.found = stops, "", False

    def feed(self, piece: str) -> str:
        """What is certainly part of the text: all but what may be the beginning of a string."""
        text = self._held + piece
        starts = [(text.find(stop), stop) for stop in self._stops]
        ends = [(start + len(stop), start) for start, stop in starts if start >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)[1]]
        kept = len(text) - max((_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[kept:]
        return text[:kept]

    def end(self) -> str:
        """What was held back, as no string came of it."""
        held, self._held = self._held, ""
        return held


def _begun(text: str, stop: str) -> int:
    """How many of the last characters of a text are the first of a string."""
    most = min(len(stop) - 1, len(text))
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
