"""Text to train on, as bytes or as tokens, and the batches that a mesh sees of it.

An example is `sequence` of them and the one after. Every epoch takes each example of the text
once, in an order of its own. Which examples are in a batch depends on the seed alone, so that the
losses of one device and of eight, in one process or in several, are the same.
"""

import itertools
import os
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jaxtyping import Int, UInt

from jaxpar.long_run.data_position import epoch_order
from jaxpar.train.cache import mapped
from jaxpar.train.documents import files_of_dataset, has_documents, joined

LIBRARY_BYTES = 8_000_000
MOST_FOLLOWING = 3  # bytes of a character of UTF-8 after its first
BEGINNING_BYTES = 8_000  # where a zero byte tells that a file is no text
NOT_THE_LIBRARY = {"__pycache__", "dist-packages", "site-packages", "test", "tests"}

Text = UInt[np.ndarray, " n"]


def read_library() -> Text:
    """The first 8 MB of the sources of Python's standard library: modules, then packages.

    Raises:
        ValueError: this Python comes without sources.
    """
    folder = sysconfig.get_path("stdlib")
    found = bytearray()
    for path in _sources(folder):
        found += path.read_bytes()
        if len(found) >= LIBRARY_BYTES:
            break
    if not found:
        raise ValueError(
            f"text: found 0 Python sources in {folder}; the standard library may be zipped; give a "
            "text of your own with --data PATH"
        )
    return np.frombuffer(found, np.uint8)[:LIBRARY_BYTES]


def read_data(path: Path) -> Text:
    """The bytes of a file, of all text files under a folder, or of a dataset saved on disk.

    Those of a folder are joined in the order of their paths, the same on every system. Hidden files
    and folders are left out, and so are files that are no text: as Git and grep see it, those with
    a zero byte near their beginning. Where there are files with documents, as parquet and JSON
    Lines, each document and each other file ends with `jaxpar.train.documents.END`.

    Memory: a folder of text files is read; all else is mapped, so that its pages are the system's.

    Raises:
        ValueError: there is no such path, it cannot be read, or a folder has no text.
    """
    try:
        if path.is_dir():
            return _read_folder(path)
        if path.exists() and not path.is_file():
            raise OSError("it is a device or a pipe")
        return joined([path]) if has_documents(path) else mapped(path)
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = getattr(error, "filename", None) or path
        raise ValueError(
            f"text: {where}: {reason}; give a file, or a folder with text files"
        ) from None


def unit_of(text: Text) -> str:
    """What a text consists of; only bytes are of 8 bits."""
    return "bytes" if text.dtype == np.uint8 else "tokens"


def check_same(text: Text, tokenizer: bytes = b"") -> None:
    """Compares the texts and tokenizers of all processes, each of which reads its own.

    Raises:
        ValueError: they differ.
    """
    if jax.process_count() == 1:
        return
    here = zlib.crc32(text.data, zlib.crc32(tokenizer))
    sums = multihost_utils.process_allgather(np.uint32(here)).tolist()
    if len(set(sums)) > 1:
        raise ValueError(
            f"text: the processes have {len(set(sums))} different texts, by checksums {sums}; give "
            "all the same file, with the same tokenizer, or the same version of Python"
        )


def hold_out(text: Text, fraction: float) -> tuple[Text, Text]:
    """The beginning of a text, and its end, which is this fraction of it; they share no byte.

    A character of UTF-8 is not cut.
    """
    cut = len(text) - round(fraction * len(text))
    within = text[cut : cut + MOST_FOLLOWING] & 0xC0 == 0x80
    cut += int(np.argmin(np.append(within, False)))
    return text[:cut], text[cut:]


def batches(
    text: Text,
    sharding: NamedSharding,
    *,
    batch: int,
    sequence: int,
    seed: int,
    consumed: int = 0,
    name: str = "text",
    sizes: Iterator[int] | None = None,
) -> Iterator[Int[Array, "b s"]]:
    """Batches without end; every process makes the rows of its own devices.

    The text is the same on every process, and `sharding` is that of a batch on the mesh. A batch
    has `batch` examples over all devices, each with `sequence` bytes or tokens to predict. The
    first `consumed` examples are left out, since an earlier run has taken them. An error message
    begins with `name`. `sizes` are the examples in each batch, where some have fewer than `batch`.

    Raises:
        ValueError: the text does not fill one batch.
    """
    order = _order(_examples(text, batch, sequence, name), seed, consumed)
    sizes = itertools.repeat(batch) if sizes is None else sizes
    taken = (np.array(list(itertools.islice(order, size))) for size in sizes)
    return (_batch(text, numbers, sequence, sharding) for numbers in taken)


def spread_batches(
    text: Text,
    sharding: NamedSharding,
    *,
    batch: int,
    sequence: int,
    most: int,
    name: str = "text",
) -> list[Int[Array, "b s"]]:
    """At most so many batches, of different examples that are evenly spread over the text.

    They are the same each time. The arguments are those of `batches`.

    Raises:
        ValueError: the text does not fill one batch.
    """
    examples = _examples(text, batch, sequence, name)
    count = batch * min(most, examples // batch)
    numbers = np.arange(count) * examples // count
    return [_batch(text, part, sequence, sharding) for part in numbers.reshape(-1, batch)]


def _examples(text: Text, batch: int, sequence: int, name: str) -> int:
    """How many examples a text has.

    Raises:
        ValueError: they do not fill one batch.
    """
    examples, unit = max(0, len(text) - 1) // sequence, unit_of(text)
    if examples < batch:
        raise ValueError(
            f"{name}: {len(text)} {unit} make {examples} examples of {sequence} {unit}; a batch "
            f"has {batch}; use a text of {batch * sequence + 1} {unit} or more, or a smaller batch "
            "or sequence"
        )
    return examples


def _batch(
    text: Text, numbers: Int[np.ndarray, " b"], sequence: int, sharding: NamedSharding
) -> Int[Array, "b s"]:
    """The batch of the examples with these numbers."""
    every = sequence * numbers[:, None] + np.arange(sequence + 1)[None]  # [b, t+1]
    return jax.make_array_from_callback(
        every.shape, sharding, lambda part: text[every[part]].astype(np.int32)
    )


def _order(examples: int, seed: int, consumed: int) -> Iterator[int]:
    """Yields the numbers of examples without end, epoch after epoch, but for the first ones."""
    first, begun = divmod(consumed, examples)
    for epoch in itertools.count(first):
        order = epoch_order(examples, epoch=epoch, seed=seed)
        yield from order[begun if epoch == first else 0 :]


def _sources(folder: str) -> Iterator[Path]:
    """Yields Python files by name, those of a folder before those of its subfolders."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - NOT_THE_LIBRARY)
        yield from (Path(place, name) for name in sorted(files) if name.endswith(".py"))


def _read_folder(folder: Path) -> Text:
    if dataset := files_of_dataset(folder):
        return joined(dataset)
    files = sorted(_visible(folder), key=lambda path: path.relative_to(folder).as_posix())
    if any(map(has_documents, files)):
        return joined([path for path in files if has_documents(path) or _is_text(path)])
    found = np.frombuffer(b"".join(path.read_bytes() for path in files if _is_text(path)), np.uint8)
    if not len(found):
        raise OSError(f"of its {len(files)} files that are not hidden, none has any text")
    return found


def _visible(folder: Path) -> Iterator[Path]:
    """Yields the files under a folder, in no order, without hidden ones and those in hidden places.

    Raises:
        OSError: a folder cannot be listed.
    """

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in files if not name.startswith("."))
        yield from (path for path in paths if path.is_file())


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" not in file.read(BEGINNING_BYTES)
