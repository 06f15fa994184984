"""The steps of collectives as JSON: whose parts each device holds, as the letters of pictures.

The file is derived from the library by `jaxpar.course.frames`, since that takes JAX.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from jaxpar.drawing.elements import LETTERS
from jaxpar.drawing.steps import Frame, Steps, part_text

FILE = "frames.json"
PART = re.compile(r"([a-z])([0-9.]*)")


def encode(steps: Steps) -> dict[str, Any]:
    """Steps as values for JSON: of each array a text for each device, one word an element."""
    frames = [
        {
            "kind": frame.kind,
            "axes": frame.axes,
            "pairs": frame.pairs,
            "before": _texts(frame.before),
            "after": _texts(frame.after),
        }
        for frame in steps.frames
    ]
    return {"given": _texts(steps.given), "frames": frames, "results": _texts(steps.results)}


def decode(data: Mapping[str, Any]) -> Steps:
    """The steps that `encode` made this data from; each array is [devices, elements, parts]."""
    frames = [
        Frame(
            frame["kind"],
            tuple(frame["axes"]),
            tuple((one, other) for one, other in frame["pairs"]),
            _arrays(frame["before"]),
            _arrays(frame["after"]),
        )
        for frame in data["frames"]
    ]
    return Steps(_arrays(data["given"]), tuple(frames), _arrays(data["results"]))


@cache
def runs() -> Mapping[str, Mapping[str, Any]]:
    """For each algorithm and number of devices its title, the mesh, and its steps as data."""
    return json.loads(files("jaxpar.explore").joinpath(FILE).read_text("utf-8"))


def _texts(arrays: Sequence[np.ndarray]) -> list[list[str]]:
    flat = (array.reshape(len(array), -1, array.shape[-1]) for array in arrays)
    return [[" ".join(map(part_text, device)) for device in array] for array in flat]


def _arrays(texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, ...]:
    return tuple(
        np.array([[_counts(word, len(devices)) for word in text.split()] for text in devices])
        for devices in texts
    )


def _counts(word: str, devices: int) -> list[float]:
    """How often a value holds the part of each device: "ab2" or "ab/2"."""
    counts = [0.0] * devices
    letters, _, divisor = word.partition("/")
    for letter, times in PART.findall(letters):
        counts[LETTERS.index(letter)] = float(times or 1) / int(divisor or 1)
    return counts
