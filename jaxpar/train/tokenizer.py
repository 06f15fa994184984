"""A tokenizer from a file, by the library `tokenizers`, which the extra `text` installs."""

import codecs
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxpar.train.text import Text

MULTIPLE = 128  # of which the vocabulary of a model is one, so that tp divides it


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
        tokens = 1 + max(self.made.get_vocab().values(), default=0)
        return -(-tokens // MULTIPLE) * MULTIPLE

    @property
    def mark(self) -> str:
        """What tells it from others."""
        return f"with CRC-32 {zlib.crc32(self.data):08x}"

    def encode(self, text: Text, name: str = "text") -> Text:
        """The tokens of a text in UTF-8, which may end within a character.

        No tokens are added at its ends. An error message begins with `name`.

        Raises:
            ValueError: the text is not in UTF-8, or has what the tokenizer does not know.
        """
        try:
            read = codecs.getincrementaldecoder("utf-8")().decode(text.tobytes())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}: byte {error.start} is not UTF-8, which tokenizers read; give another "
                "text, or leave --tokenizer out"
            ) from None
        try:
            # At once, since pieces would have other tokens where they meet.
            (found,) = self.made.encode_batch_fast([read], add_special_tokens=False)
        except Exception as error:  # the library has no kinds of its own
            raise ValueError(
                f"train: --tokenizer {self.path}: {_first_line(error)}; give one that knows "
                "the text"
            ) from None
        return np.array(found.ids, np.min_scalar_type(max(256, self.vocabulary)))


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
