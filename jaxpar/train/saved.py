"""What a training run has saved, for whoever uses the model: its parameters, and its tokenizer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED
from jaxpar.model import Settings, init
from jaxpar.train.checkpoint import FORMAT
from jaxpar.train.manifest import (
    ARRAYS,
    TOKENIZER,
    folder_of,
    newest_whole,
    read_manifest,
    steps_in,
)
from jaxpar.train.tokenizer import Tokenizer, read_tokenizer

AVERAGE = ".average."  # in the names of what the optimizer averages


@dataclass(frozen=True)
class Saved:
    """A trained decoder.

    Attributes:
        settings: its sizes and parts.
        params: its parameters, as `jaxpar.model.init` makes them, on the host; the average of
            them, if the run has kept one.
        tokenizer: what made tokens of the text; None: bytes are tokens.
        step: after how many steps they were saved.
        notes: what a user should know.
    """

    settings: Settings
    params: PyTree[np.ndarray]
    tokenizer: Tokenizer | None
    step: int
    notes: tuple[str, ...] = ()


def read_saved(where: str, folder: Path, tokenizer: Path | None = None) -> Saved:
    """Reads the newest whole checkpoint of a run, on whatever mesh and stage of ZeRO it was.

    The tokenizer is the copy in the folder, unless another file is given. Errors begin with
    `where`. The folder is not changed, and may be in use.

    Raises:
        ValueError: there is no checkpoint in the folder, none is whole, or the tokenizer is not
            that of the run.
    """
    steps = _steps(where, folder)
    step = newest_whole(folder)
    if step is None:
        raise ValueError(
            f"{where}: every checkpoint in it is damaged (steps {', '.join(map(str, steps))}); "
            "restore a copy of the folder"
        )
    about = read_manifest(folder, step)
    version = about["run"]["format"]
    if version != FORMAT:
        raise ValueError(
            f"{where}: it was saved in format {version}, and this is format {FORMAT}; use the "
            "version of jaxpar that saved it"
        )
    settings = Settings(**about["model"])
    run = about["run"]
    # After local steps, each device of dp has an average of its own.
    averaged = run["average"] is not None and run["rounds"] is None
    params = _read(settings, folder_of(folder, step) / ARRAYS, averaged=averaged)
    places = np.argsort(about["devices"]["layers"])  # a pipeline has its layers in another order
    params[STACKED] = jax.tree.map(lambda leaf: leaf[places], params[STACKED])
    notes = [f"step {one} is damaged; step {step} is taken" for one in steps if one > step]
    read = _tokenizer(where, folder, tokenizer, about["run"]["tokenizer"])
    return Saved(settings, params, read, step, tuple(notes))


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


def _read(settings: Settings, path: Path, *, averaged: bool) -> dict[str, Any]:
    """The parameters, or the average of them, in the dtype of the parameters."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    shapes = jax.eval_shape(lambda: init(settings, jax.random.key(0)))
    pairs, tree = jax.tree.flatten_with_path(shapes)
    names = [jax.tree_util.keystr(name, simple=True, separator=".") for name, _ in pairs]
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as orbax:
        there = orbax.metadata(path.absolute()).item_metadata.tree
        prefix = "params."
        if averaged:  # it is inside of other states of the optimizer
            before, average, _ = next(one for one in there if AVERAGE in one).partition(AVERAGE)
            prefix = f"{before}{average}"
        like = {f"{prefix}{name}": leaf for name, (_, leaf) in zip(names, pairs, strict=True)}
        on_host = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in like}
        arguments = ocp.args.PyTreeRestore(like, on_host, partial_restore=True)
        stored = orbax.restore(path.absolute(), args=arguments)
    return tree.unflatten(
        stored[f"{prefix}{name}"].astype(there[f"params.{name}"].dtype) for name in names
    )


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
