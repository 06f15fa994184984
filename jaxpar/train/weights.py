"""Weights that a run begins with, or that are read to be used: of Hugging Face, or of our own runs.

Every device reads its own part, so a model that no device could hold is read all the same.
"""

import os
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from jaxpar.model import Settings
from jaxpar.train.huggingface import (
    BASES,
    CONFIG,
    HEAD,
    is_stacked,
    place_of,
    read_settings,
    tensors_of,
)
from jaxpar.train.manifest import TOKENIZER
from jaxpar.train.saved import (
    Found,
    Saved,
    find_saved,
    named,
    read_saved,
    restore_on,
    shapes_of,
)
from jaxpar.train.tensors import DTYPES, INDEX, ONE, Range, Tensor, need_safetensors, open_tensors
from jaxpar.train.tokenizer import Tokenizer, read_tokenizer

# What old versions of transformers stored, though it follows from config.json.
DERIVED = re.compile(r"(.*\.)?(attn\.(masked_)?bias|rotary_emb\.inv_freq)")
BYTES = 256  # the vocabulary of a model that reads bytes
COMPARED_ROWS = 4096  # of two tables at a time


@dataclass(frozen=True)
class Weights:
    """What a run can begin with.

    Attributes:
        where: what errors begin with.
        settings: the decoder.
        tokenizer: its file, or None.
        mark: what tells these weights from others.
        notes: what a user should know.
        made_with: what tells the tokenizer that they were trained with from others, "none" for
            bytes; None: that is unknown.
        on_devices: (settings, shardings, order) -> the parameters in float32, with layer `order[i]`
            at place i. The settings may have fewer learned positions.
    """

    where: str
    settings: Settings
    tokenizer: Path | None
    mark: str
    notes: tuple[str, ...]
    made_with: str | None
    on_devices: Callable[[Settings, PyTree[Any], Sequence[int]], PyTree[Array]]

    def settings_for(self, sequence: int | None, usual: int) -> Settings:
        """The decoder, for examples of so many tokens; None: of the usual number.

        A table of learned positions is cut after them. Unless told, there are as many tokens as it
        has rows.

        Raises:
            ValueError: there are more tokens than learned positions.
        """
        if self.settings.positions == "rotary":
            return replace(self.settings, sequence=sequence or usual, document_end=None)
        rows = self.settings.sequence
        if sequence and sequence > rows:
            raise ValueError(
                f"{self.where}: --sequence {sequence}: its table has {rows} positions; use "
                f"{rows} at most"
            )
        return replace(self.settings, sequence=sequence or rows, document_end=None)

    def check_tokenizer(self, tokenizer: Tokenizer | None) -> None:
        """Raises a ValueError if this, None for bytes, does not make the decoder's tokens."""
        words = self.settings.vocabulary - self.settings.padding
        if tokenizer is None and words != BYTES:
            raise ValueError(
                f"{self.where}: a vocabulary of {words} tokens, and no {TOKENIZER} that makes them "
                "of a text; give the file with --tokenizer"
            )
        found = tokenizer.mark if tokenizer else "none"
        if self.made_with not in (None, found):
            marks = self.made_with, found
            had, has = ("bytes" if one == "none" else f"a tokenizer {one}" for one in marks)
            raise ValueError(
                f"{self.where}: it was trained with {had}, and not with {has}; leave --tokenizer "
                "out, or give the file that it had"
            )
        if tokenizer and tokenizer.tokens > words:
            raise ValueError(
                f"{self.where}: --tokenizer {tokenizer.path} has {tokenizer.tokens} tokens, the "
                f"decoder {words}; give the tokenizer that it was trained with"
            )


def open_weights(where: str, folder: Path) -> Weights:
    """The weights in a folder, of which nothing but sizes and names is read yet.

    Raises:
        ValueError: it has none, or a model that is not ours.
    """
    if is_huggingface(folder):
        return HuggingFace(where, folder).weights
    found = find_saved(where, folder)
    if found.settings.adapter_rank:
        raise ValueError(
            f"{where}: it has adapters beside its matrices; merge these first: jaxpar export "
            f"{folder} DIR; and begin with DIR"
        )
    return Weights(
        where,
        found.settings,
        _tokenizer_in(folder),
        f"of step {found.step} of a run",
        found.notes,
        found.tokenizer,
        partial(_of_run, where, found),
    )


def read_model(where: str, folder: Path, tokenizer: Path | None = None) -> Saved:
    """A model on the host, with its tokenizer: of a run, or of Hugging Face.

    Raises:
        ValueError: there is none, or the tokenizer is not its own.
    """
    if not is_huggingface(folder):
        return read_saved(where, folder, tokenizer)
    model = HuggingFace(where, folder)
    path = tokenizer or model.weights.tokenizer
    read = read_tokenizer(path) if path else None
    model.weights.check_tokenizer(read)
    return Saved(model.settings, model.on_host(), read, None, model.notes)


def is_huggingface(folder: Path) -> bool:
    """Whether a folder has a model of Hugging Face, and not a run of ours."""
    # Unlike a Path, this answers about a folder that cannot be read; others say what is wrong.
    return any(os.path.exists(folder / name) for name in (CONFIG, ONE, INDEX))


class HuggingFace:
    """A model in a folder, whose tensors are as its config.json says.

    Attributes:
        settings: the decoder.
        notes: what a user should know.

    Raises:
        ValueError: it is not complete, or is not what our decoder is.
    """

    def __init__(self, where: str, folder: Path) -> None:
        need_safetensors(where)
        self._where, self._folder = where, folder
        try:
            family, self.settings, self.notes = read_settings(folder)
            self._base = BASES[family]
            self._there = open_tensors(folder)
            names = named(shapes_of(self.settings))
            self._places = {name: place_of(family, name) for name in names}
            parts = tensors_of(family, self.settings)
            self._check({name: first.shape for name, (first, *_) in parts.items()})
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    @property
    def weights(self) -> Weights:
        """The model as what a run begins with."""
        about = sorted((one.name, one.shape, one.dtype) for one in self._there.values())
        return Weights(
            self._where,
            self.settings,
            _tokenizer_in(self._folder),
            f"of tensors with CRC-32 {zlib.crc32(repr(about).encode()):08x}",
            self.notes,
            None,
            self.on_devices,
        )

    def on_host(self) -> PyTree[np.ndarray]:
        """The parameters, in the dtype that the tensors have, or the widest of these."""
        shapes = shapes_of(self.settings)
        used = (one for name, one in self._there.items() if not DERIVED.fullmatch(name))
        dtypes = {DTYPES[one.dtype] for one in used}
        widest = reduce(jnp.promote_types, dtypes)
        order = range(self.settings.layers)
        return jax.tree.structure(shapes).unflatten(
            self._part(name, [(0, size) for size in leaf.shape], order).astype(widest, copy=False)
            for name, leaf in named(shapes).items()
        )

    def on_devices(
        self, settings: Settings, shardings: PyTree[Any], order: Sequence[int]
    ) -> PyTree[Array]:
        """The parameters in float32; `settings` may have fewer positions than the folder."""
        shapes = shapes_of(settings)

        def made(name: str, leaf: jax.ShapeDtypeStruct, sharding: Any) -> Array:
            def part(index: tuple[slice, ...] | None) -> np.ndarray:
                pairs = zip(index or (), leaf.shape, strict=True)
                ranges = [one.indices(size)[:2] for one, size in pairs]
                return self._part(name, ranges, order).astype(leaf.dtype, copy=False)

            return jax.make_array_from_callback(leaf.shape, sharding, part)

        leaves = zip(named(shapes).items(), jax.tree.leaves(shardings), strict=True)
        return jax.tree.structure(shapes).unflatten(
            made(name, leaf, sharding) for (name, leaf), sharding in leaves
        )

    def _part(self, name: str, ranges: Sequence[Range], order: Sequence[int]) -> np.ndarray:
        """A part of a parameter; its layers are in this order."""
        place = self._places[name]
        if not is_stacked(name):
            return self._read(name, place.tensor, ranges)
        layers, *rest = ranges
        of_layers = [place.tensor.format(order[i]) for i in range(*layers)]
        return np.stack([self._read(name, tensor, rest) for tensor in of_layers])

    def _read(self, name: str, tensor: str, ranges: Sequence[Range]) -> np.ndarray:
        """A part of a parameter outside of the layers, or in one layer."""
        place, there = self._places[name], self._find(tensor)
        assert there, f"{tensor} was not looked for"
        *others, (start, stop) = ranges
        columns = (there.shape[0] if place.turned else there.shape[-1]) // place.parts
        offset = place.part * columns
        within = [*others, (start + offset, stop + offset)]
        return there.read(within[::-1]).T if place.turned else there.read(within)

    def _find(self, tensor: str) -> Tensor | None:
        """The tensor of this name, which is shorter where a model was saved without its head."""
        return self._there.get(tensor) or self._there.get(tensor.removeprefix(self._base))

    def _check(self, expected: dict[str, tuple[int, ...]]) -> None:
        """Checks that all tensors are there, as they must be, and no others."""
        used = set()
        for name, shape in expected.items():
            tensor = self._find(name)
            if tensor is None:
                raise ValueError(
                    f"{self._folder}: tensor {name} {list(shape)} is missing; download or copy the "
                    f"folder again, or mend its {CONFIG}"
                )
            if tensor.shape != shape:
                raise ValueError(
                    f"{tensor}: {CONFIG} asks for {list(shape)}; download or copy both again"
                )
            if tensor.dtype not in DTYPES:
                raise ValueError(
                    f"{tensor}: its dtype is {tensor.dtype}; use a model in {', '.join(DTYPES)}"
                )
            used.add(tensor.name)
        for name in sorted(self._there.keys() - used):
            if name == HEAD and self.settings.tied:
                self._check_tied(self._there[name], expected)
            elif not DERIVED.fullmatch(name):
                raise ValueError(
                    f"{self._there[name]}: {CONFIG} describes no such part; use the {CONFIG} that "
                    "belongs to the tensors"
                )

    def _check_tied(self, head: Tensor, expected: dict[str, tuple[int, ...]]) -> None:
        """Checks that a head beside a tied embedding is the embedding once more."""
        name = self._places["embedding"].tensor
        table = self._find(name)
        same = table is not None and head.shape == expected[name] and head.dtype == table.dtype
        for start in range(0, head.shape[0] if same else 0, COMPARED_ROWS):
            ranges = [(start, min(start + COMPARED_ROWS, head.shape[0])), (0, head.shape[1])]
            same = same and table and np.array_equal(head.read(ranges), table.read(ranges))
        if not same:
            raise ValueError(
                f"{head}: it is not {name}, and {CONFIG} has a tied head; set tie_word_embeddings "
                "to false in a copy of it, or use another model"
            )


def _of_run(
    where: str, found: Found, settings: Settings, shardings: PyTree[Any], order: Sequence[int]
) -> PyTree[Array]:
    if settings.positions == "learned" and settings.sequence != found.settings.sequence:
        raise ValueError(
            f"{where}: --sequence {settings.sequence}: its table has {found.settings.sequence} "
            "positions, and that of a run is not cut; leave --sequence out"
        )
    return restore_on(found, shardings, order)


def _tokenizer_in(folder: Path) -> Path | None:
    path = folder / TOKENIZER
    return path if path.exists() else None
