"""Tensors in safetensors files, of which any part is read without the rest, and which are written.

The files are mapped into memory by the library safetensors, which the extra `weights` installs.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxpar.files import make_public, write_atomically

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": jnp.bfloat16}
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
LARGEST_FILE_BYTES = 5_000_000_000
Range = tuple[int, int]


class Tensor(NamedTuple):
    """A tensor that is there, and can be read.

    Attributes:
        name: its name.
        file: the file that it is in.
        shape: its shape.
        dtype: its dtype, as the file names it.
        slices: what reads a part of it: `slices[0:2, 3:5]`.
    """

    name: str
    file: Path
    shape: tuple[int, ...]
    dtype: str
    slices: Any

    def read(self, ranges: Sequence[Range]) -> np.ndarray:
        """The part from start to stop of each dim; zeros are what a range has beyond the end."""
        inside = [
            (min(start, size), min(stop, size))
            for (start, stop), size in zip(ranges, self.shape, strict=True)
        ]
        missing = [
            (0, (stop - start) - (last - first))
            for (start, stop), (first, last) in zip(ranges, inside, strict=True)
        ]
        if any(first == last for first, last in inside):
            return np.zeros([stop - start for start, stop in ranges], DTYPES[self.dtype])
        part = self.slices[tuple(slice(*one) for one in inside)]
        return np.pad(part, missing) if any(count for _, count in missing) else part

    def __str__(self) -> str:
        """Which tensor this is, for an error about it."""
        return f"{self.file}: tensor {self.name} {list(self.shape)}"


def open_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors in model.safetensors, or in the files that an index names.

    Raises:
        ValueError: there are none, a file cannot be read or is cut off, or one is no safetensors
            file.
    """
    found: dict[str, Tensor] = {}
    for file in _files(folder):
        for tensor in _in_file(file):
            if other := found.get(tensor.name):
                raise ValueError(f"{tensor}: it is in {other.file} too; remove one of the files")
            found[tensor.name] = tensor
    return found


def write_tensors(
    folder: Path,
    sizes: Mapping[str, int],
    read: Callable[[str], np.ndarray],
    largest_bytes: int = LARGEST_FILE_BYTES,
) -> None:
    """Writes one file, or several and their index where one would be too large.

    Args:
        folder: where they are written.
        sizes: the bytes of each tensor, by its name.
        read: what gives the tensor of a name; called once for each.
        largest_bytes: of a file; a tensor that is larger has a file of its own.
    """
    groups = _groups(sizes, largest_bytes)
    count = len(groups)
    place: dict[str, str] = {}
    for number, names in enumerate(groups, 1):
        file = ONE if count == 1 else f"model-{number:05}-of-{count:05}.safetensors"
        # The library takes the memory of an array for rows that follow one another.
        _save({name: np.ascontiguousarray(read(name)) for name in names}, folder / file)
        place |= dict.fromkeys(names, file)
    if count > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": place}
        write_atomically(folder / INDEX, json.dumps(index, indent=2).encode(), public=True)


def need_safetensors(where: str) -> None:
    """Raises a ValueError that begins with `where` if the library is not installed."""
    try:
        import safetensors  # noqa: F401
    except ImportError:
        raise ValueError(
            f"{where}: the library safetensors is not installed; run pip install safetensors"
        ) from None


def _save(tensors: Mapping[str, np.ndarray], file: Path) -> None:
    """Writes a file under another name first, so that it is there whole or not at all."""
    from safetensors.numpy import save_file

    temporary = file.with_name(f".{file.name}.part")
    try:
        save_file(dict(tensors), temporary, metadata={"format": "pt"})
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        make_public(temporary)  # the library lets nobody else read it
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _groups(sizes: Mapping[str, int], largest_bytes: int) -> list[list[str]]:
    """Names in their order, in groups of at most so many bytes."""
    groups: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not groups or filled + size > largest_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _files(folder: Path) -> Iterable[Path]:
    if (folder / ONE).is_file():  # where there is an index too, transformers takes the file
        return [folder / ONE]
    index = folder / INDEX
    if index.is_file():
        return [folder / name for name in _names_in(index)]
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
        raise ValueError(
            f"{folder}: {pickled[0]} is a pickle, which can run any program when it is read; give "
            f"a folder with {ONE}, such as transformers writes by save_pretrained"
        )
    raise ValueError(f"{folder}: it has neither {ONE} nor {INDEX}; give a folder that has one")


def _names_in(index: Path) -> list[str]:
    """The files that an index names, each once."""
    names: Any = None
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        names = list(json.loads(index.read_text("utf-8"))["weight_map"].values())
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{index}: it has no weight_map from tensors to files; download or copy it again"
        )
    for name in names:
        if Path(name).name != name or name in ("", "..") or not name.isprintable():
            raise ValueError(
                f"{index}: it names {name!r:.80}, which is no file in its folder; mend it"
            )
    return sorted(set(names))


def _in_file(file: Path) -> list[Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        opened: Any = safe_open(file, framework="numpy")
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        missing = isinstance(error, FileNotFoundError)
        raise ValueError(
            f"{file}: {'there is no such file' if missing else f'cannot be read: {reason}'}; "
            "download or copy it again"
        ) from None
    return [
        Tensor(name, file, tuple(one.get_shape()), one.get_dtype(), one)
        for name, one in slices.items()
    ]
