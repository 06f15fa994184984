"""Derives the steps of collectives, which a page draws, from the library's own functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpar import collectives
from jaxpar.contracts import find
from jaxpar.contracts.base import load
from jaxpar.course.answer_steps import ROOT, SHAPES, Example, example
from jaxpar.explore.collectives import NAMES
from jaxpar.explore.frames import FILE, encode
from jaxpar.files import write_atomically

SIZES = range(2, 9)
AXIS = "dp"


def build(root: Path) -> None:
    """Writes the steps of all algorithms beside the module that reads them."""
    data = {name: {str(n): run for n in SIZES if (run := run_of(name, n))} for name in NAMES}
    text = json.dumps(data, separators=(",", ":")) + "\n"
    write_atomically(root / "jaxpar/explore" / FILE, text.encode())


def run_of(name: str, n: int) -> dict[str, Any] | None:
    """The steps of an algorithm on n devices, as data; None if it does not run on so many."""
    try:
        drawn, function = _example(name, n)
        steps = drawn.parts(function)
    except ValueError:
        return None
    return {"title": drawn.title(name), "axes": dict(drawn.axes)} | encode(steps)


def _example(name: str, n: int) -> tuple[Example, Any]:
    """A call that is small enough to be drawn, of an exercise's function or of another one."""
    where = find(name)
    if where is not None and name in SHAPES:
        contract = load(where)
        return example(contract, n), contract.reference
    keywords: Mapping[str, Any] = {"axis": AXIS}
    if name.startswith("tree_"):
        keywords = {"axis": AXIS, "root": ROOT}
    shape = (n,) if name == "ring_all_reduce" else (1,)
    return Example({AXIS: n}, shape, keywords), getattr(collectives, name)


if __name__ == "__main__":
    build(Path(__file__).parents[2])
