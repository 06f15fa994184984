"""How many parameters one device holds, before ZeRO shards them further."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxpar.cost.architecture import Architecture, Part
from jaxpar.layout import Layout

# The parts outside of the layers that come before them; the others come after them.
FIRST = ("embedding", "positions", "embedding norm")
SPLITS = ("tp", "kv", "ep", "none")


@dataclass(frozen=True)
class Shards:
    """The parameters on a device of the fullest stage.

    Attributes:
        layers: those of its layers that are not split over ep.
        experts: those of its layers that are split over ep.
        outer: those outside of the layers.
    """

    layers: Any
    experts: Any
    outer: Any


def on_device(architecture: Architecture, layout: Layout) -> Shards:
    """The parameters on a device of the fullest stage."""
    return Shards(
        layer_parameters(architecture, layout, ("tp", "kv", "none")),
        layer_parameters(architecture, layout, ("ep",)),
        outer_parameters(architecture, layout),
    )


def part_on_device(part: Part, architecture: Architecture, layout: Layout) -> Any:
    """How many parameters of a part a device holds."""
    match part.split:
        case "tp":
            return part.count / layout.tp
        case "kv":
            return part.count / np.minimum(layout.tp, architecture.key_heads)
        case "ep":
            return part.count / (layout.ep * layout.tp)
        case "none":
            return part.count


def layers_on_stage(architecture: Architecture, layout: Layout) -> tuple[Any, Any]:
    """How many layers with experts, and how many with an MLP, the fullest stage has.

    That is a stage with as many layers as any, and as many of them with experts as there can be.
    """
    layers = layout.chunks * np.ceil(architecture.layers / (layout.pp * layout.chunks))
    experts = np.minimum(layers, architecture.expert_layers)
    return experts, layers - experts


def layer_parameters(architecture: Architecture, layout: Layout, splits: Container[str]) -> Any:
    """Parameters on a device in the fullest stage's layers, of parts with one of these splits."""
    experts, dense = layers_on_stage(architecture, layout)
    kinds = [(dense, architecture.layer_parts(experts=False))]
    if architecture.experts:
        kinds.append((experts, architecture.layer_parts(experts=True)))
    return sum(
        layers * part_on_device(part, architecture, layout)
        for layers, parts in kinds
        for part in parts
        if part.split in splits
    )


def outer_parameters(
    architecture: Architecture, layout: Layout, splits: Container[str] = SPLITS
) -> Any:
    """Parameters on a device outside of the layers, of parts with one of these splits.

    With several stages these are those of the first or of the last, whichever has more; a tied
    table is on both.
    """
    first, last, copied = 0, 0, 0
    for part in architecture.outer_parts:
        here = part_on_device(part, architecture, layout) if part.split in splits else 0
        if part.name in FIRST:
            first = first + here
        else:
            last = last + here
        if part.name == "embedding" and architecture.tied:
            copied = here
    return np.where(layout.pp > 1, np.maximum(first, last + copied), first + last)
