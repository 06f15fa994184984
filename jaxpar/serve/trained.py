"""A trained decoder to serve: from a checkpoint, or trained for some steps first."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxpar.axes import parse_mesh
from jaxpar.collectives.leaves import STACKED
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, check_blocks
from jaxpar.model.few_bits import encode
from jaxpar.serve.speculate import Speculation
from jaxpar.serve.text import Alphabet, Bytes, Tokens
from jaxpar.train.recipe import make_recipe
from jaxpar.train.run import simulate_unless_chosen, start
from jaxpar.train.tokenizer import Tokenizer, read_tokenizer
from jaxpar.train.weights import read_model

NGRAM = "ngram"


@dataclass(frozen=True)
class TrainedModel:
    """A trained decoder, and what its tokens stand for.

    Attributes:
        settings: its sizes and parts.
        params: its parameters, on the host.
        alphabet: what its tokens stand for.
        notes: what a user should know.
    """

    settings: Settings
    params: PyTree[np.ndarray]
    alphabet: Alphabet
    notes: tuple[str, ...]


def mesh_of(where: str, text: str | None) -> Mesh | None:
    """The mesh for inference, as an option names it; its devices are simulated if there are none.

    Raises:
        ValueError: it is no mesh, has an axis that splits nothing, or there are too few devices.
    """
    if text is None:
        return None
    sizes = parse_mesh(text)
    if others := sorted(set(sizes) - {"tp", "cp"}):
        raise ValueError(
            f"{where}: --mesh {text} has axis {others[0]}; in inference devices split each layer "
            "(tp), and the positions of the cache (cp); use these, as in tp=4"
        )
    devices = math.prod(sizes.values())
    simulate_unless_chosen(devices)
    if devices > jax.device_count():
        raise ValueError(
            f"{where}: --mesh {text} needs {devices} devices; there are {jax.device_count()} "
            f"({jax.default_backend()}); use fewer, or simulate them: JAX_PLATFORMS=cpu, with "
            "their number in JAX_NUM_CPU_DEVICES"
        )
    return make_mesh(sizes)


def from_checkpoint(where: str, folder: Path, tokenizer: Path | None = None) -> TrainedModel:
    """What a training run has saved in a folder, or a model of Hugging Face.

    Errors begin with `where`.

    Raises:
        ValueError: there is nothing whole in it, or the tokenizer is not its own.
    """
    saved = read_model(where, folder, tokenizer)
    at = "" if saved.step is None else f", step {saved.step}"
    about = f"{folder}{at}: {saved.settings.parameters:,} parameters"
    return TrainedModel(
        saved.settings,
        saved.params,
        _alphabet(saved.tokenizer, begins=saved.step is None),
        (*saved.notes, about),
    )


def in_few_bits(
    where: str, model: TrainedModel, bits: int | None, mesh: Mesh | None
) -> TrainedModel:
    """The model with the matrices of its layers in 8 bits, or in 4 as NF4; None: as they are.

    Raises:
        ValueError: the devices of tp would split blocks, or are more than kv heads.
    """
    if bits is None:
        return model
    tp, heads = mesh.shape.get("tp", 1) if mesh else 1, model.settings.key_heads
    if tp > heads:
        raise ValueError(
            f"{where}: --weight-bits {bits} with tp={tp}: so many devices repeat {heads} kv heads, "
            f"and codes are not repeated; use tp={heads} at most"
        )
    check_blocks(f"{where}: --weight-bits {bits}", model.settings, tp)
    layers = jax.jit(partial(encode, bits=bits))(model.params[STACKED])
    params = model.params | {STACKED: jax.tree.map(np.asarray, layers)}
    before, after = map(_bytes, (model.params, params))
    note = f"matrices in {bits} bits: {before:,} bytes of parameters are {after:,} now"
    settings = replace(model.settings, base_bits=bits)
    return replace(model, settings=settings, params=params, notes=(*model.notes, note))


def from_training(
    steps: int, mesh: str | None, *, data: Path | None, tokenizer: Path | None, seed: int
) -> TrainedModel:
    """A decoder of the usual size, after so many steps of training on these devices.

    Raises:
        ValueError: the text or the tokenizer cannot be read.
    """
    recipe = make_recipe(mesh or "dp=1", steps=steps)
    options: dict[str, Any] = {"data": data, "tokenizer": tokenizer, "seed": seed}
    run = start(Settings(), recipe, None, timeout_seconds=1, **options)
    read = read_tokenizer(tokenizer) if tokenizer else None
    settings = replace(Settings(), vocabulary=read.vocabulary) if read else Settings()
    losses, params = [], None
    for trained in run.proceed(steps):
        losses.append(trained.loss)
        params = trained.params
    run.close()
    about = (
        f"trained {steps} steps: {settings.parameters:,} parameters, "
        f"loss {losses[0]:.3f} to {losses[-1]:.3f}"
    )
    return TrainedModel(settings, jax.tree.map(np.asarray, params), _alphabet(read), (about,))


def speculation_of(where: str, text: str | None) -> Speculation | None:
    """What guesses, as an option names it: "ngram:4", or "DIR:4" with the folder of a model.

    Raises:
        ValueError: the option is malformed, or there is no model in the folder.
    """
    if text is None:
        return None
    what, colon, most = text.rpartition(":")
    if not (what and colon and most.isascii() and most.isdigit() and int(most)):
        raise ValueError(
            f"{where}: --speculate {text}: write what guesses, and how many tokens at most, as in "
            f"{NGRAM}:4 or FOLDER:4"
        )
    if what == NGRAM:
        return Speculation(int(most))
    saved = read_model(f"{where}: --speculate {what}", Path(what))
    return Speculation(int(most), saved.settings, saved.params)


def _bytes(params: PyTree[np.ndarray]) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(params))


def _alphabet(tokenizer: Tokenizer | None, *, begins: bool = False) -> Alphabet:
    return Tokens(tokenizer.made, frozenset(tokenizer.end), begins) if tokenizer else Bytes()
