"""Pictures one above the other in one SVG file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jaxpar.drawing.elements import document, element

SIZE = re.compile(r'<svg [^>]*width="(?P<width>[0-9]+)" height="(?P<height>[0-9]+)"')


def stacked(pictures: Mapping[str, str]) -> str:
    """One SVG file of several, from the top down; each is in a group that has its name."""
    parts, width, top = [], 0, 0
    for name, picture in pictures.items():
        size = SIZE.search(picture)
        assert size, "every SVG file of ours says how large it is"
        placed = picture.replace("<svg ", f'<svg y="{top}" ', 1)
        parts.append(element("g", placed, data_of=name))
        width, top = max(width, int(size["width"])), top + int(size["height"])
    return document(width, top, parts)
