"""Drafts: guesses of the next tokens, which the model verifies all at once.

A token is chosen with noise that depends on its position alone (`jaxpar.serve.sampling`), so what
the model would choose at each place is known once the tokens before it are, and a guess is right if
it is that token. The text is therefore the same with any draft and with none. A draft that is a
model chooses with the same noise, which makes equal choices likely where distributions are alike.

Source: Daliri, Musco and Suresh 2024 (Coupling without Communication and Drafter-Invariant
    Speculative Decoding); with other noise, Leviathan, Kalman and Matias 2023, which
    `jaxpar.parallel.decode.speculative_accept` is
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, PyTree

from jaxpar.batching.scheduler import Work
from jaxpar.checks import check_positive
from jaxpar.model import Settings
from jaxpar.serve.batch import Batch
from jaxpar.serve.cache import Layer
from jaxpar.serve.model import Model, Spread, add, after_last
from jaxpar.serve.sampling import choose

LONGEST = 3  # tokens at the end of a text that are looked for in it


class Draft(Protocol):
    """What guesses. It is told all that the model computes."""

    @property
    def programs(self) -> int:
        """How many programs were compiled."""
        ...

    def see(self, batch: Batch) -> None:
        """A chunk of a prompt is computed."""

    def guess(self, works: Sequence[Work], batch: Batch) -> list[list[int]]:
        """For each work, at most `count - 1` tokens after its newest one, which the batch has."""
        ...


@dataclass(frozen=True)
class NGram:
    """Guesses that what followed the same tokens before follows again: no model, and no cache.

    Source: Saxena 2023 (Prompt Lookup Decoding)
    """

    programs: int = 0

    def see(self, batch: Batch) -> None:
        """Needs nothing but the tokens."""

    def guess(self, works: Sequence[Work], batch: Batch) -> list[list[int]]:
        """What followed the last tokens where they were before."""
        return [followed(work.generation.tokens, work.count - 1) for work in works]


def followed(tokens: Sequence[int], most: int) -> list[int]:
    """What followed the last few tokens where these were last before, at most so many tokens.

    Of the last 3 tokens, as many are looked for as are found.
    """
    text = np.asarray(tokens)
    for n in range(min(LONGEST, len(text) - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], n)
        found = np.flatnonzero((windows == text[-n:]).all(1))
        if len(found):
            after = found[-1] + n
            return text[after : after + most].tolist()
    return []


class DraftModel:
    """A smaller decoder, whose cache has the same places: `chunk` and `decode` are the batches."""

    def __init__(self, model: Model, most: int, chunk: Batch, decode: Batch) -> None:
        self._model = model
        self._see = model.compiled(after_last, chunk)
        self._guess = model.compiled(partial(after_one_another, most), _newest(decode))

    @property
    def programs(self) -> int:
        """How many programs were compiled."""
        return self._model.programs

    def see(self, batch: Batch) -> None:
        """Puts the chunk into its own cache."""
        self._see(batch)

    def guess(self, works: Sequence[Work], batch: Batch) -> list[list[int]]:
        """What it would choose itself."""
        tokens = np.asarray(self._guess(_newest(batch)))
        return [tokens[work.row, : work.count - 1].tolist() for work in works]


def _newest(batch: Batch) -> Batch:
    """The batch without the places for drafts."""
    return batch._replace(tokens=batch.tokens[:, :1])


def after_one_another(
    most: int, decoder: Spread, params: Any, cache: list[Layer], batch: Batch
) -> tuple[list[Layer], Int[Array, "b t"]]:
    """Adds a token to each row, and then, one after the other, those that it chooses itself.

    Each row gets `count - 1` of them. The last one is added, too: if all are right, the next token
    to add is the one after it.
    """
    token, chosen = batch.tokens, []
    for i in range(most + 1):
        adds = (batch.counts > i).astype(jnp.int32)
        one = batch._replace(tokens=token, starts=batch.starts + i, counts=adds)
        cache, logits = add(decoder, params, cache, one)
        positions = one.starts + 1
        token = choose(logits[:, 0], positions, batch.choices, axis=decoder.split.axis)[:, None]
        chosen.append(token)
    return cache, jnp.concatenate(chosen[:most], axis=1)


@dataclass(frozen=True)
class Speculation:
    """What guesses the next tokens.

    Attributes:
        most: how many tokens it guesses at once, at most.
        settings: those of a smaller decoder with the same vocabulary; None: n-grams guess.
        params: its parameters.

    Raises:
        ValueError: it guesses nothing.
    """

    most: int
    settings: Settings | None = None
    params: PyTree[Array] | None = None

    def __post_init__(self) -> None:
        """Checks the number."""
        check_positive("Speculation", {"most": self.most})
