"""Exercise serving_metrics (lesson 21): how long users wait, and how many are served in time.

Your task: return the percentiles of TTFT and ITL, tokens in a second, good requests in a second.

Save it while `jaxpar` runs, or check it with `jaxpar check serving_metrics`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   serving_metrics([[2.0, [2.5, 2.5625, 2.625], True]], ttft_limit=1.0, itl_limit=0.1) ->
#       {"ttft_p50": 0.5, "ttft_p99": 0.5, "itl_p50": 0.0625, "itl_p99": 0.0625,
#       "tokens_per_second": 4.8, "good_per_second": 1.6}
#   serving_metrics([[2.0, [2.5, 2.5625, 2.625], True], [1.0, [2.25, 2.5, 2.625, 3.5], True]],
#       ttft_limit=1.0, itl_limit=0.1) -> {"ttft_p50": 0.875, "ttft_p99": 1.2425, "itl_p50":
#       0.125, "itl_p99": 0.85, "tokens_per_second": 2.8, "good_per_second": 0.4}
#   serving_metrics([[1.0, [2.25, 2.5, 2.625, 3.5], True], [2.0, [2.5, 2.5625, 2.625], True],
#       [4.0, [4.5], True]], ttft_limit=1.0, itl_limit=0.1) -> {"ttft_p50": 0.5, "ttft_p99":
#       1.2349999999999999, "itl_p50": 0.125, "itl_p99": 0.85, "tokens_per_second":
#       2.2857142857142856, "good_per_second": 0.5714285714285714}
#   serving_metrics([], ttft_limit=1.0, itl_limit=0.1) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Sequence


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
    raise NotImplementedError(
        "return the percentiles of TTFT and ITL, tokens in a second, good requests in a second"
    )
