"""Validation: the mean loss on a part of the text that no step is trained on."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from jaxpar.train.recipe import Recipe

MOST_BATCHES = 16
LARGEST = 700.0  # of what `math.exp` takes


@dataclass(frozen=True)
class Validating:
    """What a run is asked to validate.

    Attributes:
        every: how many steps there are from one validation to the next.
        fraction: of the text, from its end, that is held out.
    """

    every: int
    fraction: float = 0.05


def make_validating(recipe: Recipe, every: int | None, fraction: float | None) -> Validating | None:
    """What the options of `jaxpar train` ask for; None: nothing is held out.

    Raises:
        ValueError: a fraction is given alone or is none, or devices do not meet so often.
    """
    if every is None:
        if fraction is not None:
            raise ValueError(
                f"train: --validation {fraction} without --validate-every: it says which part of "
                "the text is held out; add --validate-every N, or leave --validation out"
            )
        return None
    validating = Validating(every, Validating.fraction if fraction is None else fraction)
    if not 0 < validating.fraction < 1:
        raise ValueError(
            f"train: --validation is {fraction}; it is the part of the text that is held out; use "
            "a number between 0 and 1"
        )
    rounds = recipe.sync_every or 1
    if every % rounds:
        raise ValueError(
            f"train: --validate-every {every} with --sync-every {rounds}: a run is validated where "
            f"devices average; use a multiple of {rounds}"
        )
    return validating


class Validated(NamedTuple):
    """What a validation has told.

    Attributes:
        step: the number of steps before it.
        loss: the mean loss of a token.
        perplexity: e to the loss of a byte.
        bits_per_byte: that loss in bits.
    """

    step: int
    loss: float
    perplexity: float
    bits_per_byte: float


@dataclass(frozen=True)
class Validation:
    """The validation of one run.

    Attributes:
        every: how many steps there are from one to the next.
        loss: the function (params, batch) -> the mean loss of a batch.
        batches: of held-out examples, the same each time.
        token_bytes: how many bytes of the held-out text a token has in the mean.
        averaged: the function from the state to the parameters that are validated, which are an
            average; None: the parameters themselves are validated.
    """

    every: int
    loss: Callable[[Any, Any], Array]
    batches: Sequence[Array]
    token_bytes: float = 1.0
    averaged: Callable[[Any], Any] | None = None

    @property
    def examples(self) -> int:
        """The number of held-out examples that are taken."""
        return sum(len(batch) for batch in self.batches)

    def after(self, step: int, params: Any, state: Any, *, last: bool) -> Validated | None:
        """Validates the parameters after this step if it is time to, as it is after the last."""
        if step % self.every and not last:
            return None
        params = self.averaged(state) if self.averaged else params
        # One after the other: simulated devices may not begin a program before all have ended one.
        loss = float(np.mean([float(self.loss(params, batch)) for batch in self.batches]))
        of_byte = loss / self.token_bytes
        perplexity = math.inf if of_byte > LARGEST else math.exp(of_byte)
        return Validated(step, loss, perplexity, of_byte / math.log(2))
