"""Sizes that people give to `memory` and `plan`: the largest allowed, and the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from jaxpar.cost.architecture import Architecture

SEQUENCE = 2048
OF_SEQUENCE = f"Tokens of an example; else {SEQUENCE}, or all positions of a model with fewer."
# Larger than in any run, yet so small that products of two of them fit into 64 bits.
LARGEST, MOST_DEVICES, MOST_EXAMPLES = 1 << 30, 1 << 20, 1 << 24


def whole(help: str) -> Any:
    """Returns an option that takes a whole number of 1 or more."""
    return typer.Option(min=1, metavar="N", help=help)


def option(name: str) -> str:
    """Returns the name of an option as it is written on the command line."""
    return f"--{name.replace('_', '-')}"


def check_sizes(where: str, given: Mapping[str, Any]) -> None:
    """Raises ValueError if a whole number is too large to compute with."""
    most = {"devices": MOST_DEVICES, "batch": MOST_EXAMPLES}
    for name, value in given.items():
        allowed = most.get(name, LARGEST)
        if isinstance(value, int) and value > allowed:
            raise ValueError(f"{where}: {option(name)} {value}; use {allowed:,} at most")


def parse_axes(where: str, mesh: str | None) -> dict[str, int]:
    """Returns the sizes of the axes that `mesh` names; none if it is not given.

    Raises:
        ValueError: it cannot be read, names an axis that no layout has, or too many devices.
    """
    from jaxpar.axes import parse_mesh
    from jaxpar.checks import check_one_of
    from jaxpar.layout import AXES

    sizes = parse_mesh(mesh) if mesh else {}
    for axis in sizes:
        check_one_of(where, "mesh axis", axis, AXES)
    if prod(sizes.values()) > MOST_DEVICES:
        raise ValueError(
            f"{where}: mesh {mesh!r} has more than {MOST_DEVICES:,} devices; use fewer"
        )
    return sizes


def tokens(sequence: int | None, model: Architecture | float) -> int:
    """Returns the tokens in an example: as given, else the model's positions, up to 2048."""
    return sequence or min(getattr(model, "positions", 0) or SEQUENCE, SEQUENCE)
