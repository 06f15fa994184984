"""How well the planner ranks layouts: sets of measured runs that differ in their layout alone."""

from dataclasses import dataclass
from functools import cache, cached_property
from statistics import median

import numpy as np

from jaxpar.cost.planner.published import Run, read_runs


@dataclass(frozen=True)
class Ranking:
    """Measured runs of one model on the same devices.

    Attributes:
        title: who measured them, and what they are.
        runs: the runs for which the formulas hold; some layouts were measured twice.
    """

    title: str
    runs: tuple[Run, ...]

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of measured and predicted speed: 1 if both orders agree."""
        from scipy.stats import rankdata

        return float(np.corrcoef(*map(rankdata, self._speeds))[0, 1])

    @property
    def loss(self) -> float:
        """How much slower the planner's first choice is than the fastest run: 0.1 is 10%."""
        measured, predicted = self._speeds
        return float(measured.max() / measured[predicted.argmax()] - 1)

    @property
    def error(self) -> float:
        """The median of the absolute errors of predicted seconds."""
        measured, predicted = self._speeds
        return float(np.median(np.abs(measured / predicted - 1)))

    @property
    def memory(self) -> float | None:
        """The median of predicted over measured bytes on a device, where these were measured."""
        measured = [run for run in self.runs if run.peak_bytes]
        if not measured:
            return None
        return median(run.predicted_bytes() / (run.peak_bytes or 1) for run in measured)

    @cached_property
    def _speeds(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens in a second of each run, as measured and as predicted."""
        tokens = np.array([run.batch * run.sequence for run in self.runs])
        measured = np.array([run.seconds for run in self.runs])
        return tokens / measured, tokens / [run.predicted_seconds() for run in self.runs]


@cache
def rankings() -> tuple[Ranking, ...]:
    """All sets with three runs or more that the formulas hold for, in the order of the file."""
    sets: dict[str, list[Run]] = {}
    for run in ranked_runs():
        if not run.outside:
            sets.setdefault(run.paper, []).append(run)
    return tuple(Ranking(its[0].title, tuple(its)) for its in sets.values() if len(its) > 2)


@cache
def ranked_runs() -> tuple[Run, ...]:
    """All runs of rankings.toml, also those for which the formulas do not hold."""
    return read_runs("rankings.toml")
