"""Requests that come at random: when, how long, and which of their clients leave early. No JAX."""

from dataclasses import dataclass

import numpy as np

from jaxpar.checks import check_positive


@dataclass(frozen=True)
class Load:
    """How requests come.

    Attributes:
        rate: the mean number of requests that arrive in a second; the times between them are
            exponential, so they come in bursts.
        requests: how many there are.
        prompt: the fewest and the most tokens of a prompt; all numbers in between are alike.
        output: the same of the tokens to generate.
        leave: the fraction of clients that leave before the last token.
        seed: chooses the random numbers.

    Raises:
        ValueError: a number is out of range.
    """

    rate: float = 5.0
    requests: int = 200
    prompt: tuple[int, int] = (32, 256)
    output: tuple[int, int] = (16, 128)
    leave: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every number."""
        check_positive("load", {"rate": self.rate, "requests": self.requests})
        for name, (least, most) in (("prompt", self.prompt), ("output", self.output)):
            if not 1 <= least <= most:
                raise ValueError(
                    f"load: {name} {least}:{most}; the first number is 1 or more, and the second "
                    "is not below it"
                )
        if not 0 <= self.leave <= 1:
            raise ValueError(f"load: leave is {self.leave}; use a fraction from 0 to 1")


@dataclass(frozen=True)
class Planned:
    """One request.

    Attributes:
        arrival: when it comes, in seconds after the first one might.
        prompt: the tokens of its prompt.
        output: the tokens to generate.
        leaves_after: after how many of these its client leaves; None: it stays.
    """

    arrival: float
    prompt: int
    output: int
    leaves_after: int | None = None


def plan(load: Load) -> list[Planned]:
    """The requests in the order of their arrival; the same for the same seed."""
    draw = np.random.default_rng(load.seed)
    count = load.requests
    arrivals = draw.exponential(1 / load.rate, count).cumsum()
    prompts = draw.integers(*load.prompt, count, endpoint=True)
    outputs = draw.integers(*load.output, count, endpoint=True)
    leaves, after = draw.random(count) < load.leave, draw.random(count)
    return [
        Planned(
            float(arrivals[i]),
            int(prompts[i]),
            int(outputs[i]),
            int(after[i] * outputs[i]) if leaves[i] else None,
        )
        for i in range(count)
    ]
