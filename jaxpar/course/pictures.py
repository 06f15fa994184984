"""Pictures for lessons: what every device holds, step by step, and what is sent in between.

Each cell has a value, and a colour with a letter for whose it is. `draw` prints a picture as
lines, and writes it as SVG.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from numpy.typing import ArrayLike

from jaxpar.course.catalog import BadUseError
from jaxpar.course.cost_pictures import Bars, Roofline
from jaxpar.course.curves import Curves
from jaxpar.course.drawing import Block, Panel, Picture
from jaxpar.course.folder import find_course
from jaxpar.grading.files import write_atomically
from jaxpar.schedules.drawing import Drawing, Track
from jaxpar.schedules.drawing_text import ASCII

NOBODY = -1
Values = ArrayLike | int | float
Shown = TypeVar("Shown", Picture, Curves, Drawing, Bars, Roofline)
# For a terminal that has no boxes, arrows and heights.
_BOXES = str.maketrans("\u250c\u2510\u2514\u2518\u2500\u2502\u25cf\u25c0\u25b6", "++++-|o<>")


def panel(
    title: str,
    arrays: Iterable[Values],
    owners: Iterable[Values] | None = None,
    *,
    names: Sequence[str] | None = None,
    arrows: Iterable[tuple[int, int]] = (),
    columns: int | None = None,
) -> Panel:
    """What every device holds at one moment.

    Args:
        title: What happens here.
        arrays: For each device an array of numbers or short texts: dim 0 goes down, dim 1 to
            the right.
        owners: For each device whose cells these are: a number (0 is "a" and orange), or an
            array of numbers, one for each cell or for each row; NOBODY for white. Left out:
            each device owns its own.
        names: What stands above each device; "device 0", "device 1" ... if left out.
        arrows: (source, target) pairs of devices, drawn towards the next panel; both panels
            must have all devices side by side.
        columns: Devices side by side; all if left out.
    """
    held = [_two_dims(np.asarray(array)) for array in arrays]
    whose = range(len(held)) if owners is None else owners
    blocks = tuple(_block(values, owner) for values, owner in zip(held, whose, strict=True))
    titles = [f"device {number}" for number in range(len(held))] if names is None else names
    return Panel(title, blocks, tuple(titles), tuple(arrows), columns or len(held))


def draw(name: str, title: str, *panels: Panel) -> Picture:
    """Prints a picture, and writes it to pictures/NAME.svg in the course folder.

    Returns the picture, so that a notebook shows it too.
    """
    return _show_picture(name, Picture(title, panels))


def draw_curves(
    name: str, title: str, across: str, curves: Mapping[str, Sequence[float]]
) -> Curves:
    """Draws curves over the same steps, 0, 1, ...

    Args:
        name: Of the file.
        title: What the values are.
        across: What the steps are.
        curves: The name of each curve, and its value at each step.
    """
    return _show_picture(name, Curves(title, across, curves))


def draw_schedules(name: str, *tracks: Track) -> Drawing:
    """Draws pipeline schedules one above the other, to one scale of time."""
    return _show_picture(name, Drawing(tracks))


def draw_bars(
    name: str,
    title: str,
    unit: str,
    bars: Mapping[str, Mapping[str, float]],
    limit: tuple[str, float] | None = None,
) -> Bars:
    """Draws sums as bars of their terms, to one scale.

    Args:
        name: Of the file.
        title: What they are.
        unit: Of the terms.
        bars: The name of each sum, and its terms by name.
        limit: What no sum may exceed, as a name and a value.
    """
    return _show_picture(name, Bars(title, unit, bars, limit))


def draw_roofline(
    name: str,
    title: str,
    peak_flops: float,
    memory_bytes_per_second: float,
    points: Mapping[str, float],
) -> Roofline:
    """Draws what a device can do, over FLOPs for each byte, and programs by name on it."""
    return _show_picture(name, Roofline(title, peak_flops, memory_bytes_per_second, points))


def draw_layout(name: str, title: str, x: jax.Array) -> Picture:
    """Draws an array as a whole, and the part of it that each device of its mesh holds."""
    assert isinstance(x.sharding, NamedSharding)
    mesh, owner = cast(Mesh, x.sharding.mesh), np.full(x.shape, NOBODY)
    shards = {shard.device: shard for shard in x.addressable_shards}
    places = list(np.ndindex(*mesh.devices.shape))
    for rank, place in enumerate(places):
        owner[shards[mesh.devices[place]].index] = rank
    parts = [np.asarray(shards[mesh.devices[place]].data) for place in places]
    names = [", ".join(map("{} {}".format, mesh.axis_names, place)) for place in places]
    held = f"What each device holds, shape {parts[0].shape}"
    return draw(
        name,
        title,
        panel(f"The whole array, shape {x.shape}", [np.asarray(x)], [owner], names=["x"]),
        panel(held, parts, names=names, columns=mesh.devices.shape[-1]),
    )


def draw_steps(
    name: str,
    title: str,
    moments: Sequence[np.ndarray],
    arrows: Sequence[Sequence[tuple[int, int]]],
) -> Picture:
    """Draws what each device holds at the start and after each step; nan is nothing yet.

    A number keeps the letter of the device that gave it in; a sum has none.

    Args:
        name: Of the file.
        title: What happens.
        moments: For each moment an array [device] or [device, block].
        arrows: For each step, who sends to whom.
    """
    given = np.nanmax(np.atleast_2d(moments[0]), axis=0)
    panels = []
    for step, (held, pairs) in enumerate(zip(moments, [*arrows, []], strict=True)):
        owners = np.where(held == given, np.arange(len(given)), NOBODY)
        values = np.where(np.isnan(held), ".", held.astype(object))
        moment = f"after step {step}" if step else "at the start"
        panels.append(panel(moment, values[..., None], owners[..., None], arrows=pairs))
    return draw(name, title, *panels)


def _show_picture(name: str, picture: Shown) -> Shown:
    text = picture.to_text()
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = text.translate(_BOXES | ASCII)
    print(f"{text}\n\n{_write(name, picture)}\n")
    return picture


def _write(name: str, picture: Shown) -> str:
    try:
        root = find_course(Path.cwd()).root
    except BadUseError:
        root = Path.cwd()
    path = root / "pictures" / f"{name}.svg"
    try:
        write_atomically(path, picture.to_svg().encode())
    except OSError as error:
        return f"(the picture in colour was not written: {error})"
    return f"(in colour: {path.relative_to(root)})"


def _two_dims(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 1) if values.ndim < 2 else values


def _block(values: np.ndarray, owner: Values) -> Block:
    owners = np.asarray(owner)
    whose = np.broadcast_to(_two_dims(owners) if owners.ndim else owners, values.shape)
    return tuple(
        tuple(
            (_show_cell(value), None if one == NOBODY else int(one))
            for value, one in zip(row, row_owners, strict=True)
        )
        for row, row_owners in zip(values, whose, strict=True)
    )


def _show_cell(value: object) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
