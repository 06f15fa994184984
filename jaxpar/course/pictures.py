"""Pictures of lessons: printed as lines, and written as SVG files in the course folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from jaxpar.course.catalog import BadUseError
from jaxpar.course.folder import find_course
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves, Points, Roofline
from jaxpar.drawing.elements import printable
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import Panels
from jaxpar.drawing.schedule import Timeline
from jaxpar.files import write_atomically

Picture = TypeVar("Picture", Panels, Timeline, Lanes, Bars, Curves, Points, Roofline)


def draw(name: str, picture: Picture) -> Picture:
    """Prints a picture, and writes it to pictures/NAME.svg in the course folder.

    Returns the picture, so that a notebook shows it too.
    """
    text = printable(picture.to_text(), sys.stdout.encoding)
    print(f"{text}\n\n{_write(name, picture.to_svg())}\n")
    return picture


def _write(name: str, svg: str) -> str:
    try:
        root = find_course(Path.cwd()).root
    except BadUseError:
        root = Path.cwd()
    path = root / "pictures" / f"{name}.svg"
    try:
        write_atomically(path, svg.encode())
    except OSError as error:
        return f"(the picture in colour was not written: {error})"
    return f"(in colour: {path.relative_to(root)})"
