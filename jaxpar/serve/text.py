"""Text into tokens, and tokens into text as they come: of bytes, or of a tokenizer."""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jaxpar.train.documents import END

SHOWN = {"\n", "\t"}  # of the characters that control a terminal


class Stream(Protocol):
    """Text that grows: a character whose bytes are not all there yet waits for them."""

    def feed(self, tokens: Iterable[int]) -> str:
        """What these tokens add to the text."""
        ...

    def close(self) -> str:
        """What is left: a character that was never completed, as the replacement character."""
        ...


class Alphabet(Protocol):
    """What tokens stand for."""

    @property
    def stop(self) -> frozenset[int]:
        """Tokens that end a text."""
        ...

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        ...

    def stream(self, prompt: Sequence[int]) -> Stream:
        """The text after a prompt."""
        ...


@dataclass(frozen=True)
class Bytes:
    """Each byte of the text in UTF-8 is a token."""

    stop: frozenset[int] = frozenset(END)

    def encode(self, text: str) -> list[int]:
        """Its bytes; those of a command line that are not UTF-8 are as they were."""
        return list(text.encode("utf-8", "surrogateescape"))

    def stream(self, prompt: Sequence[int]) -> "ByteStream":
        """The text after a prompt, which may end within a character."""
        return ByteStream(prompt)


class ByteStream:
    """Text of bytes that come one after the other."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder.decode(bytes(prompt))

    def feed(self, tokens: Iterable[int]) -> str:
        """The characters that these bytes complete."""
        return self._decoder.decode(bytes(tokens))

    def close(self) -> str:
        """The replacement character, if there are bytes left."""
        return self._decoder.decode(b"", True)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a tokenizer of the library `tokenizers`.

    Attributes:
        made: the tokenizer.
        stop: tokens that end a text.
        begins: whether a text has the tokens that the tokenizer puts around it, such as the first
            one of Llama; our own runs are trained without them.
    """

    made: Any
    stop: frozenset[int] = frozenset()
    begins: bool = False

    def encode(self, text: str) -> list[int]:
        """Its tokens."""
        return self.made.encode(_valid(text), add_special_tokens=self.begins).ids

    def stream(self, prompt: Sequence[int]) -> "TokenStream":
        """The text after a prompt."""
        return TokenStream(self.made, prompt)


class TokenStream:
    """Text of tokens, some of which end within a character, or belong to the word before."""

    def __init__(self, made: Any, prompt: Sequence[int]) -> None:
        from tokenizers.decoders import DecodeStream

        self._made = made
        self._stream = DecodeStream(ids=list(prompt), skip_special_tokens=True)

    def feed(self, tokens: Iterable[int]) -> str:
        """The characters that these tokens complete."""
        return "".join(self._stream.step(self._made, token) or "" for token in tokens)

    def close(self) -> str:
        """Nothing is told of a character that was never completed."""
        return ""


def printable(text: str) -> str:
    """The text, in which no character controls the terminal that shows it."""
    return "".join(one if one.isprintable() or one in SHOWN else "\ufffd" for one in text)


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
