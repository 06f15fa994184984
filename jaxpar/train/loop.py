"""The loop of a training run."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxpar.train.step import Step
from jaxpar.train.validation import Validated


class Trained(NamedTuple):
    """The result of one step, and of a validation after it, if there was one.

    `skipped` says how many steps in a row were skipped, with this one; 0: it was taken. `params`
    and `state` are valid until the next step is requested.
    """

    loss: float
    gradient_norm: float
    seconds: float
    params: Any
    state: Any
    largest_load: float | None = None
    dropped: float | None = None
    validated: Validated | None = None
    skipped: int = 0


def train(step: Step, params: Any, state: Any, batches: Iterator[Any]) -> Iterator[Trained]:
    """Takes one step for every batch.

    The arrays passed as `params` and `state` are invalid after the first step if `step` donates
    their memory.
    """
    batch = next(batches, None)
    while batch is not None:
        start = time.perf_counter()
        params, state, measures = step(params, state, batch)
        batch = next(batches, None)  # made while the devices work
        found = (None if one is None else float(one) for one in measures)
        loss, norm, load, dropped, skipped = found
        assert loss is not None and norm is not None
        seconds = time.perf_counter() - start
        yield Trained(loss, norm, seconds, params, state, load, dropped, skipped=int(skipped or 0))
