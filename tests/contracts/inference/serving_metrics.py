"""Answers to serving_metrics: right ones by other routes, and wrong ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right

NAMES = ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99")


def _check(log):
    if not log:
        raise ValueError("no request")
    for arrival, times, _ in log:
        if any(b < a for a, b in pairwise(times)):
            raise ValueError("times descend")
        if times and times[0] <= arrival:
            raise ValueError("too early")


@right
def by_numpy(log, *, ttft_limit, itl_limit):
    _check(log)
    answered = [(a, np.asarray(t)) for a, t, ok in log if ok and len(t)]
    first = [t[0] - a for a, t in answered]
    gaps = [np.diff(t) for _, t in answered]
    joined = np.concatenate(gaps) if gaps else []
    points = [
        float(np.percentile(values, p)) if len(values) else None
        for values in (first, joined)
        for p in (50, 99)
    ]
    good = [
        f <= ttft_limit and (g.size == 0 or g.mean() <= itl_limit)
        for f, g in zip(first, gaps, strict=True)
    ]
    ends = [t[-1] for _, t, _ in log if t]
    seconds = max(ends) - min(a for a, _, _ in log) if ends else float("inf")
    rates = sum(len(t) for _, t in answered) / seconds, sum(good) / seconds
    named = dict(zip(NAMES, points, strict=True))
    return named | {"tokens_per_second": rates[0], "good_per_second": float(rates[1])}


@right
def one_request_after_another(log, *, ttft_limit, itl_limit):
    _check(log)
    first, gaps, tokens, good = [], [], 0, 0
    begin, end = min(a for a, _, _ in log), None
    for arrival, times, ok in log:
        if not times:
            continue
        end = times[-1] if end is None else max(end, times[-1])
        if ok:
            first.append(times[0] - arrival)
            gaps += [times[i + 1] - times[i] for i in range(len(times) - 1)]
            tokens += len(times)
            steady = times[-1] - times[0] <= itl_limit * (len(times) - 1)
            good += first[-1] <= ttft_limit and steady
    points = []
    for values in (sorted(first), sorted(gaps)):
        for q in (0.5, 0.99):
            place = q * (len(values) - 1)
            i = int(place)
            if not values:
                points.append(None)
            elif i + 1 == len(values):
                points.append(values[-1])
            else:
                points.append(values[i] * (i + 1 - place) + values[i + 1] * (place - i))
    rates = (0.0, 0.0) if end is None else (tokens / (end - begin), good / (end - begin))
    named = dict(zip(NAMES, points, strict=True))
    return named | {"tokens_per_second": rates[0], "good_per_second": rates[1]}


@wrong("values")
def in_milliseconds(log, *, ttft_limit, itl_limit):
    found = by_numpy(log, ttft_limit=ttft_limit, itl_limit=itl_limit)
    return {k: v and (1e3 * v if k in NAMES else v) for k, v in found.items()}


@wrong("values")
def below_the_limits(log, *, ttft_limit, itl_limit):
    """Less than a limit, and not at most."""
    return by_numpy(log, ttft_limit=ttft_limit - 1e-9, itl_limit=itl_limit - 1e-9)


@wrong("values")
def one_rate_for_tokens_and_gaps(log, *, ttft_limit, itl_limit):
    found = by_numpy(log, ttft_limit=ttft_limit, itl_limit=itl_limit)
    return found | {"itl_p50": found["tokens_per_second"] and 1 / found["tokens_per_second"]}


@wrong("values")
def without_requests_that_have_no_token(log, *, ttft_limit, itl_limit):
    """The duration begins with the first request that got a token."""
    _check(log)
    some = [one for one in log if one[1]] or log
    return by_numpy(some, ttft_limit=ttft_limit, itl_limit=itl_limit)


@wrong("values")
def limits_swapped(log, *, ttft_limit, itl_limit):
    return by_numpy(log, ttft_limit=itl_limit, itl_limit=ttft_limit)
