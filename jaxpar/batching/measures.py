"""What users of a server notice: how long they wait, and how many are served in time.

This is for teaching. `jaxpar.serve.measures` sums up the runs of `jaxpar load` in the same words,
with more percentiles, and failures by kind.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def percentile(values: Sequence[float], percent: float) -> float | None:
    """What `percent` % of the values are at most, between two of them by a straight line.

    None if there are no values.
    """
    return float(np.percentile(values, percent)) if len(values) else None


def serving_metrics(
    log: Sequence[tuple[float, Sequence[float], bool]], *, ttft_limit: float, itl_limit: float
) -> dict[str, float | None]:
    """What users of a server notice, from the times of all tokens, in seconds.

    Each request is `(arrival, times, ok)`: when it arrived, when each of its tokens came, in
    ascending order, and whether it was answered to its end. A request that failed counts for the
    duration only, which is from the first arrival to the last token, of any request.

    - TTFT, the time to first token, is from a request's arrival to its first token.
    - ITL, the inter-token latency, is the time between two tokens of a request that follow each
      other. Its percentiles are over all such gaps of all requests.
    - A request is *good* if its TTFT is at most `ttft_limit`, and the mean of its gaps, if it has
      any, is at most `itl_limit`.

    A percentile that lies between two values is between them by a straight line, as with
    `numpy.percentile`. It is None if there are no values.

    Returns:
        `ttft_p50`, `ttft_p99`, `itl_p50`, `itl_p99`; `tokens_per_second`, the tokens of whole
        answers over the duration; and `good_per_second`, the good requests over the duration. The
        last two are 0 if no token came at all.

    Source: the documentation of vLLM, `vllm bench serve`; Zhong et al. 2024 (DistServe), section 2

    Raises:
        ValueError: there is no request, a token came before its request or not after it, or times
            descend.
    """
    if not log:
        raise ValueError("serving_metrics: there is no request; use one or more")
    for arrival, times, _ in log:
        if list(times) != sorted(times) or (times and times[0] <= arrival):
            raise ValueError(
                f"serving_metrics: a request arrived at {arrival}, and its tokens came at "
                f"{list(times)[:5]}; times must ascend, and all come after the arrival"
            )
    whole = [(arrival, times) for arrival, times, ok in log if ok and times]
    ttfts = [times[0] - arrival for arrival, times in whole]
    gaps = [[b - a for a, b in pairwise(times)] for _, times in whole]
    good = [
        ttft <= ttft_limit and (not own or math.fsum(own) / len(own) <= itl_limit)
        for ttft, own in zip(ttfts, gaps, strict=True)
    ]
    every = [gap for own in gaps for gap in own]
    ends = [times[-1] for _, times, _ in log if times]
    duration = max(ends) - min(arrival for arrival, _, _ in log) if ends else math.inf
    return {
        "ttft_p50": percentile(ttfts, 50),
        "ttft_p99": percentile(ttfts, 99),
        "itl_p50": percentile(every, 50),
        "itl_p99": percentile(every, 99),
        "tokens_per_second": sum(len(times) for _, times in whole) / duration,
        "good_per_second": sum(good) / duration,
    }
