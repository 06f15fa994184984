"""Single numbers and arrays, with what numpy's can do that Python's own cannot."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from typing import Any


class generic:  # noqa: N801
    """What a single number has as an array without a dim."""

    shape = ()

    def __getitem__(self, place: Any) -> Any:
        return self

    def reshape(self, shape: Any) -> Any:
        """The same number."""
        return self


class int64(generic, int):  # noqa: N801
    """An integer."""


class float64(generic, float):  # noqa: N801
    """A float."""


class float32(float):  # noqa: N801
    """A float that is rounded to 32 bits after each step."""

    def __new__(cls, value: float) -> float32:
        """Rounds the value."""
        return super().__new__(cls, struct.unpack("f", struct.pack("f", value))[0])

    def __add__(self, other: float) -> float32:
        return float32(float(self) + float32(other))

    def __sub__(self, other: float) -> float32:
        return float32(float(self) - float32(other))

    def __mul__(self, other: float) -> float32:
        return float32(float(self) * float32(other))

    def __truediv__(self, other: float) -> float32:
        return float32(float(self) / float32(other))


class bool_(generic):  # noqa: N801
    """True or false, whose opposite is written with a tilde."""

    def __init__(self, value: Any) -> None:
        self._value = bool(value)

    def __bool__(self) -> bool:
        return self._value

    def __invert__(self) -> bool_:
        return bool_(not self._value)

    def __or__(self, other: Any) -> bool_:
        return bool_(self._value or other)

    def __and__(self, other: Any) -> bool_:
        return bool_(self._value and other)

    def __mul__(self, other: Any) -> Any:
        return self._value * other

    __ror__, __rand__, __rmul__ = __or__, __and__, __mul__


class ndarray:  # noqa: N801
    """Numbers in rows and columns: a flat list and a shape."""

    def __init__(self, flat: list[Any], shape: tuple[int, ...]) -> None:
        self._flat, self.shape = flat, shape

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            rows = list(self)[place]
            inner = self.shape[1:]
            return ndarray(flattened(rows, len(inner)), (len(rows), *inner))
        size = math.prod(self.shape[1:])
        start = range(len(self))[place] * size
        if len(self.shape) > 1:
            return ndarray(self._flat[start : start + size], self.shape[1:])
        return scalar(self._flat[start])

    def tolist(self) -> list[Any]:
        """Lists in lists."""
        return [row.tolist() if isinstance(row, ndarray) else plain(row) for row in self]

    def reshape(self, *shape: Any) -> Any:
        """The same numbers in another shape, of which one size may be -1."""
        if shape == ((),):
            return scalar(self._flat[0])
        known = math.prod(size for size in shape if size != -1)
        sizes = tuple(len(self._flat) // known if size == -1 else size for size in shape)
        return ndarray(self._flat, sizes)

    def cumsum(self) -> ndarray:
        """Each number with all before it."""
        return ndarray(list(accumulate(self._flat)), self.shape)

    def _with(self, other: Any, of_two: Callable[[Any, Any], Any]) -> ndarray:
        others = other._flat if isinstance(other, ndarray) else [other] * len(self._flat)
        pairs = zip(self._flat, others, strict=True)
        return ndarray([of_two(*pair) for pair in pairs], self.shape)

    def __add__(self, other: Any) -> ndarray:
        return self._with(other, operator.add)

    __radd__ = __add__

    def __truediv__(self, other: Any) -> ndarray:
        return self._with(other, operator.truediv)

    def __gt__(self, other: Any) -> ndarray:
        return self._with(other, operator.gt)


def flattened(rows: Iterable[Any], dims: int) -> list[Any]:
    """The elements of lists in lists, so many levels deep."""
    for _ in range(dims):
        rows = chain.from_iterable(rows)
    return list(rows)


def scalar(value: Any) -> Any:
    """A number of Python as one of numpy's."""
    if isinstance(value, bool):
        return bool_(value)
    kinds = {int: int64, float: float64}
    return kinds[type(value)](value) if type(value) in kinds else value


def plain(value: Any) -> Any:
    """A number of numpy's as one of Python."""
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value
