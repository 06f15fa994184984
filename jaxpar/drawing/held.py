"""What each device holds of an array of any size, as lines of a terminal of any width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jaxpar.drawing.layout import NOBODY, panel, panel_lines, text_width

MOST_ROWS, MOST_CELLS, CELL_COLUMNS = 6, 4, 9
LEFT_OUT = ".."
Holders = Mapping[float, int]
"""The number of the only device that holds a value, by the value."""


def only_holders(arrays: Iterable[Sequence[np.ndarray]]) -> Holders:
    """Finds the values that only one device holds.

    Args:
        arrays: for each array what each device holds of it.
    """
    found: dict[float, int] = {}
    for shards in arrays:
        for device, shard in enumerate(shards):
            for value in np.unique(_numbers(shard)).tolist():
                found[value] = device if found.get(value, device) == device else NOBODY
    return {value: device for value, device in found.items() if device != NOBODY}


def held_lines(
    name: str, shards: Mapping[str, np.ndarray], holders: Holders, width: int
) -> list[str]:
    """Draws what each device holds: rounded, and of a large array the beginning.

    Args:
        name: the name of the array.
        shards: what each device holds, by the device's name.
        holders: the devices whose letters stand after values.
        width: the columns of the terminal.
    """
    first, *others = shards.values()
    if others and all(np.array_equal(_numbers(first), _numbers(other)) for other in others):
        shards = {f"all {len(shards)} devices": first}
    cells = max(1, min(MOST_CELLS, (width - 4) // CELL_COLUMNS))
    texts, whose = zip(
        *(_beginning(shard, holders, cells) for shard in shards.values()), strict=True
    )
    title = f"{name}, {first.dtype}[{', '.join(map(str, first.shape))}] on each device"
    drawn = panel(title, texts, whose, names=list(shards))
    slot = text_width(drawn)
    rows = math.ceil(len(shards) / max(1, (width + 1) // (slot + 1)))
    drawn = replace(drawn, columns=math.ceil(len(shards) / rows))
    return [line.rstrip() for line in panel_lines(drawn, slot)]


def _beginning(shard: np.ndarray, holders: Holders, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """The first values of a shard as texts, and the number of the device of each."""
    if not shard.size:
        return np.array([["empty"]], object), np.array([[NOBODY]])
    rows = _numbers(shard).reshape(-1, shard.shape[-1] if shard.ndim > 1 else 1)
    kept = rows[tuple(map(_shown_part, rows.shape, (MOST_ROWS, cells)))]
    texts = np.array([[_shown(value) for value in row] for row in kept.tolist()], object)
    whose = np.array([[holders.get(value, NOBODY) for value in row] for row in kept.tolist()])
    cut = [(0, int(have > few)) for have, few in zip(rows.shape, kept.shape, strict=True)]
    return (
        np.pad(texts, cut, constant_values=LEFT_OUT),
        np.pad(whose, cut, constant_values=NOBODY),
    )


def _shown_part(size: int, most: int) -> slice:
    """What is shown of a dim; where it is cut, the mark for this takes one of the places."""
    return slice(size if size <= most else max(1, most - 1))


def _numbers(array: np.ndarray) -> np.ndarray:
    """The array in a type that numpy knows: bfloat16 is none of them."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _shown(value: float | int | bool | complex) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if 0.01 <= abs(value) < 1000 else f"{value:.2g}"
