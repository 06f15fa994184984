"""The parts of a page, in the order in which a lesson shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """A part of a page.

    Attributes:
        kind: `prose` in Markdown; `code` that is shown; code that is folded, in `fold`; `printed`
            lines; or `html`.
        text: the part itself.
    """

    kind: Literal["prose", "code", "fold", "printed", "html"]
    text: str


def to_json(parts: Sequence[Part]) -> str:
    """The parts as JSON."""
    return json.dumps([asdict(part) for part in parts])


def from_json(text: str) -> list[Part]:
    """The parts that `to_json` made this JSON of."""
    return [Part(**part) for part in json.loads(text)]
