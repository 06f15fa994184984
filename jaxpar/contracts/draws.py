"""What contracts draw further cases with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import numpy as np

from jaxpar.axes import AXES, parse_mesh

Option = TypeVar("Option")


def pick(rng: np.random.Generator, options: Sequence[Option]) -> Option:
    """One of the options, each with the same probability; it stays an object of Python."""
    return options[int(rng.integers(len(options)))]


def axis_names(rng: np.random.Generator, count: int, *, besides: Collection[str]) -> list[str]:
    """Different names of mesh axes, in any order, besides those of the cases in the stub."""
    names = [name for name in AXES if name not in besides]
    return [names[int(i)] for i in rng.permutation(len(names))[:count]]


def mesh_of(rng: np.random.Generator, **sizes: int) -> str:
    """A mesh with these axes in any order."""
    axes = [f"{name}={size}" for name, size in sizes.items()]
    return ",".join(axes[int(i)] for i in rng.permutation(len(axes)))


def all_axes(mesh: str) -> str:
    """The axes of a mesh as a layout names those of one dim that is split over all: "dp_tp"."""
    return "_".join(parse_mesh(mesh))
