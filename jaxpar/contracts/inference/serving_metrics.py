"""How long users wait for their tokens, and how many requests are served in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from jaxpar.batching.measures import percentile, serving_metrics
from jaxpar.contracts.base import Call, Contract, wrong

Served = tuple[float, Sequence[float], bool]
Log = Sequence[Served]
Metrics = dict[str, float | None]


def _logs(rng: np.random.Generator) -> list[Call]:
    """By hand, one corner each; then random ones; then what is refused."""

    def call(log: Any, ttft_limit: float = 1.0, itl_limit: float = 0.1) -> Call:
        rows = [[arrival, [*times], ok] for arrival, times, ok in log]
        return (rows,), {"ttft_limit": ttft_limit, "itl_limit": itl_limit}

    quick, slow = (2.0, [2.5, 2.5625, 2.625], True), (1.0, [2.25, 2.5, 2.625, 3.5], True)
    failed, refused = (3.0, [3.25, 3.5], False), (1.5, [], False)
    calls = [
        call([quick]),
        call([quick, slow]),
        call([slow, quick, (4.0, [4.5], True)]),  # one token, and so no gap
        call([(4.0, [4.5], True)]),
        call([quick, failed]),
        call([failed, quick, refused]),
        call([refused, quick, (9.0, [9.75, 12.0, 15.0], False)]),  # the end is a failed one's
        call([failed]),
        call([refused]),
        call([(0.0, [1.0, 1.0, 1.25], True)], 1.0, 0.125),  # exactly at both limits
        call([(5.0, [5.5, 5.75], True), (1.0, [6.5, 6.75], True)], 2.0, 0.25),
    ]
    for count, late in ((9, 0.0), (25, 1000.0), (60, 7.5), (40, 0.25)):
        log = []
        for arrival in late + rng.exponential(0.3, count).cumsum():
            first = arrival + rng.exponential(0.8) + 1e-3
            gaps = rng.exponential(0.08, int(rng.integers(0, 30)))
            times = first + np.concatenate([[0], gaps.cumsum()])
            ok = bool(rng.random() < 0.85)
            log.append((float(arrival), times.tolist(), ok))
        order = rng.permutation(count)
        calls.append(
            call([log[i] for i in order], *(float(x) for x in rng.uniform((1.5, 0.05), (3, 0.1))))
        )
    return [
        *calls,
        call([]),
        call([(1.0, [0.5, 2.0], True)]),
        call([(1.0, [1.0, 2.0], True)]),
        call([quick, (1.0, [3.0, 2.0], True)]),
        call([quick, (1.0, [0.5], False)]),
    ]


CONTRACT = Contract(
    kind="value",
    task="return the percentiles of TTFT and ITL, tokens in a second, good requests in a second",
    reference=serving_metrics,
    oracle=serving_metrics,
    values=_logs,
    hints=(
        "Make three lists of the requests that were answered: the waits before the first token, "
        "the gaps of each request, and which are good.",
        "itertools.pairwise(times) gives the pairs of tokens that follow each other. All gaps of "
        "all requests go into one list for the percentiles, but those of one request decide "
        "whether it is good.",
        "np.percentile(values, 50) is what is asked for, where there are values. The duration is "
        "max of all last tokens - min of all arrivals, with failed requests.",
    ),
    minimal="A mean hides the few who wait long, and a throughput hides that nobody can read an "
    "answer that comes too late: so percentiles, and goodput.",
    harder="A load test sends a request only after the one before it was answered. Which of these "
    "numbers does that make better than users will find them?",
)


def _measured(
    log: Log, ttft_limit: float, itl_limit: float,
    *,
    counts: Callable[[Served], bool] = lambda one: one[2],
    wait: Callable[[Served, Log], float] = lambda one, log: one[1][0] - one[0],
    gaps: Callable[[Served], list[float]] = lambda one: [b - a for a, b in pairwise(one[1])],
    point: Callable[[Sequence[float], float], float | None] = percentile,
    every: Callable[[list[list[float]]], list[float]] = lambda own: [*chain(*own)],
    typical: Callable[[list[float]], float] = lambda own: math.fsum(own) / len(own),
    tokens: Callable[[list[Served], Log], float] = (
        lambda whole, log: sum(len(times) for _, times, _ in whole)
    ),
    good: Callable[[bool, bool], float] = lambda soon, steady: soon and steady,
    start: Callable[[Log], float] = lambda log: min(arrival for arrival, _, _ in log),
    end: Callable[[Log], float] = lambda log: max(times[-1] for _, times, _ in log if times),
) -> Metrics:  # fmt: skip
    """The measures, with one of them taken in another way."""
    serving_metrics(log, ttft_limit=ttft_limit, itl_limit=itl_limit)  # raises where it must
    whole = [one for one in log if counts(one) and one[1]]
    waits, own = [wait(one, log) for one in whole], [gaps(one) for one in whole]
    duration = end(log) - start(log) if any(times for _, times, _ in log) else math.inf
    fine = sum(
        good(w <= ttft_limit, not g or typical(g) <= itl_limit)
        for w, g in zip(waits, own, strict=True)
    )
    return {
        "ttft_p50": point(waits, 50),
        "ttft_p99": point(waits, 99),
        "itl_p50": point(every(own), 50),
        "itl_p99": point(every(own), 99),
        "tokens_per_second": tokens(whole, log) / duration,
        "good_per_second": fine / duration,
    }


def _of(log: Log, limits: dict[str, float], **changed: Any) -> Metrics:
    return _measured(log, limits["ttft_limit"], limits["itl_limit"], **changed)


@wrong("values")
def wait_since_the_start(log: Log, **limits: float) -> Metrics:
    """TTFT is counted from the start of the test; count it from the arrival of each request."""
    start = lambda one, log: one[1][0] - min(arrival for arrival, _, _ in log)  # noqa: E731
    return _of(log, limits, wait=start)


@wrong("values")
def gap_before_the_first_token(log: Log, **limits: float) -> Metrics:
    """ITL has the wait for the first token in it, which is TTFT; it is the time between two
    tokens."""
    gaps = lambda one: [b - a for a, b in pairwise([one[0], *one[1]])]  # noqa: E731
    return _of(log, limits, gaps=gaps)


@wrong("values")
def percentiles_of_means(log: Log, **limits: float) -> Metrics:
    """The percentiles of ITL are over the means of the requests, in which one long gap goes under;
    take them over all gaps."""
    every = lambda own: [math.fsum(each) / len(each) for each in own if each]  # noqa: E731
    return _of(log, limits, every=every)


@wrong("values")
def mean_of_percentiles(log: Log, **limits: float) -> Metrics:
    """A percentile of ITL is the mean of those of the requests; take it over all gaps at once."""
    found = _of(log, limits)
    own = [[b - a for a, b in pairwise(times)] for _, times, ok in log if ok]
    for name, percent in (("itl_p50", 50), ("itl_p99", 99)):
        each = [float(percentile(gaps, percent) or 0) for gaps in own if gaps]
        found[name] = math.fsum(each) / len(each) if each else None
    return found


@wrong("values")
def failed_ones_measured(log: Log, **limits: float) -> Metrics:
    """Requests that failed count in percentiles, tokens and good ones; they count for the duration
    only."""
    return _of(log, limits, counts=lambda one: True)


@wrong("values")
def failed_tokens_counted(log: Log, **limits: float) -> Metrics:
    """The tokens of requests that failed count in tokens_per_second, though nobody can use them."""
    return _of(log, limits, tokens=lambda whole, log: sum(len(times) for _, times, _ in log))


@wrong("values")
def duration_without_failed_ones(log: Log, **limits: float) -> Metrics:
    """The duration leaves out requests that failed; it is from the first arrival to the last token
    of any request."""
    answered = [one for one in log if one[2]]
    if not answered:
        return _of(log, limits)
    return _of(
        log, limits,
        start=lambda log: min(arrival for arrival, _, _ in answered),
        end=lambda log: max(times[-1] for _, times, _ in answered),
    )  # fmt: skip


@wrong("values")
def duration_from_the_first_token(log: Log, **limits: float) -> Metrics:
    """The duration begins with the first token; it begins with the first arrival."""
    return _of(log, limits, start=lambda log: min(times[0] for _, times, _ in log if times) - 1e-9)


@wrong("values")
def duration_to_the_end_of_the_list(log: Log, **limits: float) -> Metrics:
    """The duration is that of the first and the last row of the log, which is in no order; take the
    earliest arrival and the latest token."""
    with_tokens = [one for one in log if one[1]]
    return _of(
        log, limits,
        start=lambda log: log[0][0],
        end=lambda log: max(with_tokens[-1][1][-1], log[0][0] + 1e-9),
    )  # fmt: skip


@wrong("values")
def nearest_value(log: Log, **limits: float) -> Metrics:
    """A percentile is one of the values; between two of them it is on a straight line, as with
    np.percentile."""

    def point(values: Sequence[float], percent: float) -> float | None:
        ordered = sorted(values)
        return (
            ordered[min(len(ordered) * int(percent) // 100, len(ordered) - 1)] if ordered else None
        )

    return _of(log, limits, point=point)


@wrong("values")
def longest_as_p99(log: Log, **limits: float) -> Metrics:
    """p99 is the longest of all; 1 % of the values are above it."""

    def point(values: Sequence[float], percent: float) -> float | None:
        return percentile(values, 100 if percent > 50 else percent)

    return _of(log, limits, point=point)


@wrong("values")
def mean_as_p50(log: Log, **limits: float) -> Metrics:
    """p50 is the mean; it is the median, which half of the values are below."""

    def point(values: Sequence[float], percent: float) -> float | None:
        if percent == 50 and values:
            return math.fsum(values) / len(values)
        return percentile(values, percent)

    return _of(log, limits, point=point)


@wrong("values")
def p90_in_place_of_p99(log: Log, **limits: float) -> Metrics:
    """The higher percentile is the 90th; p99 is the value that 99 % are at most."""
    return _of(log, limits, point=lambda values, p: percentile(values, 90 if p > 50 else p))


@wrong("values")
def good_if_soon(log: Log, **limits: float) -> Metrics:
    """A request is good if its first token comes soon; its mean gap must be at most itl_limit,
    too."""
    return _of(log, limits, good=lambda soon, steady: soon)


@wrong("values")
def good_if_steady(log: Log, **limits: float) -> Metrics:
    """A request is good if its gaps are short; its first token must come within ttft_limit, too."""
    return _of(log, limits, good=lambda soon, steady: steady)


@wrong("values")
def no_gap_too_long(log: Log, **limits: float) -> Metrics:
    """A request is good only if none of its gaps is above itl_limit; it is their mean that may not
    be."""
    return _of(log, limits, typical=max)


@wrong("values")
def divided_by_its_tokens(log: Log, **limits: float) -> Metrics:
    """The mean gap is the sum of the gaps over the number of tokens; there is one gap less."""
    return _of(log, limits, typical=lambda own: math.fsum(own) / (len(own) + 1))


@wrong("values")
def one_token_is_never_good(log: Log, **limits: float) -> Metrics:
    """A request of one token is not good; it has no gap that could be too long."""
    found = _of(log, limits)
    others = [one for one in log if len(one[1]) != 1 or not one[2]]
    if len(others) < len(log):
        wanted = _of(others, limits)["good_per_second"] if others else 0.0
        scale = _duration(others) / _duration(log)
        found["good_per_second"] = (wanted or 0.0) * scale
    return found


def _duration(log: Log) -> float:
    ends = [times[-1] for _, times, _ in log if times]
    return max(ends) - min(arrival for arrival, _, _ in log) if ends else 0.0


@wrong("values")
def part_of_all_requests(log: Log, **limits: float) -> Metrics:
    """good_per_second is the part of the requests that are good; divide their number by the
    duration."""
    found = _of(log, limits)
    return found | {
        "good_per_second": (found["good_per_second"] or 0.0) * _duration(log) / len(log)
    }


@wrong("values")
def requests_in_a_second(log: Log, **limits: float) -> Metrics:
    """tokens_per_second counts requests; count their tokens."""
    return _of(log, limits, tokens=lambda whole, log: len(whole))


@wrong("values")
def zero_where_there_is_nothing(log: Log, **limits: float) -> Metrics:
    """A percentile of no values is 0, as if nobody had to wait; it is None."""
    return _of(log, limits, point=lambda values, p: percentile(values, p) if values else 0.0)


@wrong("values")
def times_not_checked(log: Log, **limits: float) -> Metrics:
    """Raise ValueError where there is no request, a token did not come after its request, or times
    descend."""
    try:
        return _of(log, limits)
    except ValueError:
        return {}
