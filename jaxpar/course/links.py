"""Paths of the course as links, which many terminals open with a click (OSC 8)."""

from __future__ import annotations

import re
from pathlib import Path

from rich.style import Style
from rich.text import Text

PATHS = re.compile(r"\b(?:lessons|exercises|pictures)/[\w./-]*\w")


def with_links(text: Text, root: Path) -> Text:
    """Makes a link of each path to a file of a course; a terminal without links shows text alone.

    Args:
        text: may name files, from the course folder on; it is changed.
        root: the course folder.
    """
    for match in PATHS.finditer(text.plain):
        path = root / match[0]
        if path.is_file():
            text.stylize(Style(link=path.absolute().as_uri()), *match.span())
    return text
