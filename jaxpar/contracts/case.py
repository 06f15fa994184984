"""One call of an answer on one mesh: its arguments, and the sizes that bounds depend on."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ArraySpec:
    """One array argument: its global shape, its layout over the mesh, and how it is drawn.

    `ties` are of three values, of which the two largest are neighbours. `sparse` is positive or 0.
    `padded` is true in the first rows, fewer than half of them, and, where rows have several
    elements, in the first of one row more; it is false elsewhere. `shifted` is normal about -100, 0
    or 100, one of them for each vector of the last dim, so that exp leaves float32; in `peaked`,
    moreover, some vectors have one element that is 200 larger. `spread` is normal times powers of
    ten from 0.001 to 1000, `wide` is normal times 100. Of booleans, `holes` are true at random.
    Integers are from 0 to 99, `around` ones from -50 to 149, and `large` ones up to 2**27 from 0,
    which float32 cannot hold, while a sum of 12 is an int32.
    """

    shape: tuple[int, ...]
    layout: str
    dtype: str = "float32"
    draw: Literal[
        "normal",
        "positive",
        "sparse",
        "ties",
        "padded",
        "shifted",
        "peaked",
        "around",
        "spread",
        "wide",
        "holes",
        "large",
    ] = "normal"


@dataclass(frozen=True)
class Function:
    """A function (or an optimizer) given to the answer, by its import path `module:name`."""

    path: str

    @property
    def function(self) -> Any:
        """What the path leads to."""
        module, _, name = self.path.partition(":")
        return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Made:
    """What a function makes of values: a state that is no dict, list or tuple."""

    function: Function
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One call of the answer on one mesh.

    Arguments are arrays, functions, plain values, or dicts, lists, tuples and `Made` of these.
    `args` are passed by position in this order, `kwargs` by name.
    """

    mesh: str
    args: Mapping[str, Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of devices on each mesh axis, in order."""
        pairs = (part.split("=") for part in self.mesh.split(","))
        return {name: int(size) for name, size in pairs}

    def arrays(self) -> Iterator[tuple[str, ArraySpec]]:
        """Every array leaf, with the name of the argument that it belongs to."""
        for name, value in self.args.items():
            yield from ((name, leaf) for leaf in array_leaves(value))


def array_leaves(value: Any) -> Iterator[ArraySpec]:
    """The arrays of an argument, in the order in which `fill` takes them."""
    if isinstance(value, ArraySpec):
        yield value
    elif isinstance(value, Made):
        yield from array_leaves(value.values)
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from array_leaves(value[key])
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from array_leaves(item)


def fill(value: Any, arrays: Iterator[Any]) -> Any:
    """An argument as a function takes it: the next of `arrays` for each leaf, functions found."""
    match value:
        case ArraySpec():
            return next(arrays)
        case Function():
            return value.function
        case Made():
            return value.function.function(*fill(value.values, arrays))
        case Mapping():
            return {key: fill(value[key], arrays) for key in sorted(value)}
        case list() | tuple():
            return type(value)(fill(item, arrays) for item in value)
    return value


@dataclass(frozen=True)
class Sizes:
    """What a bound may depend on: the case, and nothing that the learner chose."""

    case: Case

    def n(self, over: str = "axis") -> int:
        """Number of devices on the axis that the keyword argument `over` names."""
        return self.case.sizes[self.case.kwargs[over]]

    def bytes(self, name: str) -> int:
        """Bytes of the argument `name` on one device."""
        return sum(self.leaf_bytes(name))

    def leaf_bytes(self, name: str) -> list[int]:
        """Bytes of each leaf of the argument `name` on one device."""
        import numpy as np

        from jaxpar.mesh import parse_layout

        found = []
        for leaf in array_leaves(self.case.args[name]):
            split = math.prod(
                self.case.sizes[axis] for _, axes in parse_layout(leaf.layout) for axis in axes
            )
            item_bytes = np.dtype(leaf.dtype).itemsize if leaf.dtype != "bfloat16" else 2
            found.append(math.prod(leaf.shape) // split * item_bytes)
        return found
