"""What a program computes in one call, as arrays, and how these are filled row by row."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Int

from jaxpar.batching.scheduler import Work
from jaxpar.serve.cache import Pages, Slots
from jaxpar.serve.sampling import Choices, Sampling


class Batch(NamedTuple):
    """What a program computes, as arrays.

    Attributes:
        tokens: the new tokens of each row.
        starts: how many tokens each row has in the cache.
        counts: how many of its new tokens count; 0 for a row that has nothing to do.
        where: the places of each row in the cache.
        choices: how the tokens of each row are chosen.
    """

    tokens: Int[Array, "b t"]
    starts: Int[Array, " b"]
    counts: Int[Array, " b"]
    where: Slots | Pages
    choices: Choices


class Rows:
    """The arrays of a batch with b rows of t tokens, none of which has anything to do at first.

    Args:
        b: the rows.
        t: the new tokens of a row.
        pages: how many pages a row has at most; None: the cache has slots.
        own: whether each row is in the slot of its number.
    """

    def __init__(self, b: int, t: int, *, pages: int | None, own: bool) -> None:
        self._tokens = np.zeros((b, t), np.int32)
        self._starts, self._counts = np.zeros((2, b), np.int32)
        self._table = None if pages is None else np.zeros((b, pages), np.int32)
        self._rows = None if own else np.zeros(b, np.int32)
        self._temperature, self._top_p = np.zeros((2, b), np.float32)
        self._top_k, self._seed = np.zeros((2, b), np.int32)

    def fill(self, row: int, work: Work, table: Sequence[int], sampling: Sampling) -> None:
        """Writes into a row what is to be done, and the pages of the request."""
        one = work.generation
        tokens = one.tokens[work.start : work.start + work.count]
        self._tokens[row, : len(tokens)] = tokens
        self._starts[row], self._counts[row] = work.start, work.count
        if self._table is not None:
            self._table[row, : len(table)] = table
        if self._rows is not None:
            self._rows[row] = work.row
        self._temperature[row], self._top_k[row] = sampling.temperature, sampling.top_k
        self._top_p[row], self._seed[row] = sampling.top_p, sampling.seed

    def guess(self, row: int, guess: Sequence[int]) -> None:
        """Writes guesses behind the newest token of a row."""
        self._tokens[row, 1 : 1 + len(guess)] = guess
        self._counts[row] = 1 + len(guess)

    def batch(self) -> Batch:
        """The batch, whose arrays do not change any more."""
        if self._table is not None:
            where = Pages(_copy(self._table))
        else:
            where = Slots(None if self._rows is None else _copy(self._rows))
        choices = Choices(
            _copy(self._temperature), _copy(self._top_k), _copy(self._top_p), _copy(self._seed)
        )
        starts, counts = _copy(self._starts), _copy(self._counts)
        return Batch(_copy(self._tokens), starts, counts, where, choices)


def _copy(x: np.ndarray) -> Any:
    """A copy: a program may still read the array when its row is filled again."""
    return x.copy()
