"""What clients saw of a server: latencies, throughput and goodput. No JAX.

The time to the first token (TTFT) counts from the arrival of a request, whenever it was sent or
begun. The inter-token latency (ITL) is each gap between two tokens of one request. Requests that
failed, or whose clients left, are in no percentile: one that was refused at once would make a
server look fast.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 99)
LEFT = "left"  # of a client that meant to; no failure of the server


@dataclass(frozen=True)
class Outcome:
    """What became of a request; times are in seconds after the run began.

    Attributes:
        arrival: when it arrived.
        times: when each part of its answer came; a part is a token, or several at once.
        tokens: how many tokens came.
        end: when it ended.
        failed: why it has no whole answer, in a word or two; None: it has.
    """

    arrival: float
    times: tuple[float, ...]
    tokens: int
    end: float
    failed: str | None = None

    @property
    def first_token_seconds(self) -> float:
        """From arrival to the first token."""
        return self.times[0] - self.arrival

    @property
    def gap_seconds(self) -> list[float]:
        """Between each token and the next."""
        return np.diff(self.times).tolist()

    def within(self, objectives: "Objectives") -> bool:
        """Whether its first token, and its gaps in the mean, came in time."""
        gaps = self.gap_seconds
        mean = sum(gaps) / len(gaps) if gaps else 0.0
        return self.first_token_seconds <= objectives.first_token and mean <= objectives.gap


@dataclass(frozen=True)
class Objectives:
    """Service level objectives: what a user of the server puts up with, in seconds.

    Attributes:
        first_token: from arrival to the first token.
        gap: the mean of the gaps between tokens of a request.
    """

    first_token: float = inf
    gap: float = inf


@dataclass(frozen=True)
class Summary:
    """A run in numbers; each tuple of seconds has the percentiles 50, 90 and 99.

    Attributes:
        requests: how many there were.
        well: how many ended well.
        seconds: from the first arrival to the last end.
        first_token: time to the first token.
        gap: inter-token latency.
        whole: from arrival to the last token.
        tokens_per_second: tokens of requests that ended well.
        requests_per_second: the same of the requests.
        good_requests_per_second: of those that were within the objectives, too.
        failures: how many did not end well, by kind.
    """

    requests: int
    well: int
    seconds: float
    first_token: tuple[float, ...]
    gap: tuple[float, ...]
    whole: tuple[float, ...]
    tokens_per_second: float
    requests_per_second: float
    good_requests_per_second: float
    failures: dict[str, int]

    @property
    def failed(self) -> bool:
        """Whether a request failed whose client did not mean to leave."""
        return any(kind != LEFT for kind in self.failures)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as data for JSON."""
        named = {"first_token": self.first_token, "gap": self.gap, "whole": self.whole}
        each = {
            f"{name}_seconds": {f"p{p}": x for p, x in zip(PERCENTILES, some, strict=False)}
            for name, some in named.items()
        }
        return {name: value for name, value in vars(self).items() if name not in named} | each

    def lines(self) -> list[str]:
        """The numbers for people."""
        rows = [
            ("time to first token", self.first_token),
            ("inter-token latency", self.gap),
            ("end to end", self.whole),
        ]
        head = f"{'':20}" + "".join(f"{f'p{p}':>11}" for p in PERCENTILES)
        failed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.failures.items()))
        return [
            f"{self.well} of {self.requests} requests ended well in {self.seconds:.1f} s"
            + (f"; {failed}" if failed else ""),
            head,
            *(f"{name:20}" + "".join(map(_shown, some)) for name, some in rows),
            f"throughput  {self.tokens_per_second:,.0f} tokens/s, "
            f"{self.requests_per_second:.2f} requests/s",
            f"goodput     {self.good_requests_per_second:.2f} requests/s within the objectives",
        ]


def summary(outcomes: Sequence[Outcome], objectives: Objectives) -> Summary:
    """The numbers of a run.

    Raises:
        ValueError: there was no request.
    """
    if not outcomes:
        raise ValueError("summary: 0 requests; there is nothing to sum up, so use 1 or more")
    well = [one for one in outcomes if one.failed is None]
    seconds = max(one.end for one in outcomes) - min(one.arrival for one in outcomes)
    per_second = 1 / seconds if seconds > 0 else 0.0
    return Summary(
        requests=len(outcomes),
        well=len(well),
        seconds=seconds,
        first_token=_percentiles([one.first_token_seconds for one in well]),
        gap=_percentiles([gap for one in well for gap in one.gap_seconds]),
        whole=_percentiles([one.end - one.arrival for one in well]),
        tokens_per_second=per_second * sum(one.tokens for one in well),
        requests_per_second=per_second * len(well),
        good_requests_per_second=per_second * sum(one.within(objectives) for one in well),
        failures=dict(Counter(one.failed for one in outcomes if one.failed)),
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, ...]:
    """The percentiles, interpolated between neighbours; none of nothing."""
    return tuple(np.percentile(seconds, PERCENTILES).tolist()) if seconds else ()


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:>8,.1f} ms" if seconds < 10 else f"{seconds:>9,.1f} s"
