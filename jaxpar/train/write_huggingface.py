"""Writes a decoder as a folder of Hugging Face: safetensors, config.json, tokenizer.json."""

import json
import math
from pathlib import Path

import numpy as np

from jaxpar.files import write_atomically
from jaxpar.train.huggingface import CONFIG, Part, config_of, tensors_of, with_all_biases
from jaxpar.train.manifest import TOKENIZER
from jaxpar.train.saved import Saved, named
from jaxpar.train.tensors import LARGEST_FILE_BYTES, need_safetensors, write_tensors
from jaxpar.train.tokenizer import Tokenizer

TOKENIZER_CONFIG = "tokenizer_config.json"


def write_huggingface(
    where: str, model: Saved, folder: Path, largest_bytes: int = LARGEST_FILE_BYTES
) -> int:
    """Writes a model into a new or an empty folder; returns how many parameters are in it.

    The last file is config.json, without which the others are no model.

    The dtype is that of the parameters. Rows that pad the vocabulary are left out. Errors begin
    with `where`.

    Raises:
        ValueError: the folder is not empty or cannot be written, or no family has such a decoder.
    """
    need_safetensors(where)
    from safetensors import SafetensorError

    begin, end = _begin_and_end(model.tokenizer) if model.tokenizer else (None, None)
    leaves = {name: np.asarray(leaf) for name, leaf in named(model.params).items()}
    dtype = leaves["embedding"].dtype
    try:
        family, config = config_of(model.settings, dtype=dtype.name, begin=begin, end=end)
    except ValueError as error:
        raise ValueError(f"{where}: {error}; train a decoder that a family has") from None
    parts = tensors_of(family, with_all_biases(family, model.settings))

    def read(name: str) -> np.ndarray:
        whole = [_part(leaves, one, dtype) for one in parts[name]]
        return np.concatenate(whole, axis=-1) if len(whole) > 1 else whole[0]

    sizes = {name: math.prod(one.shape) * dtype.itemsize for name, (one, *_) in parts.items()}
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{where}: it is not empty; give a new folder, or an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder, sizes, read, largest_bytes)
        if model.tokenizer:
            _write_tokenizer(folder, model.tokenizer)
        write_atomically(folder / CONFIG, _as_json(config), public=True)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"{where}: {reason}; give a folder that can be written, with room for "
            f"{sum(sizes.values()):,} bytes"
        ) from None
    return sum(sizes.values()) // dtype.itemsize


def _part(leaves: dict[str, np.ndarray], one: Part, dtype: np.dtype) -> np.ndarray:
    """What a tensor has of a parameter; a bias that our decoder has not is 0."""
    columns = one.shape[-1] // one.place.parts
    if one.name not in leaves:
        return np.zeros(columns, dtype)
    leaf = leaves[one.name] if one.layer is None else leaves[one.name][one.layer]
    leaf = leaf.T if one.place.turned else leaf
    return leaf[: one.shape[0]] if leaf.ndim > 1 else leaf  # without rows that pad


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    write_atomically(folder / TOKENIZER, tokenizer.data, public=True)
    begin, end = _begin_and_end(tokenizer)
    tokens = {"bos_token": begin, "eos_token": end}
    about = {"tokenizer_class": "PreTrainedTokenizerFast"} | {
        name: tokenizer.made.id_to_token(token)
        for name, token in tokens.items()
        if token is not None
    }
    write_atomically(folder / TOKENIZER_CONFIG, _as_json(about), public=True)


def _begin_and_end(tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """The tokens with which a text begins and ends; it begins with the end if nothing else is said.

    A tokenizer like that of Llama puts another one before every text, even an empty one.
    """
    end = next(iter(tokenizer.end), None)
    empty = tokenizer.made.encode("")
    pairs = zip(empty.ids, empty.special_tokens_mask, strict=True)
    return next((token for token, added in pairs if added), end), end


def _as_json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
