"""What is wrong with the steps of an answer, in one sentence: a part that is there twice, or lacks.

An array of steps is [devices, ..., parts], and says how often a value holds the part of a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from jaxpar.drawing.elements import letter
from jaxpar.drawing.steps import Steps

SMALLEST = 1e-3


def diagnosis(steps: Steps, expected: Steps, names: Sequence[str]) -> str | None:
    """Says what is wrong first, or returns None where the results have the right parts.

    Args:
        steps: those of an answer.
        expected: those of the library's own.
        names: the names of the devices.
    """
    most = max(array.max() for _, array in _moments(expected))
    repeated = _repeated(steps, names) if most < 2 - SMALLEST else ()
    return next(chain(repeated, _different(steps, expected, names)), None)


def _moments(steps: Steps) -> Iterator[tuple[int, np.ndarray]]:
    """Every array, with the number of the last step before it; 0 is the start."""
    for number, frame in enumerate(steps.frames, start=1):
        yield from ((number - 1, array) for array in frame.before)
        yield from ((number, array) for array in frame.after)
    yield from ((len(steps.frames), array) for array in steps.results)


def _repeated(steps: Steps, names: Sequence[str]) -> Iterator[str]:
    for step, array in _moments(steps):
        for device, *_, part in np.argwhere(array > 2 - SMALLEST):
            when = f"after step {step}" if step else "before step 1"
            count = float(array[device, ..., part].max())
            yield f"{when} device {names[device]} has {letter(part)} {_times(count)}"


def _different(steps: Steps, expected: Steps, names: Sequence[str]) -> Iterator[str]:
    found, wanted = ([array.shape[1:-1] for array in one.results] for one in (steps, expected))
    if found != wanted:
        yield f"the result on each device has the shape {_shapes(found)}, not {_shapes(wanted)}"
        return
    for have, want in zip(steps.results, expected.results, strict=True):
        for place in map(tuple, np.argwhere(np.abs(have - want) > SMALLEST)):
            device, *element, part = place
            where = f"the result on device {names[device]}"
            if have[0].size > have.shape[-1]:
                where += f", element {', '.join(map(str, element))},"
            if abs(have[place]) < SMALLEST:
                yield f"{where} lacks {letter(part)}"
            elif abs(want[place]) < SMALLEST:
                yield f"{where} has {letter(part)}, which does not belong there"
            else:
                times = _times(float(have[place])), _times(float(want[place]))
                yield f"{where} has {letter(part)} {times[0]}, not {times[1]}"


def _times(count: float) -> str:
    return {1.0: "once", 2.0: "twice"}.get(round(count, 3), f"{count:.3g} times")


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(str([*shape]) for shape in shapes)
