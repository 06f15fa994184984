"""Documents of parquet files, JSON Lines and datasets saved on disk, joined to one text."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt

from jaxpar.train.cache import cached

END = b"\xff"  # after each document; UTF-8 has no such byte
COLUMN = "text"
PART_BYTES = 1 << 22  # of a text that are looked at together
STATE, SPLITS = "state.json", "dataset_dict.json"  # of what `datasets` saves


def joined(files: Sequence[Path]) -> UInt[np.ndarray, " n"]:
    """The bytes of all documents in these files, each with `END` after it, from the cache.

    A file of another kind is one document.

    Raises:
        ValueError: a file cannot be read, or it is not clear where its text is.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as file:
            digest.update(path.suffix.encode() + hashlib.file_digest(file, "blake2b").digest())
    return cached(
        f"documents-{digest.hexdigest()}",
        np.uint8,
        lambda: (one + END for path in files for one in _documents(path)),
    )


def has_documents(path: Path) -> bool:
    """Whether a file has documents, by the end of its name."""
    return path.suffix in READERS


def has_ends(text: UInt[np.ndarray, " n"]) -> bool:
    """Whether some document ends in a text."""
    parts = (text[at : at + PART_BYTES] for at in range(0, len(text), PART_BYTES))
    return any((part == END[0]).any() for part in parts)


def files_of_dataset(folder: Path) -> list[Path] | None:
    """The files of a dataset that the library `datasets` has saved here; None: there is none.

    Raises:
        ValueError: there are several, as for training and for testing.
    """
    if (folder / SPLITS).is_file():
        splits = json.loads((folder / SPLITS).read_bytes())["splits"]
        raise ValueError(
            f"text: {folder} has the datasets {', '.join(splits)}; give one of them, as "
            f"{folder / splits[0]}"
        )
    if not (folder / STATE).is_file():
        return None
    files = json.loads((folder / STATE).read_bytes()).get("_data_files")
    return files and [folder / file["filename"] for file in files]


def _documents(path: Path) -> Iterator[bytes]:
    """Yields the documents of a file in UTF-8; what is empty is left out."""
    if not has_documents(path):
        yield path.read_bytes()
        return
    for text in READERS[path.suffix](path):
        if text:
            yield text.encode(errors="replace")


def _of_lines(path: Path) -> Iterator[str | None]:
    name = None
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"text: {path}: line {number}"
            try:
                fields = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{where}: {error}; give JSON Lines, an object a line") from None
            if not isinstance(fields, dict):
                raise ValueError(f"{where} is no object; give JSON Lines, an object a line")
            name = name or _column(path, fields, [k for k, v in fields.items() if type(v) is str])
            text = fields.get(name, "")
            if text is not None and not isinstance(text, str):
                raise ValueError(f"{where}: {name} is {text!r}, and no text; mend the line")
            yield text


def _of_parquet(path: Path) -> Iterator[str | None]:
    with _arrow(path) as arrow, arrow.parquet.ParquetFile(path) as file:
        column = _column_of_schema(path, file.schema_arrow, arrow.types)
        for batch in file.iter_batches(columns=[column]):
            yield from batch.column(0).to_pylist()


def _of_arrow(path: Path) -> Iterator[str | None]:
    with (
        _arrow(path) as arrow,
        arrow.memory_map(str(path)) as file,
        arrow.ipc.open_stream(file) as stream,
    ):
        column = _column_of_schema(path, stream.schema, arrow.types)
        for batch in stream:
            yield from batch.column(column).to_pylist()


READERS = {".jsonl": _of_lines, ".parquet": _of_parquet, ".arrow": _of_arrow}


@contextmanager
def _arrow(path: Path) -> Iterator[Any]:
    """The library pyarrow, whose errors about this file become one line."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"text: {path}: the library pyarrow is not installed; run pip install pyarrow, or give "
            "text files or JSON Lines"
        ) from None
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"text: {path}: {reason}; give a whole file of this kind") from None


def _column_of_schema(path: Path, schema: Any, types: Any) -> str:
    kinds = types.is_string, types.is_large_string, types.is_string_view
    texts = [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]
    return _column(path, schema.names, texts)


def _column(path: Path, names: Sequence[str] | dict[str, Any], texts: Sequence[str]) -> str:
    """The column with the documents, of those that have text."""
    if COLUMN in texts or len(texts) == 1:
        return COLUMN if COLUMN in texts else texts[0]
    raise ValueError(
        f"text: {path} has the columns {', '.join(names)}, of which {len(texts)} have text and "
        f"none is named {COLUMN}; rename the one with the documents to {COLUMN}"
    )
