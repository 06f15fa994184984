"""numpy.random in Python's own numbers: the same seeds draw the same numbers.

Only `Generator.exponential` draws others, by another method of the same distribution.

Source: numpy/random, bit_generator.pyx (SeedSequence), src/pcg64, src/distributions, _generator.pyx
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

from .arrays import ndarray

_32, _64, _128 = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1
_POOL = 4
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


def default_rng(seed: int | Sequence[int]) -> Generator:
    """A generator that draws what numpy's of the same seed does."""
    return Generator(seed)


class Generator:
    """numpy's Generator over PCG64, as far as contracts draw with it."""

    def __init__(self, seed: int | Sequence[int]) -> None:
        high, low, more, less = _state_words(seed)
        self._increment = ((more << 64 | less) << 1 | 1) & _128
        self._state = 0
        self._step()
        self._state = (self._state + (high << 64 | low)) & _128
        self._step()
        self._half: int | None = None

    def random(self, size: int | None = None) -> Any:
        """Floats from 0 to 1."""
        return _filled(size, lambda: (self._next64() >> 11) / (1 << 53))

    def uniform(self, low: Any = 0.0, high: Any = 1.0) -> Any:
        """A float between two others, or one for each of two tuples."""
        return _each(low, high, lambda least, most: least + (most - least) * self.random())

    def exponential(self, scale: float = 1.0, size: int | None = None) -> Any:
        """Floats that are exponentially distributed."""
        return _filled(size, lambda: -scale * math.log1p(-self.random()))

    def integers(self, low: Any, high: Any = None, size: Any = None) -> Any:
        """Integers from `low` up to, and without, `high`; or from 0 up to `low`."""
        low, high = (0, low) if high is None else (low, high)
        if size is None:
            return _each(low, high, lambda least, most: least + self._below(most - least))
        return _filled(size, _draws(low, high, self._below))

    def choice(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[self.integers(len(options))]

    def permutation(self, values: Any) -> ndarray:
        """The values, or the integers below one, in another order."""
        found = list(range(values) if isinstance(values, int) else values)
        for place in range(len(found) - 1, 0, -1):
            other = self._up_to(place)
            found[place], found[other] = found[other], found[place]
        return ndarray(found, (len(found),))

    def _step(self) -> None:
        self._state = (self._state * _MULTIPLIER + self._increment) & _128

    def _next64(self) -> int:
        self._step()
        word = (self._state >> 64) ^ (self._state & _64)
        turn = self._state >> 122
        return (word >> turn | word << (-turn & 63)) & _64

    def _next32(self) -> int:
        """The lower half of 64 new bits, and then the higher one."""
        if self._half is not None:
            half, self._half = self._half, None
            return half
        word = self._next64()
        self._half = word >> 32
        return word & _32

    def _up_to(self, most: int) -> int:
        """An integer up to `most`, where draws that are larger are thrown away."""
        mask = (1 << most.bit_length()) - 1
        while (drawn := self._next32() & mask) > most:
            pass
        return drawn

    def _below(self, count: int) -> int:
        """An integer below `count`, by Lemire's method."""
        if count <= 1:
            return 0
        bits, draw = (32, self._next32) if count <= 1 << 32 else (64, self._next64)
        least = (1 << bits) % count
        while True:
            product = draw() * count
            if product & ((1 << bits) - 1) >= least:
                return product >> bits


def _draws(low: Any, high: Any, below: Callable[[int], int]) -> Callable[[], int]:
    """Draws between the bounds, which are repeated along the last dim where they are tuples."""
    lows = cycle(low if isinstance(low, tuple) else (low,))
    highs = cycle(high if isinstance(high, tuple) else (high,))

    def draw() -> int:
        least, most = next(lows), next(highs)
        return least + below(most - least)

    return draw


def _filled(size: Any, draw: Callable[[], Any]) -> Any:
    if size is None:
        return draw()
    shape = size if isinstance(size, tuple) else (size,)
    return ndarray([draw() for _ in range(math.prod(shape))], shape)


def _each(low: Any, high: Any, draw: Callable[[Any, Any], Any]) -> Any:
    """What is drawn between two numbers, or an array of it where one of them is a tuple."""
    count = max((len(bound) for bound in (low, high) if isinstance(bound, tuple)), default=0)
    if not count:
        return draw(low, high)
    lows, highs = (bound if isinstance(bound, tuple) else (bound,) * count for bound in (low, high))
    return ndarray([draw(*pair) for pair in zip(lows, highs, strict=True)], (count,))


def _state_words(seed: int | Sequence[int]) -> list[int]:
    """Four words of 64 bits that the seed is spread over, as numpy's SeedSequence does."""
    entropy = [word for part in _parts(seed) for word in _words32(part)]
    constant = [0x43B0D7E5]

    def hashed(value: int) -> int:
        value ^= constant[0]
        constant[0] = constant[0] * 0x931E8875 & _32
        value = value * constant[0] & _32
        return value ^ value >> 16

    def mixed(one: int, other: int) -> int:
        value = (one * 0xCA01F9DD - other * 0x4973F715) & _32
        return value ^ value >> 16

    pool = [hashed(word) for word in (*entropy, *[0] * _POOL)[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    for word in entropy[_POOL:]:
        pool = [mixed(target, hashed(word)) for target in pool]
    return list(_generated(pool))


def _generated(pool: Sequence[int]) -> Iterator[int]:
    constant, words = 0x8B51F9DD, []
    for value, _ in zip(cycle(pool), range(8), strict=False):
        value ^= constant
        constant = constant * 0x58F38DED & _32
        value = value * constant & _32
        words.append(value ^ value >> 16)
    for low, high in zip(words[::2], words[1::2], strict=True):
        yield high << 32 | low


def _parts(seed: int | Sequence[int]) -> Sequence[int]:
    return (seed,) if isinstance(seed, int) else seed


def _words32(number: int) -> Iterator[int]:
    """The words of 32 bits of a number, the lowest first."""
    yield number & _32
    while number := number >> 32:
        yield number & _32
