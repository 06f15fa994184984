"""Pictures of lessons: as lines and an SVG file in the course folder, in a notebook, or a page."""

from jaxpar.course.output import output
from jaxpar.drawing.picture import Picture


def draw(name: str, picture: Picture) -> None:
    """Shows a picture; a terminal prints its lines, and writes pictures/NAME.svg in the course."""
    output().picture(name, picture)
