"""SVG files as parts of a page."""

import re
from html import escape

VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+)')


def titled(svg: str, title: str) -> str:
    """The element of an SVG file, with what a screen reader says of it."""
    element = svg[svg.index("<svg") :].replace("<svg", '<svg role="img"', 1)
    return element.replace(">", f"><title>{escape(title)}</title>", 1)


def width_of(svg: str) -> str:
    """How wide an SVG file of ours is, in pixels."""
    box = VIEW_BOX.search(svg)
    assert box, "every SVG file of ours has a view box"
    return box[1]
