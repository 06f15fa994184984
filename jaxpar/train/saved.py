"""What a training run has saved, for whoever uses the model: its parameters, and its tokenizer."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED
from jaxpar.model import Settings, init
from jaxpar.model.adapter import merged
from jaxpar.train.checkpoint import FORMAT
from jaxpar.train.manifest import (
    ARRAYS,
    TOKENIZER,
    folder_of,
    read_newest,
    steps_in,
)
from jaxpar.train.tokenizer import Tokenizer, read_tokenizer

AVERAGE = ".average."  # in the names of what the optimizer averages
MASTERS = ".master."  # in those of the weights in float32
PARAMS = "params."


@dataclass(frozen=True)
class Saved:
    """A trained decoder.

    Attributes:
        settings: its sizes and parts.
        params: its parameters, as `jaxpar.model.init` makes them, on the host; the average of
            them, if the run has kept one.
        tokenizer: what made tokens of the text; None: bytes are tokens.
        step: after how many steps they were saved; None: no run of ours has trained it.
        notes: what a user should know.
    """

    settings: Settings
    params: PyTree[np.ndarray]
    tokenizer: Tokenizer | None
    step: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A checkpoint of a run, of which nothing but its manifest is read yet.

    Attributes:
        settings: the sizes and parts of its decoder.
        arrays: where its arrays are.
        averaged: whether it has an average of its parameters, which is taken in their place.
        order: which layer is at each place.
        tokenizer: what tells its tokenizer from others; "none": bytes are tokens.
        step: after how many steps it was saved.
        notes: what a user should know.
    """

    settings: Settings
    arrays: Path
    averaged: bool
    order: tuple[int, ...]
    tokenizer: str
    step: int
    notes: tuple[str, ...]


def read_saved(where: str, folder: Path, tokenizer: Path | None = None) -> Saved:
    """Reads the newest whole checkpoint of a run, on whatever mesh and stage of ZeRO it was.

    Adapters are merged into the matrices beside which they stand. The tokenizer is the copy in the
    folder, unless another file is given. Errors begin with `where`. The folder is not changed, and
    may be in use.

    Raises:
        ValueError: there is no checkpoint in the folder, none is whole, or the tokenizer is not
            that of the run.
    """
    found = find_saved(where, folder)
    params = _read(found)
    places = np.argsort(found.order)  # a pipeline has its layers in another order
    params[STACKED] = jax.tree.map(lambda leaf: leaf[places], params[STACKED])
    read = _tokenizer(where, folder, tokenizer, found.tokenizer)
    settings, params = merged(found.settings, params)
    return Saved(settings, params, read, found.step, found.notes)


def find_saved(where: str, folder: Path) -> Found:
    """The newest whole checkpoint of a run; errors are those of `read_saved`."""
    steps = _steps(where, folder)
    found = read_newest(folder)
    if found is None:
        raise ValueError(
            f"{where}: every checkpoint in it is damaged (steps {', '.join(map(str, steps))}); "
            "restore a copy of the folder"
        )
    step, about = found
    version = about["run"]["format"]
    if version != FORMAT:
        raise ValueError(
            f"{where}: it was saved in format {version}, and this is format {FORMAT}; use the "
            "version of jaxpar that saved it"
        )
    run = about["run"]
    notes = [f"step {one} is damaged; step {step} is taken" for one in steps if one > step]
    return Found(
        Settings(**about["model"]),
        folder_of(folder, step) / ARRAYS,
        # After local steps, each device of dp has an average of its own.
        averaged=run["average"] is not None and run["rounds"] is None,
        order=tuple(about["devices"]["layers"]),
        tokenizer=run["tokenizer"],
        step=step,
        notes=tuple(notes),
    )


def restore_on(found: Found, shardings: PyTree[Any], order: Sequence[int]) -> PyTree[Array]:
    """The parameters in float32 with these shardings, of which each device reads its own.

    Layer `order[i]` is at place i. Where the run has weights in float32 beside parameters in 16
    bits, these are taken.
    """
    shapes = shapes_of(found.settings)
    like = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings,
    )
    params = _restored(found, like)
    places = np.argsort(found.order)[np.array(order)]
    if not np.array_equal(places, np.arange(len(places))):
        params[STACKED] = jax.tree.map(partial(_taken, places), params[STACKED])
    return params


def shapes_of(settings: Settings) -> PyTree[jax.ShapeDtypeStruct]:
    """The shapes of a decoder's parameters."""
    return jax.eval_shape(lambda: init(settings, jax.random.key(0)))


def named(tree: PyTree[Any]) -> dict[str, Any]:
    """Every leaf by its path, as in "layers.mlp.up"."""
    pairs = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in pairs}


def _steps(where: str, folder: Path) -> list[int]:
    """The steps of all checkpoints in a folder, of which there is one at least."""
    try:
        if not folder.is_dir():
            raise ValueError(f"{where}: there is no such folder; give one that `train` has saved")
        steps = steps_in(folder)
    except OSError as error:
        raise ValueError(f"{where}: {error.strerror}; give a folder that can be read") from None
    if not steps:
        raise ValueError(
            f"{where}: it has no checkpoint of a training run; give a folder that `train "
            "--checkpoint` has saved"
        )
    return steps


def _read(found: Found) -> dict[str, Any]:
    """The parameters, or the average of them, on the host in the dtype of the parameters."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    shapes = shapes_of(found.settings)
    path = found.arrays.absolute()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as orbax:
        there = orbax.metadata(path).item_metadata.tree
        prefix = _prefix(there, AVERAGE) if found.averaged else PARAMS
        like = {f"{prefix}{name}": leaf for name, leaf in named(shapes).items()}
        on_host = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in like}
        arguments = ocp.args.PyTreeRestore(like, on_host, partial_restore=True)
        stored = orbax.restore(path, args=arguments)
    return jax.tree.structure(shapes).unflatten(
        stored[f"{prefix}{name}"].astype(there[f"{PARAMS}{name}"].dtype) for name in named(shapes)
    )


def _restored(found: Found, like: PyTree[jax.ShapeDtypeStruct]) -> dict[str, Any]:
    """The most exact parameters that a checkpoint has, with the dtypes and shardings of `like`."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    path = found.arrays.absolute()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as orbax:
        there = orbax.metadata(path).item_metadata.tree
        prefix = _prefix(there, AVERAGE if found.averaged else MASTERS)
        wanted = {f"{prefix}{name}": leaf for name, leaf in named(like).items()}
        how = ocp.checkpoint_utils.construct_restore_args(wanted)
        arguments = ocp.args.PyTreeRestore(wanted, how, partial_restore=True)
        stored = orbax.restore(path, args=arguments)
    return jax.tree.structure(like).unflatten(stored[name] for name in wanted)


def _prefix(there: Collection[str], within: str) -> str:
    """What the names of parameters begin with in this state of the optimizer, if it is there."""
    inside = next((name for name in there if within in name), None)
    return f"{inside.partition(within)[0]}{within}" if inside else PARAMS


def _taken(places: np.ndarray, leaf: Array) -> Array:
    return jax.jit(partial(jnp.take, axis=0), out_shardings=leaf.sharding)(leaf, places)


def _tokenizer(where: str, folder: Path, given: Path | None, mark: str) -> Tokenizer | None:
    """The tokenizer with this mark.

    Raises:
        ValueError: there is none, or another one.
    """
    copy = folder / TOKENIZER
    path = given or (copy if copy.exists() else None)
    if path is None and mark != "none":
        raise ValueError(
            f"{where}: it was trained with a tokenizer {mark}, of which it has no copy; give the "
            "file with --tokenizer"
        )
    read = read_tokenizer(path) if path else None
    found = read.mark if read else "none"
    if found != mark:
        theirs = "bytes" if mark == "none" else f"a tokenizer {mark}"
        raise ValueError(
            f"{where}: it was trained with {theirs}, and {path} is one {found}; "
            + ("leave --tokenizer out" if mark == "none" else "give the file that it had")
        )
    return read
