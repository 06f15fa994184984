"""What the explorers and the judge need of numpy, in Python's own numbers.

This stands on the path of a browser, where numpy cannot be had, and nowhere else. A formula for
many layouts is asked for one: nearly all "arrays" here are single numbers. Real arrays are what
contracts draw, and the parts in the pictures of collectives.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from . import random as random
from .arrays import bool_ as bool_
from .arrays import flattened, plain, scalar
from .arrays import float32 as float32
from .arrays import float64 as float64
from .arrays import generic as generic
from .arrays import int64 as int64
from .arrays import ndarray as ndarray

inf = math.inf


# Of many arrays, and of their elements.


def array(values: Sequence[Any], dtype: Any = None) -> ndarray:
    """An array of numbers, or of lists of them."""
    shape, inner = [len(values)], values
    while inner and isinstance(inner[0], Sequence | ndarray) and not isinstance(inner[0], str):
        inner = inner[0]
        shape.append(len(inner))
    return ndarray(flattened(values, len(shape) - 1), tuple(shape))


def arange(count: int) -> ndarray:
    """The integers below `count`."""
    return array(range(count))


def concatenate(arrays: Sequence[Any], axis: int = 0) -> ndarray:
    """Arrays one after the other along dim 0 or dim 1."""
    if axis == 0:
        return array([row for one in arrays for row in one])
    return array([[row for one in rows for row in one] for rows in zip(*arrays, strict=True)])


def cumsum(values: Sequence[Any]) -> ndarray:
    """Each number with all before it."""
    return array(values).cumsum()


def flatnonzero(values: ndarray) -> ndarray:
    """The places of what is not 0."""
    return array([place for place, value in enumerate(values) if value])


def ndindex(*shape: int) -> Iterator[tuple[int, ...]]:
    """All places of an array of this shape."""
    return product(*map(range, shape))


def percentile(values: Sequence[Any], percent: float) -> float:
    """What so many percent of the values are not above, on a line between two of them."""
    ordered = sorted(values)
    below, part = builtins.divmod((len(ordered) - 1) * percent / 100, 1)
    one, other = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return one + (other - one) * part


def unique(value: Any, return_inverse: bool = False) -> tuple[ndarray, int]:
    """A single number, and its place among the numbers that differ."""
    return array([value]), 0


def shape(value: Any) -> tuple[int, ...]:
    """The shape of a single number."""
    return ()


# Of single numbers.


def asarray(value: Any) -> Any:
    """The number."""
    return value


def where(condition: Any, one: Any, other: Any) -> Any:
    """One number if the condition holds, else the other."""
    return scalar(plain(one if condition else other))


def maximum(one: Any, other: Any) -> Any:
    """The larger one."""
    return builtins.max(one, other)


def minimum(one: Any, other: Any) -> Any:
    """The smaller one."""
    return min(one, other)


def clip(value: Any, least: Any, most: Any) -> Any:
    """The number, or the nearest bound."""
    return min(builtins.max(value, least), most)


def equal(one: Any, other: Any) -> bool_:
    """Whether two numbers are equal."""
    return bool_(one == other)


def greater(one: Any, other: Any) -> bool_:
    """Whether the first one is larger."""
    return bool_(one > other)


def gcd(one: Any, other: Any) -> int:
    """The greatest common divisor."""
    return math.gcd(one, other)


def divmod(one: Any, other: Any) -> tuple[Any, Any]:
    """The quotient without its fraction, and the rest."""
    return builtins.divmod(one, other)


def sqrt(value: Any) -> float:
    """The square root."""
    return math.sqrt(value)


def ceil(value: Any) -> float:
    """The next whole number."""
    return float(math.ceil(value))


def multiply(one: Any, other: Any) -> Any:
    """The product."""
    return one * other


def abs(values: Any) -> Any:
    """Numbers without their signs."""
    if isinstance(values, ndarray):
        return ndarray([math.fabs(value) for value in values], values.shape)
    return math.fabs(values)


def any(value: Any) -> bool:
    """Whether the number is not 0."""
    return bool(value)


def max(value: Any) -> Any:
    """The number, which is the largest of its kind."""
    return value


def broadcast_arrays(*values: Any) -> list[Any]:
    """The numbers."""
    return [scalar(plain(value)) for value in values]


def broadcast_to(value: Any, shape: tuple[int, ...]) -> Any:
    """The number."""
    return value


def stack(values: Sequence[Any]) -> list[Any]:
    """The numbers."""
    return list(values)


def argmax(values: Sequence[Any], axis: int = 0) -> int64:
    """The place of the largest number, the first one of several."""
    return int64(values.index(builtins.max(values)))


def take_along_axis(values: Sequence[Any], place: int, axis: int = 0) -> list[Any]:
    """What stands at a place."""
    return [scalar(values[place])]
