"""A tokenizer from a file, by the library `tokenizers`, which the extra `text` installs."""

import codecs
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from jaxpar.train.cache import cached
from jaxpar.train.documents import END, PART_BYTES
from jaxpar.train.text import Text

MULTIPLE = 128  # of which the vocabulary of a model is one, so that tp divides it
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")  # as GPT, Llama 3, Llama, Gemma


@dataclass(frozen=True)
class Tokenizer:
    """What makes tokens of a text.

    Attributes:
        path: the file that it comes from.
        data: the bytes of this file.
        made: the tokenizer of the library.
    """

    path: Path
    data: bytes
    made: Any

    @property
    def vocabulary(self) -> int:
        """The size of a model's vocabulary: a multiple of 128, of which the last are not used."""
        return -(-self.tokens // MULTIPLE) * MULTIPLE

    @property
    def tokens(self) -> int:
        """How many tokens there are, with those between the numbers that are used."""
        return 1 + max(self.made.get_vocab().values(), default=0)

    @property
    def mark(self) -> str:
        """What tells it from others."""
        return f"with CRC-32 {zlib.crc32(self.data):08x}"

    @property
    def end(self) -> list[int]:
        """The token at the end of a document; none if the tokenizer has none of `ENDS`."""
        return [token for token in map(self.made.token_to_id, ENDS) if token is not None][:1]

    def encode(self, text: Text, name: str = "text") -> Text:
        """The tokens of a text in UTF-8, which may end within a character; from the cache.

        The token `end` takes the place of the byte after a document. No others are added. An error
        message begins with `name`.

        Raises:
            ValueError: the text is not in UTF-8, or has what the tokenizer does not know.
        """
        dtype = np.min_scalar_type(max(256, self.vocabulary))
        digest = hashlib.blake2b(self.data, digest_size=16)
        digest.update(version("tokenizers").encode())
        digest.update(text.data)
        return cached(
            f"tokens-{digest.hexdigest()}",
            dtype,
            lambda: (self._encode(part, at, name, dtype) for at, part in _parts(text)),
        )

    def _encode(self, part: Text, at: int, name: str, dtype: np.dtype) -> bytes:
        """The tokens of the documents in a part of the text, which begins at this byte of it."""
        *ended, rest = part.tobytes().split(END)
        read = []
        for document in ended:
            read.append(_decoded(document, at, name))
            at += len(document) + len(END)
        read.append(_decoded(rest, at, name, final=False))
        try:
            # A document at once, since pieces would have other tokens where they meet.
            found = self.made.encode_batch_fast(read, add_special_tokens=False)
        except Exception as error:  # the library has no kinds of its own
            raise ValueError(
                f"train: --tokenizer {self.path}: {_first_line(error)}; give one that knows "
                "the text"
            ) from None
        tokens = [[*one.ids, *self.end] for one in found[:-1]] + [found[-1].ids]
        return np.fromiter(chain.from_iterable(tokens), dtype).tobytes()


def _parts(text: Text) -> Iterator[tuple[int, Text]]:
    """Yields parts of a text that end where a document ends, each after the byte it begins at."""
    start, size = 0, PART_BYTES
    while start < len(text):
        last = start + size >= len(text)
        ends = np.flatnonzero(text[start : start + size] == END[0])
        if last or len(ends):
            stop = len(text) if last else start + int(ends[-1]) + 1
            yield start, text[start:stop]
            start, size = stop, PART_BYTES
        else:
            size *= 2


def _decoded(document: bytes, at: int, name: str, *, final: bool = True) -> str:
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(document, final)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: byte {at + error.start} is not UTF-8, which tokenizers read; give another "
            "text, or leave --tokenizer out"
        ) from None


def read_tokenizer(path: Path) -> Tokenizer:
    """Reads a `tokenizer.json`.

    Raises:
        ValueError: there is none, or the library is not installed.
    """
    where = f"train: --tokenizer {path}"
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            f"{where}: the library tokenizers is not installed; run pip install tokenizers, or "
            "leave --tokenizer out"
        ) from None
    try:
        data = path.read_bytes()
        made = tokenizers.Tokenizer.from_str(data.decode())
    except OSError as error:
        raise ValueError(f"{where}: {error.strerror}; give a tokenizer.json") from None
    except Exception as error:  # the library has no kinds of its own
        raise ValueError(
            f"{where}: {_first_line(error)}; give a tokenizer.json, as the library tokenizers "
            "saves it"
        ) from None
    made.no_truncation()
    made.no_padding()
    return Tokenizer(path, data, made)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
