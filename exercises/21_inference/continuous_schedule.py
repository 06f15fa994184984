"""Exercise continuous_schedule (lesson 21): which requests get which tokens computed in each step.

Your task: return for each step the pairs (request, tokens) that it computes.

Save it while `jaxpar` runs, or check it with `jaxpar check continuous_schedule`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   continuous_schedule([[0, 3, 4]], slots=1, budget=8) -> [[(0, 3)], [(0, 1)], [(0, 1)], [(0,
#       1)]]
#   continuous_schedule([[0, 9, 2]], slots=1, budget=4) -> [[(0, 4)], [(0, 4)], [(0, 1)], [(0,
#       1)]]
#   continuous_schedule([[0, 3, 5], [0, 3, 2], [0, 3, 2]], slots=2, budget=8) -> [[(0, 3), (1,
#       3)], [(0, 1), (1, 1)], [(0, 1), (2, 3)], [(0, 1), (2, 1)], [(0, 1)]]
#   continuous_schedule([], slots=0, budget=4) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Sequence


def continuous_schedule(
    requests: Sequence[tuple[int, int, int]], *, slots: int, budget: int
) -> list[list[tuple[int, int]]]:
    """Which tokens each step computes until all requests have ended.

    Each request is `(arrival, prompt, output)`. It is there from step `arrival` on, has `prompt`
    tokens, and generates `output` more. Requests are called by their places in the list, from 0 on,
    and of two that arrive in the same step the first in the list comes first.

    A step computes at most `budget` tokens, and requests in at most `slots` slots. It gives them
    out in this order:

    1. one token to each request in a slot that has only one left to compute, which is the newest
       that it has generated, or the last of its prompt;
    2. to each other request in a slot, as many tokens of its prompt as are left of the budget;
    3. while budget and a slot are left, to the first request that waits, a slot, and as many tokens
       of its prompt as are left of the budget.

    Within each of the three, the request that arrived first comes first. The step that computes the
    last token of a prompt generates the first token, and each further token takes a step. A request
    that has generated all its tokens does not compute the last one, and its slot is free in the
    next step. A step in which nothing is to be done is an empty row.

    Returns:
        For each step a list of pairs `(request, tokens)`, in the order in which they were given.

    Source: Yu et al. 2022 (Orca), section 3.1 (a new choice in each step); Agrawal et al. 2024
        (Sarathi-Serve), section 4.1 (chunks of prompts, behind the decodes)

    Raises:
        ValueError: there are no slots, `budget` is below `slots`, an arrival is negative, or a
            request has no prompt or generates nothing.
    """
    raise NotImplementedError("return for each step the pairs (request, tokens) that it computes")
