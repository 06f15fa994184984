"""What programs reach of each kind of hardware: fitted to published runs, and tried on others.

The fit is least squares on the logarithm of predicted over published seconds. Each paper has the
same weight, however many runs it prints. One figure is fitted for each kind of hardware: the
fraction of the peak that products reach.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from jaxpar.cost.hardware import Efficiency
from jaxpar.cost.planner.published import Run, published_runs

_STEP = 1e-3


def runs_by_kind() -> dict[str, list[Run]]:
    """The published runs on each kind of hardware to which its efficiency is fitted."""
    runs: dict[str, list[Run]] = {}
    for run in published_runs():
        if run.fitted:
            runs.setdefault(run.cluster.efficiency.kind, []).append(run)
    return runs


def fit(runs: Sequence[Run]) -> Efficiency:
    """The efficiency whose `products` fits these runs best: Gauss-Newton, from 0.3 to 1."""
    papers = Counter(run.paper for run in runs)
    weights = np.array([papers[run.paper] ** -0.5 for run in runs])
    reached = replace(runs[0].cluster.efficiency, products=0.7)

    def errors(products: float) -> np.ndarray:
        tried = replace(reached, products=products)
        return weights * np.log([1 + run.error(tried) for run in runs])

    for _ in range(6):
        now = errors(reached.products)
        slope = (errors(reached.products + _STEP) - now) / _STEP
        best = reached.products - float(slope @ now / (slope @ slope))
        reached = replace(reached, products=min(max(best, 0.3), 1.0))
    return replace(reached, products=round(reached.products, 3))


def left_out(runs: Sequence[Run]) -> dict[str, list[float]]:
    """The errors of each paper's runs, with what is fitted to those of the other papers, if any."""
    errors = {}
    for paper in dict.fromkeys(run.paper for run in runs):
        if others := [run for run in runs if run.paper != paper]:
            fitted = fit(others)
            errors[paper] = [run.error(fitted) for run in runs if run.paper == paper]
    return errors


def summary(errors: Iterable[float]) -> str:
    """The median of the absolute errors, and the worst error, in percent."""
    errors = list(errors)
    return f"median {median(map(abs, errors)):.1%}, worst {max(errors, key=abs):+.1%}"
