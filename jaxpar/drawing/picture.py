"""What every picture can do."""

from typing import Protocol


class Picture(Protocol):
    """A picture, as lines of text or as an SVG file."""

    def to_text(self) -> str:
        """The picture as lines of text."""
        ...

    def to_svg(self) -> str:
        """The picture as an SVG file."""
        ...
