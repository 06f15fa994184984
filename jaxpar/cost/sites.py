"""Training at several sites that a slow line joins: how long they average, for each step.

Every site trains a copy of the model by a plan of its own. All sites together average gradients
after each step, as in data parallelism, or parameters after some local steps, as in local SGD and
DiLoCo, which send as much each time. An all-reduce over lines is one of 2 log2 n messages, in which
a site sends 2(n-1)/n of what it averages. Nothing hides it.

Sources: Thakur, Rabenseifner and Gropp 2005, section 4.5 (Rabenseifner's algorithm); Douillard et
al. 2023 (DiLoCo); Jaghouar et al. 2024, INTELLECT-1 Technical Report.
"""

import math
from dataclasses import dataclass

from jaxpar.checks import check_positive
from jaxpar.cost.communication import Link
from jaxpar.cost.compress import BLOCK, compressed_bytes
from jaxpar.cost.terms import Term, make_term

LATENCY_SECONDS = 50e-3  # assumed, of a message between sites


@dataclass(frozen=True)
class Sites:
    """Sites that train one model.

    Attributes:
        count: how many there are.
        line: a site's line to the others, one direction.
    """

    count: int
    line: Link


@dataclass(frozen=True)
class Way:
    """A way to average.

    Attributes:
        scheme: how numbers are sent, as in `compressed_bytes`: "fp32", "int8", "int4" or "sign".
        local_steps: after how many steps; after each, gradients are averaged.
    """

    scheme: str
    local_steps: int = 1

    def __str__(self) -> str:
        """As in a table."""
        often = "step" if self.local_steps == 1 else f"{self.local_steps} steps"
        return f"{self.scheme}, every {often}"


EVERY_STEP = Way("fp32")
WAYS = tuple(Way(scheme, steps) for steps in (1, 10, 100) for scheme in ("fp32", "int8"))


def averaging(parameters: int, sites: Sites, way: Way) -> Term:
    """The seconds of averaging, for each training step.

    Raises:
        ValueError: a number is not above 0, or the scheme is unknown.
    """
    line = sites.line
    counts = {"sites": sites.count, "local_steps": way.local_steps}
    check_positive("averaging", counts | {"bytes_per_second": line.bytes_per_second})
    how = {"scheme": way.scheme, "block": BLOCK, "k": 1, "rank": 1}
    numbers = {
        "messages": 2 * math.ceil(math.log2(sites.count)),
        "latency": line.latency_seconds,
        "sent_bytes": compressed_bytes(parameters, 1, sites.count, **how),
        "bandwidth": line.bytes_per_second,
        "local_steps": way.local_steps,
    }
    return make_term(str(way), "(messages*latency + sent_bytes/bandwidth)/local_steps", numbers)


def steps_ratio(computing_seconds: float, parameters: int, sites: Sites, way: Way) -> float:
    """How many times as many steps a way may need, before data parallelism is as fast.

    That is data parallelism in float32. `computing_seconds` is what a site needs for a step.
    """
    plain, other = (averaging(parameters, sites, one).value for one in (EVERY_STEP, way))
    return (computing_seconds + plain) / (computing_seconds + other)


def fewest_local_steps(
    computing_seconds: float, averaging_seconds: float, *, needed: float
) -> float:
    """From how many local steps on they beat data parallelism, if they need more steps.

    Both average for `averaging_seconds`, one after each step of `computing_seconds`. Local steps
    need `needed` times as many steps to reach the same loss. The result need not be whole, and is
    infinite where no number is enough.

    Math: (C + A/h) r < C + A, so h > A / ((C + A)/r - C)

    Raises:
        ValueError: a number is not above 0.
    """
    numbers = {"computing_seconds": computing_seconds, "averaging_seconds": averaging_seconds}
    check_positive("fewest_local_steps", numbers | {"needed": needed})
    left = (computing_seconds + averaging_seconds) / needed - computing_seconds
    return averaging_seconds / left if left > 0 else math.inf
