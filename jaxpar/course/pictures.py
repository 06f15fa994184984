"""Pictures of lessons: as lines and an SVG file in the course folder, or in a notebook."""

from __future__ import annotations

import sys
from pathlib import Path

from jaxpar.course.catalog import BadUseError
from jaxpar.course.folder import find_course
from jaxpar.course.notebook.kernel import in_kernel, show
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves, Points, Roofline
from jaxpar.drawing.elements import printable
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import Panels
from jaxpar.drawing.schedule import Timeline
from jaxpar.files import write_atomically

Picture = Panels | Timeline | Lanes | Bars | Curves | Points | Roofline


def draw(name: str, picture: Picture) -> None:
    """Prints a picture, and writes it to pictures/NAME.svg in the course folder.

    A notebook shows it in colour instead.
    """
    if in_kernel():
        show("image/svg+xml", picture.to_svg(), picture.to_text())
        return
    text = printable(picture.to_text(), sys.stdout.encoding)
    print(f"{text}\n\n{_write(name, picture.to_svg())}\n")


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
