"""Distillation: a trained decoder teaches the one that is trained, on the same tokens and mesh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED, LeafLayouts, fetch
from jaxpar.layout import Layout
from jaxpar.model import Settings, check_split, logits
from jaxpar.model.functions import Taught
from jaxpar.model.split import Split
from jaxpar.parallel.fsdp import gather_layers
from jaxpar.parallel.remat import scan_layers
from jaxpar.train.recipe import Recipe
from jaxpar.train.saved import read_saved
from jaxpar.train.step import shardings
from jaxpar.train.tokenizer import Tokenizer


@dataclass(frozen=True)
class Teacher:
    """A trained decoder.

    Attributes:
        settings: its sizes and parts, of which the vocabulary is the student's.
        params: its parameters, on the host.
    """

    settings: Settings
    params: PyTree[np.ndarray]


def read_teacher(
    folder: Path, settings: Settings, tokenizer: Tokenizer | None, layout: Layout
) -> Teacher:
    """The decoder that a run has saved in a folder, if it can teach one with these settings.

    Raises:
        ValueError: there is none, it reads other tokens, has too few positions, or cannot be split
            as the layout says.
    """
    where = f"train: --distill {folder}"
    saved = read_saved(where, folder)
    theirs, ours = (one.mark if one else "bytes" for one in (saved.tokenizer, tokenizer))
    if theirs != ours:
        raise ValueError(
            f"{where}: its tokens are of {theirs}, and those of this run of {ours}: a teacher "
            "tells the probability of each token of the student; give both the same --tokenizer"
        )
    if saved.settings.vocabulary != settings.vocabulary:
        raise ValueError(
            f"{where}: it has a vocabulary of {saved.settings.vocabulary:,}, and the student one "
            f"of {settings.vocabulary:,}; they must be equal"
        )
    if saved.settings.positions == "learned" and saved.settings.sequence < settings.sequence:
        raise ValueError(
            f"{where}: it has learned {saved.settings.sequence:,} positions, and the student reads "
            f"{settings.sequence:,}; use --sequence {saved.settings.sequence}"
        )
    as_it_reads = replace(saved.settings, sequence=settings.sequence, document_end=None)
    # Without experts it splits nothing over ep, where each device has other tokens.
    over = layout if saved.settings.experts else replace(layout, ep=1)
    try:
        check_split(as_it_reads, over)
    except ValueError as error:
        raise ValueError(f"{where}: it is split as the student is: {error}") from None
    return Teacher(saved.settings, saved.params)


def on_devices(
    params: PyTree[np.ndarray], layouts: PyTree[LeafLayouts], mesh: Mesh, dtype: DTypeLike
) -> PyTree[Array]:
    """The teacher's parameters as they are at rest; each process reads its own shards."""

    def of_leaf(leaf: np.ndarray, sharding: Any) -> Array:
        leaf = leaf.astype(dtype)
        return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])

    at_rest = shardings(mesh, jax.tree.map(lambda layout: layout.at_rest, layouts))
    return jax.tree.map(of_leaf, params, at_rest)


def taught_by(
    settings: Settings, recipe: Recipe, layouts: dict[str, PyTree[LeafLayouts]], params: Any
) -> Taught:
    """What a teacher with these settings and parameters, as at rest, makes of cross-entropies.

    They are gathered as the student's are: at once, or each layer where it is used.

    Source: Hinton, Vinyals and Dean 2015 (Distilling the Knowledge in a Neural Network), section 2
    """
    assert recipe.distillation
    weight, temperature = recipe.distillation.weight, recipe.distillation.temperature
    by_layers, apply = recipe.gathers_layers, partial(scan_layers, remat="none")
    if by_layers:
        apply = gather_layers(apply, layouts[STACKED])
    else:
        params = fetch(params, layouts)

    def losses(inputs: Array, split: Split, predicted: Array, hard: Array) -> Array:
        whole = params
        if by_layers:
            whole = {
                name: part if name == STACKED else fetch(part, layouts[name])
                for name, part in params.items()
            }
        with jax.named_scope("teacher"):
            # Without routes, nothing is summed to balance its experts, which do not learn.
            told = logits(settings, whole, inputs, apply, replace(split, routes=()))
        soft = split.distillation_loss(predicted, told, temperature)
        return (1 - weight) * hard + weight * soft

    return losses
